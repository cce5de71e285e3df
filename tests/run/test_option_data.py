"""Files of options, which a start of pytest reads in place of the modules that declare them.

``python tests/run/test_option_data.py`` writes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from pytest_msprobe.installed_extensions import extensions
from pytest_msprobe.modes.check.features import CheckFeatures
from pytest_msprobe.modes.compare.registry import ComparisonRegistry
from pytest_msprobe.run.mode import ModeRegistry
from pytest_msprobe.run.option_data import COMPARE, FILE, PACKAGE, Row
from pytest_msprobe.run.option_fields import rows
from pytest_msprobe.session_plugin import add_modes


def core_rows() -> list[Row]:
    """Return what the core declares."""
    modes = ModeRegistry()
    add_modes(modes)
    return modes.rows


def extension_rows(extension: ModuleType) -> list[Row]:
    """Return what an extension declares in the hooks that it has."""
    modes, features = ModeRegistry(), CheckFeatures()
    for hook, registry in (
        ("pytest_msprobe_register_modes", modes),
        ("pytest_msprobe_register_check_features", features),
    ):
        getattr(extension, hook, lambda registry: None)(registry)
    parts = [part for part in ComparisonRegistry().options if part.__module__.startswith(f"{extension.__name__}.")]
    return [*modes.rows, *features.rows, *(row for part in parts for row in rows(part, COMPARE))]


def files() -> Iterator[tuple[Path, str]]:
    """Yield each file with the text that it should have; an extension without options has none."""
    for folder, declared in (
        (PACKAGE, core_rows()),
        *((PACKAGE / "extensions" / name, extension_rows(extension)) for name, extension in extensions().items()),
    ):
        if declared:
            yield folder / FILE, json.dumps(declared, indent=1) + "\n"


def test_the_files_have_what_is_declared() -> None:
    written = {file: file.read_text(encoding="utf-8") for file in PACKAGE.rglob(FILE)}
    assert written == dict(files()), "run `python tests/run/test_option_data.py`"


def test_an_extension_that_is_off_offers_no_option(pytester: pytest.Pytester) -> None:
    words = ("-p", "no:msprobe.overflow", "--help")
    assert "--msprobe-overflow-replay" not in pytester.runpytest_inprocess(*words).stdout.str()
    assert "--msprobe-overflow-replay" in pytester.runpytest_inprocess("--help").stdout.str()


DECLARED = """
from __future__ import annotations

from dataclasses import dataclass

from pytest_msprobe.run.mode import DeclaredMode
from pytest_msprobe.run.option_fields import option


@dataclass(frozen=True)
class Own:
    limit: str = option("--own-limit", "limit", metavar="N")


def pytest_msprobe_register_modes(registry):
    registry.add(DeclaredMode("own", "--own", "dump to look at", home="nowhere:Own", options=(Own,)))
"""


def test_a_plugin_adds_the_options_of_a_declared_mode(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(DECLARED)
    own = pytester.runpytest_inprocess("--help").stdout.str().partition("msprobe: own:")[2]
    assert "--own=PATH" in own
    assert "--own-limit=N" in own


def test_an_option_of_a_declared_mode_is_refused_in_runs_of_others(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(DECLARED)
    refused = pytester.runpytest_inprocess("--own-limit=1", "--msprobe-dump=dump.json")
    refused.stderr.fnmatch_lines(["*--own-limit has no effect without --own; pass --own PATH"])


if __name__ == "__main__":
    for path, text in files():
        path.write_text(text, encoding="utf-8")
