"""pytest, which rewrites all modules of an installed plugin, leaves ours as pip has compiled them."""

from __future__ import annotations

import sys

import pytest

# What pytest does at its start with the distribution of an installed plugin.
MARKED = """
import pytest
pytest.register_assert_rewrite("pytest_msprobe", "msprobe_hooks", "msprobe_standards")
"""

LOADERS = """
import sys

def pytest_unconfigure():
    ours = ("pytest_msprobe", "msprobe_hooks", "msprobe_standards")
    loaders = {
        type(module.__spec__.loader).__name__
        for name, module in sys.modules.items()
        if name.partition(".")[0] in ours and name != "pytest_msprobe"
    }
    print("loaders:", *loaders)
"""

TWICE = """
import pytest
for _ in range(2):
    assert pytest.main(["-q", "-W", "error", "-p", "marked", "test_it.py"]) == 0
"""


@pytest.fixture(autouse=True)
def _marked(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makepyfile(marked=MARKED, loaders=LOADERS, test_it="def test_it(): pass")
    monkeypatch.setenv("PYTHONPATH", str(pytester.path), prepend=":")


def test_our_modules_are_loaded_from_their_own_bytecode(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("-p", "marked", "-p", "loaders", "test_it.py")
    result.stdout.fnmatch_lines(["loaders: SourceFileLoader"])


def test_a_second_run_in_one_process_warns_of_nothing(pytester: pytest.Pytester) -> None:
    assert pytester.run(sys.executable, "-c", TWICE).ret == 0
