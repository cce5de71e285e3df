"""What a process says of faults that were planted into simulated cards."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

RUN = """
from tests.support.cann import faults
struck = faults.planted("aten::exp")
assert struck.now(0) == "wrong"
faults.planted("aten::mm").now(0)
"""


@pytest.mark.slow
def test_a_fault_that_no_call_reached_is_named_at_the_end() -> None:
    environment = os.environ | {"SIMULATED_CANN_FAULTS": "exp=wrong,softmax=fails,mm=wrong-once:3"}
    done = subprocess.run([sys.executable, "-c", RUN], env=environment, capture_output=True, text=True, check=True)
    lines = done.stderr.splitlines()
    assert [line.partition(" reached ")[2].partition(";")[0] for line in lines] == ["softmax=fails", "mm=wrong-once"]
