"""Brings a kind of run of its own: calls that hold a dtype which the target computes slowly, or not at all, fail."""

from __future__ import annotations

import re

from msprobe_standards import Verdict
from pytest_msprobe.reports.summary import Summary
from pytest_msprobe.results.result import DirectionResult
from pytest_msprobe.run.item import DumpItem
from pytest_msprobe.run.mode import JournalFacts

DTYPE = re.compile(rb'"dtype": ?"torch\.(\w+)"')


class DtypeItem(DumpItem):
    """One record, whose tensors' dtypes are looked at."""

    def judge(self):
        found = sorted({dtype.decode() for dtype in DTYPE.findall(bytes(self.dump.records[self.name]))})
        forbidden = [dtype for dtype in found if dtype in self.config.getoption("forbid_dtype")]
        if forbidden:
            return DirectionResult(self.name, Verdict("fail", "dtypes", f"holds {', '.join(forbidden)}"))
        return DirectionResult(self.name, Verdict("pass", "dtypes", f"holds {', '.join(found) or 'no tensor'}"))


class DtypesMode:
    """``--dtypes-of dump.json --forbid-dtype float64``."""

    name = "dtypes"
    flag = "--dtypes-of"
    flag_help = "dump whose dtypes to look at"
    shared_options = ()  # such as ("--msprobe-html",), where the mode writes a page

    def add_options(self, group):
        group.addoption("--forbid-dtype", action="append", default=[], metavar="DTYPE", help="dtype that fails")

    def read_options(self, config, *, is_chosen):
        pass  # pytest has read them; a mode may check and keep them here

    def needs_device(self, config):
        return False

    def open(self, config, dumps):
        pass  # the dumps themselves are all that is needed

    def header(self, config):
        return [f"dtypes: {', '.join(config.getoption('forbid_dtype')) or 'none'} forbidden"]

    def reporters(self, config):
        return {"dtypes-summary": Summary(module_records=0, kind="records")}

    def journal_facts(self, config):
        return JournalFacts({"forbidden": ", ".join(config.getoption("forbid_dtype"))})

    def items(self, file, dump):
        return [DtypeItem.from_parent(file, name=name, dump=dump) for name in dump.records]

    def rerun_words(self, config):
        return [word for dtype in config.getoption("forbid_dtype") for word in ("--forbid-dtype", dtype)]


def pytest_msprobe_register_modes(registry):
    registry.add(DtypesMode())
