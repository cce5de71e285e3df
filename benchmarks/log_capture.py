"""What pytest's log capture costs an item where libraries have loggers that do not propagate, as torch has 42.

Each of 2 000 tests does nothing. In each of its three phases pytest attaches two handlers to every such logger and
takes them off again, so that the cost grows with loggers times tests. Python's calls are counted by `sys.setprofile`.
"""

from __future__ import annotations

import statistics
from functools import partial
from pathlib import Path

from measure import Run, by_turns, pytest_words, run, scratch, table

_TESTS = 2000

CONFTEST = """
import logging, os, sys
for number in range(int(os.environ["LOGGERS"])):
    logging.getLogger(f"library.part{number}").propagate = False

calls = 0

def count(frame, event, argument):
    global calls
    calls += event == "call"

def pytest_runtest_protocol(item):
    if os.environ.get("COUNT"):
        sys.setprofile(count)

def pytest_unconfigure():
    sys.setprofile(None)
    print("calls:", calls)
"""


def written() -> Path:
    """Return a file of tests that do nothing, beside a conftest.py with loggers that do not propagate."""
    folder = scratch() / "log-capture"
    folder.mkdir(exist_ok=True)
    (folder / "conftest.py").write_text(CONFTEST)
    tests = folder / "test_nothing.py"
    tests.write_text(f"import pytest\n\n@pytest.mark.parametrize('_', range({_TESTS}))\ndef test_it(_): pass\n")
    return tests


def main() -> None:
    """Print milliseconds of CPU and calls of Python functions per test, by the number of loggers."""
    words = pytest_words(written())
    settings = {f"{loggers} loggers": {"LOGGERS": str(loggers)} for loggers in (0, 42, 420)}
    settings["42 loggers, -p no:logging"] = {"LOGGERS": "42"}
    commands = {name: [*words, *(("-p", "no:logging") if "no:" in name else ())] for name in settings}
    runs = by_turns({name: partial(run, commands[name], env=env) for name, env in settings.items()}, 3)
    rows = [
        [name, f"{statistics.median(each.cpu for each in done) / _TESTS * 1e3:.2f}", f"{calls_of(counted):.0f}"]
        for name, done in runs.items()
        for counted in [run(commands[name], env={**settings[name], "COUNT": "1"})]
    ]
    print(table(["", "CPU ms per test, start-up included", "calls of Python per test"], rows))


def calls_of(counted: Run) -> float:
    return int(counted.output.rpartition("calls: ")[2].split()[0]) / _TESTS


if __name__ == "__main__":
    main()
