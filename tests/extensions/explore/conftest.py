from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from msprobe_hooks.dump.reader import Dump, read_dump
from tests.support.dumps.dump_files import Json, write_dump


@pytest.fixture(autouse=True)
def no_database() -> Iterator[None]:
    """Let no run depend on another one."""
    former = hypothesis.settings.get_current_profile_name()
    hypothesis.settings.register_profile("no-database", database=None)
    hypothesis.settings.load_profile("no-database")
    yield
    hypothesis.settings.load_profile(former)


@pytest.fixture
def dump_of(tmp_path: Path) -> Callable[..., Dump]:
    """Write records as a dump and read it."""

    def make(records: Json) -> Dump:
        return read_dump(write_dump(tmp_path, records))

    return make
