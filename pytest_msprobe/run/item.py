"""Test item of a run, whatever its mode makes of it; mostly a record of a dump."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from msprobe_hooks.dump.call_context import program_place
from msprobe_hooks.dump.names import backward_of, forward_of
from msprobe_hooks.dump.recording_paths import home_of
from msprobe_hooks.messages import id_name
from msprobe_hooks.recording.safety_net import RaisedOnPurpose
from pytest_msprobe.containment.process_state import state_key
from pytest_msprobe.containment.protocols import judge_elsewhere_key
from pytest_msprobe.containment.run_in_process import judge_guarded, judge_in_process
from pytest_msprobe.errors import UserError
from pytest_msprobe.reports.github import failure_text, place_in_words
from pytest_msprobe.reports.junit import drop_properties, verdict_properties
from pytest_msprobe.reports.markdown import labelled, labels_key
from pytest_msprobe.reports.text import one_line, printable
from pytest_msprobe.results.outcomes import Breakdown
from pytest_msprobe.results.result import DirectionResult, failed_without_result, to_plain
from pytest_msprobe.run import marks
from pytest_msprobe.run.hosts import with_host, worker_host_of
from pytest_msprobe.run.item_bases import DeferredItem, FastItem, FunctionAttributes
from pytest_msprobe.run.mode import ReadsFiles
from pytest_msprobe.run.options import options_key
from pytest_msprobe.run.rerun_command import rerun_command
from pytest_msprobe.run.setups import setups_key

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from msprobe_standards.verdict import Verdict


# Thousands of items share a path, and pytest would work it out for each.
_relative_paths_key = pytest.StashKey[dict[Path, str]]()


class PrecisionWarning(RaisedOnPurpose, UserWarning):
    """A result is worse than it should be, but within what its standard fails for."""


class PrecisionError(RaisedOnPurpose, AssertionError):
    """A result is wrong; its text is the whole story, ``result`` what came of the check."""

    # As of pytest's own: the summary of a run has few columns for the reason, and prefixes it with the module.
    __module__ = "builtins"

    def __init__(self, result: DirectionResult, rerun: str, verbosity: int = 0, place: str = "") -> None:
        super().__init__(printable(failure_text(result, rerun, verbosity, place)))
        self.result = result


class JudgedItem(FunctionAttributes, FastItem, ABC):
    """A verdict on what has the item's name in the item's file. A subclass says how it is reached."""

    #: Whether a warning is pytest's as well, apart from being counted.
    announces_warnings = True
    #: Whether the item runs on the device, which is then started before the first of them.
    runs_on_device = False
    #: Whether it may crash, hang or take all memory: ``--msprobe-isolate`` judges it in a child then, and without a
    #: child the process looks after its memory and its device.
    is_isolated = True
    #: What came of it, when it has been judged.
    result: DirectionResult | None = None

    _has_own_marks = False

    def __init__(self, *, name: str, **kwargs: Any) -> None:
        super().__init__(name=id_name(name), **kwargs)

    @abstractmethod
    def judge(self) -> DirectionResult:
        """Judge within the time that the item may take. Raises DumpError where a file is unusable.

        This may happen in another process: what is to be reported goes into the result, not onto the item.
        """

    def properties(self) -> list[tuple[str, str]]:
        """Return what JUnit shows of this item in addition to its verdict."""
        return []

    def mark_names(self) -> list[str]:
        """Return the marks that ``-m`` selects the item by."""
        return []

    def may_be_marked(self, name: str) -> bool:
        """Return whether any item of this kind can have a mark."""
        return True

    def card(self) -> str:
        """Return the card that the item ran on, such as ``npu:3``; empty where it runs on none."""
        return self.config.stash[setups_key].card if self.runs_on_device else ""

    def signature(self) -> Hashable | None:
        """Return what items share of which ``--msprobe-unique`` checks one; None where the item is like no other."""
        return None

    @property
    def has_failed(self) -> bool:
        """Return whether there is a result that is a failure."""
        return self.result is not None and self.result.verdict.outcome == "fail"

    def attach(self, report: Any) -> None:
        """Attach the result of this item to its report, as plain data."""
        if self.result is not None:
            report.msprobe = to_plain(self.result)

    def evaluate(self) -> DirectionResult:
        """Judge, whatever is wrong with what is judged or with its file, and keep what came of it."""
        self.result = self.judge_isolated()
        drop_properties(self.user_properties)
        self.user_properties += [*verdict_properties(self.result), *self.properties()]
        here = worker_host_of(self.config)
        self.user_properties += [] if here is None else [("msprobe.host", here.host)]
        return self.result

    def judge_isolated(self) -> DirectionResult:
        """Judge where a crash, a hang or exhausted memory costs this item alone."""
        state = self.config.stash[state_key]
        if not self.is_isolated:
            return judge_guarded(state, self.name, self.judge)
        judge_elsewhere = self.config.stash.get(judge_elsewhere_key, None)
        return judge_in_process(self, state) if judge_elsewhere is None else judge_elsewhere(self)

    def runtest(self) -> None:
        """Judge. Raises PrecisionError where something is wrong."""
        result = self.evaluate()
        verdict = result.verdict
        if verdict.outcome == "skip":
            pytest.skip(one_line(verdict.reason))
        if verdict.outcome == "fail":
            card = self.card()
            rerun = rerun_command(self.config, home_of(self.path), self.name, card)
            place = place_in_words(with_host(self.config, card), self.config.stash[labels_key][self.path])
            raise PrecisionError(result, rerun, self.config.get_verbosity(), place)
        if verdict.outcome == "warn" and self.announces_warnings:
            try:
                warning = PrecisionWarning(printable(self.warning(verdict)))
                warnings.warn_explicit(warning, PrecisionWarning, *self.warned_at())
            except PrecisionWarning:
                # Who turns warnings into errors wants a failure, here as in pytest's own count.
                self.result = replace(result, verdict=replace(verdict, outcome="fail"))
                raise

    def warning(self, verdict: Verdict) -> str:
        """Return what a warning says; pytest lists equal ones once."""
        return f"{self.name}: {verdict.reason}"

    def warned_at(self) -> tuple[str, int]:
        """Return the file and line that a warning points at; what is no file is named in place of one."""
        return f"{home_of(self.path)}::{printable(self.name)}", 0

    def records(self) -> list[bytes]:
        """Return the undecoded records of the item's call; the time that it may take grows with their elements."""
        return []

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return what is wrong, how much, where, what was allowed, and how to run this item again."""
        # A user may turn warnings into errors; where in this file one is raised is of no use.
        if isinstance(excinfo.value, (PrecisionError, PrecisionWarning)):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Any, int, str]:
        """Return the file, a line for items that a mark skips, and the name with the label of the file."""
        # Where an id ends as this does, pytest -v would print that part with "::" for ".", an id that selects nothing.
        return self.path, 0, labelled(self.name, self.path, self.config.stash[labels_key])

    @cached_property
    def location(self) -> tuple[str, int | None, str]:
        """The file's path below pytest's root, no line, and the name under which the item is reported."""
        paths = self.config.stash.setdefault(_relative_paths_key, {})
        if self.path not in paths:
            paths[self.path] = super().location[0]
        return paths[self.path], None, self.reportinfo()[2]

    def iter_markers_with_node(self, name: str | None = None) -> Iterator[tuple[Any, pytest.Mark]]:
        """Yield the item's marks, made when someone asks: a large file pays for them only with -m or -k."""
        if not self._has_own_marks and (name is None or self.may_be_marked(name)):
            self._has_own_marks = True
            # After what a conftest.py or another plugin has added by now.
            self.own_markers += [getattr(pytest.mark, mark).mark for mark in self.mark_names()]
        return super().iter_markers_with_node(name)


class DumpItem(DeferredItem, JudgedItem):
    """A verdict on one record of a dump; its name is the record's."""

    __slots__ = ("dump",)

    def __init__(self, *, dump: Dump, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dump = dump

    def initialize(self) -> None:
        """Set the item up as pytest does."""
        DumpItem.__init__(self, dump=self.dump, name=self.name, parent=self.parent)

    def warned_at(self) -> tuple[str, int]:
        """Return the line of the user's program in which the call was made, where the dump has it."""
        stack = self.dump.surroundings.stacks.of_call(self.name)
        return program_place(stack or ()) or super().warned_at()

    def mark_names(self) -> list[str]:
        """Return framework, API type, direction and dtypes."""
        return marks.of_record(self.dump, self.name)

    def may_be_marked(self, name: str) -> bool:
        """Return whether it is a mark of records."""
        return name in marks.known()

    def judge_isolated(self) -> DirectionResult:
        """Judge, on another host once the tensor files that it reads have been brought."""
        here = worker_host_of(self.config)
        if here is None:
            return super().judge_isolated()
        try:
            here.fetch_files(self.tensor_files())
        except UserError as error:
            return failed_without_result(self.name, Breakdown.ERROR, str(error))
        result = super().judge_isolated()
        try:
            mode = self.config.stash[options_key].mode
            for folder in mode.folders_written(self.config) if isinstance(mode, ReadsFiles) else ():
                here.send_back(folder)
        except UserError as error:
            return replace(result, notes=(*result.notes, str(error)))
        return result

    def tensor_files(self) -> list[Path]:
        """Return the recorded tensors that the item reads, which another host is sent."""
        return []

    def records(self) -> list[bytes]:
        """Return the item's own record and that of the call's other direction."""
        return records_of_call(self.dump, self.name)


def records_of_call(dump: Dump, record: str) -> list[bytes]:
    """Return the undecoded record of that name, and that of its call's other direction."""
    names = dict.fromkeys([record, forward_of(record), backward_of(record)])
    return [bytes(dump.records[name]) for name in names if name in dump.records]
