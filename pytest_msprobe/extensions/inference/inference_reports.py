"""The reporters of a comparison with an engine: summary, JSON, tables and page."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from datetime import datetime
from functools import partial, reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from msprobe_hooks.messages import counted, listed
from pytest_msprobe.extensions.inference.inference_pair import KL, LOG_PROBABILITIES, WEIGHTS
from pytest_msprobe.extensions.inference.options import PROFILE, InferenceOptions
from pytest_msprobe.extensions.inference.profile import FORMAT, is_fused
from pytest_msprobe.modes.compare.reports.table_columns import columns
from pytest_msprobe.modes.compare.rows import ComparedCall, ComparedCalls
from pytest_msprobe.reports.page_file import JsonReport, cannot_be_written, end_as_incomplete
from pytest_msprobe.reports.pages import page_number
from pytest_msprobe.reports.summary import write_section
from pytest_msprobe.reports.text import one_line
from pytest_msprobe.run.rerun_command import display_path, rerun_step
from pytest_msprobe.storage.files import atomic_write

if TYPE_CHECKING:
    import pytest

    from pytest_msprobe.extensions.inference.inference_pair import InferencePair
    from pytest_msprobe.modes.compare.options import CompareOptions
    from pytest_msprobe.run.options import Options

_OF_TOKENS = (LOG_PROBABILITIES, KL, WEIGHTS)
# So many of the tokens whose log probabilities differ most are listed.
_WORST = 20


class InferenceJson(JsonReport):
    """Writes the file when all items have finished."""

    title = "msprobe inference JSON"

    def __init__(self, path: Path, pair: InferencePair, calls: Iterable[ComparedCall]) -> None:
        super().__init__(path)
        self._pair = pair
        self._calls = calls

    def content(self) -> dict[str, Any]:
        """Return what was compared: the culprits, tokens, log probabilities and values."""
        calls = list(self._calls)
        culprits = [call.record for call in calls if call.cause == "culprit" and call.outcome == "fail"]
        weights = [row.place for call in calls for row in call.rows if row.group == "parameters" and row.differs]
        pairs = self._pair.pairs
        return {
            "format": FORMAT,
            "target_is_fused": is_fused(self._pair.target),
            "first_module": culprits[0] if culprits else None,
            "culprits": culprits,
            "weights_that_differ": weights,
            "tokens": {
                "compared": len(pairs),
                "requests": list(pairs.requests),
                "target_only": pairs.target_only,
                "golden_only": pairs.golden_only,
            },
            "log_probabilities": self._log_probabilities(calls),
            "notes": [*self._pair.finding_lines, *self._pair.evidence_notes],
            "values": [self._value(call) for call in calls if call.record not in _OF_TOKENS],
        }

    def _value(self, call: ComparedCall) -> dict[str, Any]:
        rows = [row for row in call.rows if row.group != "parameters"]
        plain: dict[str, Any] = {"name": call.record, "outcome": call.outcome, "cause": call.cause}
        plain["target"], plain["golden"] = call.target, call.golden
        plain["reasons"] = [message for row in call.rows for message in row.messages]
        if rows:
            target, golden = rows[0].target, rows[0].golden
            assert target is not None
            assert golden is not None
            plain |= {"target_dtype": target.dtype, "golden_dtype": golden.dtype, "width": (*target.shape, 0, 0)[1]}
            plain |= rows[0].metrics
            plain["worst_token"] = self._token(*rows[0].worst) if rows[0].worst else None
        return plain

    def _log_probabilities(self, calls: list[ComparedCall]) -> dict[str, Any] | None:
        call = next((candidate for candidate in calls if candidate.record == LOG_PROBABILITIES), None)
        compared = self._pair.log_probabilities if call is not None and call.outcome != "skip" else None
        if call is None or compared is None:
            return None
        pairs = self._pair.pairs
        metrics = [one.rows[0].metrics for one in calls if one.record in _OF_TOKENS and one.rows]
        requests = compared.by_request(pairs)
        requests.sort(key=lambda one: -abs(one[1].sum()))
        return {
            **reduce(or_, metrics, {"divergence": None}),
            "clip": self._pair.clip,
            "tokens": len(compared.pairs),
            "source": compared.source,
            "causes": [
                {"side": finding.side, "basis": finding.basis, **asdict(finding.cause)}
                for finding in self._pair.findings
                if finding.cause is not None
            ],
            "requests": [
                {
                    "request": pairs.requests[request],
                    "tokens": len(logs),
                    "weight": float(np.exp(logs.sum())),
                    "k3": float(np.mean(np.expm1(logs) - logs)),
                }
                for request, logs in requests[:_WORST]
            ],
            "worst": [
                {
                    **self._token(
                        int(pairs.request[compared.pairs[place]]),
                        int(pairs.position[compared.pairs[place]]) + compared.ahead,
                    ),
                    "target": float(compared.target[place]),
                    "golden": float(compared.golden[place]),
                }
                for place in compared.worst(_WORST)
            ],
        }

    def _token(self, request: int, position: int) -> dict[str, Any]:
        return {"request": self._pair.pairs.requests[request], "position": position}


_OUTCOMES = {"pass": "within precision", "warn": "warned", "fail": "wrong", "skip": "not compared"}
_SHOWN = 4
_FEW_BITS = ("bfloat16", "float16", "float8")


class InferenceSummary:
    """Counts outcomes as reports arrive, and names at the end what differs first."""

    def __init__(self, pair: InferencePair, calls: ComparedCalls) -> None:
        self._pair = pair
        self._calls = calls
        self._outcomes: Counter[str] = Counter()
        self._reasons = defaultdict[str, list[str]](list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one item."""
        plain: dict[str, Any] | None = getattr(report, "msprobe", None)
        if plain is None:
            return
        outcome = plain["verdict"]["outcome"]
        self._outcomes[outcome] += 1
        if outcome == "skip":
            self._reasons[plain["verdict"]["reason"].rpartition(": ")[2]].append(plain["record"])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the section."""
        write_section(terminalreporter, bool(self._outcomes), self.lines)

    def lines(self, finished_before: Counter[str]) -> list[str]:
        """Return the section's lines, what differs first before all; ``finished_before`` counts what a journal had."""
        calls = list(self._calls)
        lines = [*self.notes(), self._tokens()]
        counts = ", ".join(f"{self._outcomes[key]} {word}" for key, word in _OUTCOMES.items() if self._outcomes[key])
        lines.append(f"{counted(self._outcomes.total(), 'value')}: {counts}")
        if finished_before:
            before = ", ".join(f"{count} {_OUTCOMES.get(key, key)}" for key, count in finished_before.items())
            lines.append(f"finished before this run, not included above: {before}")
        lines += [f"not compared, {reason}: {listed(names, _SHOWN)}" for reason, names in self._reasons.items()]
        return [*lines, *self._left_out(calls), *self._unmatched()]

    def notes(self) -> list[str]:
        """Return what is said before any of the values: weights, the first module that differs, log probabilities."""
        calls = list(self._calls)
        lost = self._pair.lost_tokens
        return [*([lost] if lost else []), *self._weights(calls), *self._first(calls), *self._log_probabilities(calls)]

    def _tokens(self) -> str:
        pairs = self._pair.pairs
        return (
            f"{counted(len(pairs), 'token')} of {counted(len(pairs.requests), 'request')} in both runs"
            + (f"; {pairs.target_only} in the target alone" if pairs.target_only else "")
            + (f"; {pairs.golden_only} in the golden run alone" if pairs.golden_only else "")
        )

    def _weights(self, calls: list[ComparedCall]) -> Iterator[str]:
        rows = [row for call in calls for row in call.rows if row.group == "parameters"]
        wrong = [row for row in rows if row.differs]
        if wrong:
            compared = [row for row in rows if row.outcome != "skip"]
            yield (
                f"weights differ already, {len(wrong)} of {counted(len(compared), 'parameter')} in both runs: "
                f"{listed((row.place for row in wrong), _SHOWN)} ({wrong[0].messages[0].rpartition(': ')[2]})"
            )

    def _first(self, calls: list[ComparedCall]) -> Iterator[str]:
        values = [call for call in calls if call.record not in _OF_TOKENS]
        culprits = [(call, row) for call in values for row in call.rows if _differs_here(call, row)]
        wrong = [(call, row) for call, row in culprits if row.outcome == "fail" and call.outcome == "fail"]
        if not wrong:
            if self._outcomes["pass"] or self._outcomes["warn"]:
                yield "no module differs by more than the two precisions explain"
                yield from self._hidden(values)
        else:
            call, row = wrong[0]
            yield f"first module that differs: {call.record} ({row.messages[0]})"
            if hint := self._pair.advice(call.record):
                yield f"    {hint}"
            if len(wrong) > 1:
                yield f"    others that add to the error: {listed((other.record for other, _ in wrong[1:]), _SHOWN)}"
            inherited = sum(value.cause == "inherited" for value in values)
            if inherited:
                yield f"    {counted(inherited, 'value')} after it inherited the error"
        grown = next((call for call in values if call.outcome == "warn" and call.cause), None)
        if grown is not None and not wrong:
            message = grown.rows[-1].messages[0]
            yield f"    rounding adds up beyond the limit from {grown.record} on, by no single module ({message})"
        coarser = [call for call in values if call.outcome == "warn" and not call.cause]
        if coarser:
            names = listed((call.record for call in coarser), _SHOWN)
            yield f"rounded more coarsely by one run: {names} ({coarser[0].rows[-1].messages[0]})"

    def _hidden(self, values: list[ComparedCall]) -> Iterator[str]:
        """Yield that small faults may be hidden, where a formula is the limit of errors in few bits."""
        if self._pair.profile_path is not None:
            return
        sides = [side for call in values for row in call.rows for side in (row.target, row.golden) if side is not None]
        if dtype := next((side.dtype for side in sides if side.dtype in _FEW_BITS), ""):
            yield f"    limits by a formula: {dtype} may hide small faults, which {PROFILE} finds"

    def _log_probabilities(self, calls: list[ComparedCall]) -> Iterator[str]:
        call = next((candidate for candidate in calls if candidate.record == LOG_PROBABILITIES), None)
        if call is not None and call.outcome != "skip":
            yield f"log probabilities: {call.reason}"
            yield from self._pair.finding_lines
            yield from (f"    {one.reason}" for one in calls if one.record in (KL, WEIGHTS) and one.outcome != "skip")
            compared = self._pair.log_probabilities
            if compared is not None and call.outcome != "pass":
                for place in compared.worst(_SHOWN):
                    at = self._pair.pairs.label(int(compared.pairs[place]), compared.ahead)
                    yield f"    {compared.target[place]:.4f} against {compared.golden[place]:.4f} at {at}"
        else:
            problem = self._pair.log_probabilities_problem or "a run has neither logits nor noted ones"
            yield from () if call is not None else [f"log probabilities not compared: {problem}"]
            yield from self._pair.finding_lines
        yield from self._pair.evidence_notes

    def _left_out(self, calls: list[ComparedCall]) -> Iterator[str]:
        most = max((row.metrics.get("left_out", 0) for call in calls for row in call.rows), default=0)
        if most:
            yield f"{counted(int(most), 'token')} left out behind routers that chose other experts within rounding"
        reasons = defaultdict[str, list[str]](list)
        for call in calls:
            for row in call.rows:
                if row.group == "parameters" and row.outcome == "skip":
                    reasons[row.messages[0].removeprefix("not compared: ")].append(row.place)
        yield from (f"weights not compared, {reason}: {listed(names, _SHOWN)}" for reason, names in reasons.items())
        if not any(row.group == "parameters" for call in calls for row in call.rows):
            yield "weights not compared: no parameter is recorded in both runs"

    def _unmatched(self) -> Iterator[str]:
        pair = self._pair
        compared = {*pair.values}
        for side, run in (("target", pair.target), ("golden run", pair.golden)):
            names = [name for name in run.sources if name not in compared and not _is_compared_otherwise(name)]
            if names:
                yield f"in the {side} alone: {listed(names, _SHOWN)}"


def _is_compared_otherwise(name: str) -> bool:
    """Return whether a value is in another: as rotated queries and keys, as the input of ``o_proj``, as the norm."""
    return name.startswith("rotary_emb") or name.endswith(".self_attn.attn") or name == "model"


def _differs_here(call: ComparedCall, row: Any) -> bool:
    return row.group != "parameters" and row.differs and call.cause == "culprit"


def inference_reporters(
    pair: InferencePair, calls: ComparedCalls, compare: CompareOptions, options: Options
) -> Mapping[str, object]:
    """Return the plugins that hear of every item, by name."""
    summary = InferenceSummary(pair, calls)
    reporters: dict[str, object] = {"msprobe-compared-calls": calls, "msprobe-compare-summary": summary}
    json_file = compare.part(InferenceOptions).json
    if json_file is not None:
        reporters["msprobe-inference-json"] = InferenceJson(json_file, pair, calls)
    if options.csv or compare.xlsx or compare.html:
        files = {}
        name = f"compare_result_{datetime.now():%Y%m%d%H%M%S}"
        if options.csv:
            files[options.csv / f"{name}.csv"] = partial(_write_csv, calls=calls, policy=options.policy)
        if compare.xlsx:
            files[compare.xlsx / f"{name}.xlsx"] = partial(_write_xlsx, calls=calls, policy=options.policy)
        page = partial(_write_page, calls=calls, pair=pair, summary=summary)
        reporters["msprobe-compare-reports"] = InferenceFiles(files, compare.html, page)
    return reporters


class InferenceFiles:
    """Writes tables and page when all items have finished."""

    def __init__(
        self,
        files: Mapping[Path, Callable[[Path], object]],
        html: Path | None,
        write_page: Callable[..., object],
    ) -> None:
        self._files = dict(files)
        self._html = html
        self._write_page = write_page
        self._lines: list[tuple[str, bool]] = []

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the files; what cannot be written is said in the summary, and the others are written."""
        if session.config.option.collectonly:
            return
        if self._html is not None:
            self._files[self._html] = partial(self._write_page, config=session.config)
        for path, write in self._files.items():
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                with atomic_write(path) as part:
                    write(part)
            except OSError as error:
                self._lines.append((f"ERROR: msprobe report: {cannot_be_written(path, error)}", True))
                end_as_incomplete(session)
            else:
                self._lines.append((f"msprobe report: {path}", False))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print where the files are."""
        for line, is_problem in self._lines:
            terminalreporter.line(one_line(line), red=is_problem)


def _write_csv(path: Path, *, calls: ComparedCalls, policy: str) -> None:
    from pytest_msprobe.modes.compare.reports.table_columns import write_csv

    write_csv(path, calls, columns("tensor", policy, with_stack=False))


def _write_xlsx(path: Path, *, calls: ComparedCalls, policy: str) -> None:
    from pytest_msprobe.modes.compare.reports.xlsx import write_xlsx

    write_xlsx(path, calls, columns("tensor", policy, with_stack=False))


def _write_page(
    path: Path, *, calls: ComparedCalls, pair: InferencePair, summary: InferenceSummary, config: pytest.Config
) -> None:
    from pytest_msprobe.modes.compare.reports.html import write_html

    write_html(
        path,
        calls,
        title=f"{pair.target_path.name} against {pair.golden_path.name}",
        about=f"{counted(len(calls), 'value')} compared token by token, as engine and trainer",
        pairs=[str(pair.target_path)],
        places=[(None, None, display_path(config, pair.target_path))],
        commands=[rerun_step(config)],
        notes=summary.notes(),
        tokens=_tokens(pair, summary),
    )


def _tokens(pair: InferencePair, summary: InferenceSummary) -> dict[str, Any]:
    """Return what the page says token by token: labels, both log probabilities, and what was and was not compared."""
    compared, notes = pair.log_probabilities, set(summary.notes())
    plain: dict[str, Any] = {"lines": [line for line in summary.lines(Counter()) if line not in notes]}
    if compared is None:
        problem = pair.log_probabilities_problem or "a run has neither logits nor noted ones"
        plain["lines"].insert(0, f"no log probabilities of tokens: {problem}")
        return plain | {"labels": [], "target": [], "golden": [], "clip": pair.clip}
    return plain | {
        "labels": [pair.pairs.label(int(pair_number), compared.ahead) for pair_number in compared.pairs],
        "target": [page_number(float(logprob)) for logprob in compared.target],
        "golden": [page_number(float(logprob)) for logprob in compared.golden],
        "clip": pair.clip,
    }
