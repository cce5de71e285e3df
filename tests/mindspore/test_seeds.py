"""Making a run of MindSpore repeatable, in processes of its own: what it changes in MindSpore stays changed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mindspore")

from msprobe_hooks import ConfigError
from msprobe_hooks.mindspore import seed_all

ROOT = Path(__file__).parents[2]

DROPOUTS = """
import sys
import numpy as np
import mindspore as ms
from mindspore import Tensor, mint, nn, ops
from msprobe_hooks.mindspore import seed_all

before = nn.SequentialCell(nn.Dropout(p=0.5), nn.Dropout2d(0.5)).set_train()
seed_all(7, rm_dropout=sys.argv[1] == "removed")


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.two = nn.SequentialCell(nn.Dropout(p=0.5), nn.Dropout2d(0.5))
        self.three = nn.Dropout3d(0.5)
        self.primitive = ops.Dropout(keep_prob=0.5)

    def construct(self, x):
        x = ops.dropout2d(ops.dropout(self.two(x), 0.5), p=0.5)
        x = ops.dropout3d(self.three(x.expand_dims(0)), 0.5).squeeze(0)
        return self.primitive(x)[0]


x = Tensor(np.random.default_rng(0).normal(size=(2, 3, 4, 4)).astype(np.float32))
for mode in (ms.PYNATIVE_MODE, ms.GRAPH_MODE):
    ms.set_context(mode=mode)
    print(np.array_equal(Net().set_train()(x).asnumpy(), x.asnumpy()))
    print(np.array_equal(before(x).asnumpy(), x.asnumpy()))
ms.set_context(mode=ms.PYNATIVE_MODE)
print(np.array_equal(ms.grad(lambda x: nn.Dropout(p=0.5).set_train()(x).sum())(x).asnumpy(), np.ones(x.shape)))
if sys.argv[1] == "removed":  # The CPU has no kernels for these.
    functional = mint.nn.functional
    for dropout in (functional.dropout, functional.dropout2d, mint.nn.Dropout(0.5), mint.nn.Dropout2d(0.5)):
        print(np.array_equal(dropout(x).asnumpy(), x.asnumpy()))
"""


@pytest.mark.parametrize(("dropout", "is_kept"), [("removed", ["True"] * 9), ("wanted", ["False"] * 5)])
def test_dropout_keeps_all_elements_only_where_it_is_to_be_removed(
    tmp_path: Path, dropout: str, is_kept: list[str]
) -> None:
    # MindSpore compiles nothing that does not stand in a file.
    script = tmp_path / "dropouts.py"
    script.write_text(DROPOUTS)
    paths = os.pathsep.join([str(ROOT / "hook_lib"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, script, dropout],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == is_kept


@pytest.mark.parametrize(("key", "value"), [("seed", -1), ("mode", 1), ("rm_dropout", None)])
def test_wrong_arguments_are_refused(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{key} is {value}"):
        seed_all(**{key: value})  # type: ignore[arg-type]
