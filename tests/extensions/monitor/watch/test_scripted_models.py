"""What scripting needs of torch while a model is monitored and recorded."""

from __future__ import annotations

import subprocess
import sys

import pytest

RESTORED = """
import sys
import torch
from torch.jit import _recursive
from msprobe_hooks import record, watch

def codes():
    return [_recursive.infer_concrete_type_builder.__code__, _recursive.get_hook_stubs.__code__]

original = codes()
net = torch.nn.Linear(4, 1)
watched = watch(net, torch.optim.SGD(net.parameters(), lr=0.1), f"{sys.argv[1]}/watched")
with record(f"{sys.argv[1]}/recorded", "L0", model=net):
    watched.__enter__()
during = codes()
watched.__exit__(None, None, None)
print(during == original, codes() == original)
"""


@pytest.mark.slow  # a process that loads torch
def test_functions_of_torch_are_restored_when_the_last_instrument_ends(tmp_path):
    # Other tests leave instruments that end with the process.
    run = subprocess.run([sys.executable, "-c", RESTORED, tmp_path], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "True"]
