"""The user guide names every option and every ini setting."""

from __future__ import annotations

from pathlib import Path

import pytest

_GUIDE = (Path(__file__).parents[2] / "docs" / "user-guide.md").read_text()


def _options(config: pytest.Config) -> list[str]:
    registered = config._parser._groups  # pytest lists its options nowhere in public
    return [name for group in registered for option in group.options for name in option.names()]


def test_every_option_stands_in_the_user_guide(pytestconfig: pytest.Config) -> None:
    ours = [name for name in _options(pytestconfig) if name.startswith("--msprobe-")]
    assert len(ours) > 30
    assert [name for name in ours if f"| `{name}" not in _GUIDE and f", `{name}" not in _GUIDE] == []


def test_every_ini_setting_stands_in_the_user_guide(pytestconfig: pytest.Config) -> None:
    ours = [name for name in pytestconfig._parser._inidict if name.startswith("msprobe_")]
    assert len(ours) > 5
    assert [name for name in ours if f"`{name}`" not in _GUIDE] == []
