"""API records as items that are replayed on the device and judged."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from msprobe_hooks.dump.names import api_record, parse_api_name, split_direction
from msprobe_hooks.errors import RecordError
from pytest_msprobe.extensions.fast_path.preselection import preselect
from pytest_msprobe.modes.check.checker import checker_of
from pytest_msprobe.results.left_open import left_open_of
from pytest_msprobe.results.result import LITTLE_JUDGED
from pytest_msprobe.run.item import DumpItem
from pytest_msprobe.run.setups import setups_key

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.results.result import DirectionResult


class RecordItem(DumpItem):
    """The check of one API record."""

    runs_on_device = True

    def judge(self) -> DirectionResult:
        """Return the policy's verdict on the record."""
        return checker_of(self.config).check(self.dump, self.name)

    def tensor_files(self) -> list[Path]:
        """Return the files of the call's inputs, and of the baseline's tensors."""
        return checker_of(self.config).tensor_files(self.dump, self.name)

    def properties(self) -> list[tuple[str, str]]:
        """Return device, math modes and seed, why a verdict says little and how much of a result is left open."""
        extras = {} if self.result is None else self.result.extras
        found = {"little_judged": extras.get(LITTLE_JUDGED), "left_open": left_open_of(extras)}
        own = [(f"msprobe.{name}", str(value)) for name, value in found.items() if value]
        return [*own, *self.config.stash[setups_key].properties]

    def signature(self) -> Hashable | None:
        """Return the API and all inputs but the values of their tensors; None for a backward record."""
        key, direction = split_direction(self.name)
        if direction == "backward":
            return None
        try:
            body = self.dump.body(self.name)
            api = parse_api_name(self.name).qualified_api
            inputs = [body.get("input_args"), body.get("input_kwargs")]
        except (RecordError, ValueError, AttributeError):
            return None
        has_backward = api_record(key, "backward") in self.dump.records
        return api, has_backward, msgspec.json.encode(_without_values(inputs))


_TENSOR_VALUES = re.compile(r"Max|Min|Mean|Norm|(Max|Min)_except_inf_nan|md5|data_name|datapath")


def _without_values(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_without_values(item) for item in tree]
    if isinstance(tree, dict):
        is_tensor = "shape" in tree and "dtype" in tree
        return {
            key: _without_values(value)
            for key, value in tree.items()
            if not (is_tensor and _TENSOR_VALUES.fullmatch(key))
        }
    return tree


def checked_records(file: pytest.File, dump: Dump) -> Iterator[RecordItem]:
    """Return an item for each API record that is asked for; a call's backward item follows its forward item."""
    return RecordItem.deferred(file, preselect(file, dump, checked_names(dump)), dump=dump)


def checked_names(dump: Dump) -> Iterator[str]:
    """Yield the names of a dump's API records; a call's backward record follows its forward record."""
    records = dump.records
    for name in dump.api_names:
        key, direction = split_direction(name)
        if direction == "backward" and api_record(key, "forward") in records:
            continue
        yield name
        backward = api_record(key, "backward")
        if direction == "forward" and backward in records:
            yield backward
