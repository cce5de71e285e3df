"""The command itself."""

from __future__ import annotations

from importlib.metadata import version

import pytest

from pytest_msprobe.commands.main import main


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"pytest-msprobe {version('pytest-msprobe')}\n"
