"""A run that judges by a recorded baseline, and a run that writes one."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import msgspec
import pytest

from msprobe_hooks.dump.reader import Dump
from pytest_msprobe.errors import BaselineError
from pytest_msprobe.modes.check.baselines.baseline_file import Baseline, BaselineWriter, Header, made_on, read_baseline
from pytest_msprobe.modes.check.baselines.tensor_folder import KeptFolder, kept_of, record_row, tensors_folder
from pytest_msprobe.modes.check.options import check_key
from pytest_msprobe.reports.page_file import end_as_incomplete
from pytest_msprobe.results.result import Start, from_plain
from pytest_msprobe.run.collection import dump_of_id, dumps_key
from pytest_msprobe.run.options import Options, options_key
from pytest_msprobe.run.setups import setups_key
from pytest_msprobe.storage.files import fingerprint

_described_key = pytest.StashKey[list[str]]()


def open_baseline(config: pytest.Config, dumps: Mapping[Path, Dump]) -> None:
    """Check that the baseline fits this run, in the process that hears of every item. Raises BaselineError.

    A remote device fits every run; the processes that run items ask it.
    """
    path, card = config.stash[check_key].baseline, config.stash[check_key].remote_baseline
    if card is not None and dumps:
        config.stash[setups_key].judge_beside(card)
        config.stash[_described_key] = [f"msprobe: baseline {card}, computed during this run"]
    if path is None or not dumps or hasattr(config, "workerinput"):
        return
    baseline = read_baseline(path)
    require_fit(baseline, dumps, config.stash[options_key])
    config.stash[_described_key] = describe(baseline)


def baseline_report(config: pytest.Config) -> BaselineReport:
    """Start to write the baseline of this run. Raises BaselineError where the file cannot be written."""
    path = config.stash[check_key].save_baseline
    assert path is not None
    return BaselineReport(BaselineWriter(path), config)


def require_fit(baseline: Baseline, dumps: Mapping[Path, Dump], options: Options) -> None:
    """Raise BaselineError, naming what differs, where a baseline is about other inputs than this run's."""
    path, header = baseline.path, baseline.header
    if header is None:
        if len(dumps) > 1:
            raise BaselineError(
                f"is a table of one dump, and this run has {len(dumps)}",
                file=path,
                remedy="check them one by one, each with its table, or record a baseline with --msprobe-save-baseline",
            )
        records = {record for _, record in baseline.rows}
        for dump in dumps.values():
            if records.isdisjoint(dump.api_names):
                raise BaselineError(
                    f"no row for any record of {dump.path}", file=path, remedy="pass the table of this dump"
                )
        return
    for name, there, here in (
        ("--msprobe-seed", header.seed, options.seed),
        ("--msprobe-real-data", header.real_data, options.real_data),
    ):
        if there != here:
            raise BaselineError(
                f"was recorded with {name} {there}, this run has {here}, so the inputs differ",
                file=path,
                remedy=f"pass {name} {there}, or record the baseline again",
            )
    for dump_path in dumps:
        if fingerprint(dump_path) not in header.dumps:
            recorded = ", ".join(header.dumps.values())
            raise BaselineError(
                f"was recorded from other dumps than {dump_path}, or the dump has changed (recorded: {recorded})",
                file=path,
                remedy="record the baseline again from this dump",
            )


def describe(baseline: Baseline) -> list[str]:
    """Return what a baseline is, for the header of the run."""
    what = f"msprobe: baseline {baseline.path}: {len(baseline.rows)} records"
    if baseline.header is None:
        return [f"{what} of a table; its inputs are the same only where the dump holds tensors"]
    lines = [f"{what} on {made_on(baseline.header.starts)}"]
    if baseline.with_tensors:
        folder = tensors_folder(baseline.path)
        there = "used" if folder.is_dir() else "the folder is missing, numbers are used"
        lines.append(f"msprobe: tensors of {baseline.with_tensors} records in {folder}: {there}")
    if baseline.failed:
        lines.append(f"msprobe: {baseline.failed} of its records were wrong there; such errors count as normal here")
    return lines


def header(config: pytest.Config) -> list[str]:
    """Return the header's lines about the baseline."""
    return config.stash.get(_described_key, [])


class BaselineReport:
    """Writes the baseline of a run; what goes wrong is reported at the end and fails the run, which goes on."""

    def __init__(self, writer: BaselineWriter, config: pytest.Config) -> None:
        self._writer = writer
        self._config = config
        self._problem = ""
        tensors = config.stash[check_key].save_baseline_tensors
        self._tensors = None if tensors is None else KeptFolder(tensors.folder)
        self._starts: list[Start] = []
        self._fingerprints = {path: fingerprint(path) for path in config.stash[dumps_key]}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what was measured of one record, and on what."""
        started, plain = getattr(report, "msprobe_start", None), getattr(report, "msprobe", None)
        if started is not None:
            start = msgspec.convert(started, Start)
            self._starts += [start] if start not in self._starts else []
        dump = self._fingerprints.get(dump_of_id(self._config, report.nodeid))
        if plain is None or dump is None or self._problem:
            return
        result = from_plain(plain)
        tensors = kept_of(result)
        if self._tensors is not None and tensors is not None:
            self._tensors.add(tensors)
        try:
            self._writer.add(record_row(result, dump))
        except BaselineError as error:
            self._problem = str(error)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Move the file into place, if the run came to its end."""
        ended = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and not session.shouldstop
        if not self._problem and not (ended and not session.shouldfail and self._writer.count):
            self._problem = f"{self._writer.path}: the baseline was not written: the run did not finish"
        elif not self._problem:
            try:
                self._writer.finish(self._header())
                if self._tensors is not None:
                    self._tensors.finish()
            except BaselineError as error:
                self._problem = str(error)
        self._writer.close()
        if self._problem:
            end_as_incomplete(session)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print where the baseline is, or why there is none."""
        if self._problem:
            terminalreporter.line(f"ERROR: {self._problem}", red=True)
        else:
            terminalreporter.line(f"msprobe baseline: {self._writer.path} ({self._writer.count} records)")
            for line in self._tensors.lines() if self._tensors is not None else ():
                terminalreporter.line(line)

    def _header(self) -> Header:
        options = self._config.stash[options_key]
        return Header(
            written_by=version("pytest-msprobe"),
            dumps={digest: str(path) for path, digest in self._fingerprints.items()},
            seed=options.seed,
            real_data=options.real_data,
            policy=options.policy,
            level=options.settings()["level"],
            starts=sorted(self._starts, key=str),
        )
