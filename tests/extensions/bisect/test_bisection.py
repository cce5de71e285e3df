"""What two runs of a command that is not deterministic are reported to differ in."""

from __future__ import annotations

import sys

import pytest

from pytest_msprobe.errors import CommandError
from pytest_msprobe.extensions.bisect.bisection import Bisection
from pytest_msprobe.extensions.bisect.command import BisectionJournal, Command, Header, Metric

# The same call in a process that is named otherwise each time.
PROGRAM = """
import multiprocessing, os
multiprocessing.current_process().name = f"worker{os.getpid()}"
import torch
torch.ones(3) * 2
print(1.0)
"""


@pytest.mark.nightly
@pytest.mark.slow
def test_a_call_that_moves_to_another_process_is_reported_with_both():
    header = Header(command="", directory="", to="float64", metric="")
    command = Command([sys.executable, "-c", PROGRAM], "float64", Metric())
    bisection = Bisection(command, BisectionJournal(None, header), [].append)
    with pytest.raises(CommandError, match=r"first Tensor.__mul__.0 of worker\d+ and Tensor.__mul__.0 of worker\d+"):
        bisection.find(None)
