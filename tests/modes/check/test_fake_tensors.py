"""Records of what torch traced or compiled, in dumps of others and of older versions."""

from __future__ import annotations

import pytest

from tests.support.dumps.dump_files import Json, forward, tensor, value, write_dump
from tests.support.runs import check

FAKE = "torch._subclasses.fake_tensor.FakeTensor"


def fake(**fields: object) -> Json:
    return tensor(4, 8, low=None, high=None, type=FAKE, **fields)


def test_a_call_of_fake_tensors_is_skipped_and_its_gradients_too(pytester: pytest.Pytester) -> None:
    records = {
        "Tensor.stride.0.forward": forward(fake(), output=[value(8), value(1)]),
        "Torch.ones.0.forward": forward(value(4), value(8), output=[fake()]),
        "Functional.softmax.0.forward": forward(fake(requires_grad=True), dim=value(-1)),
        "Functional.softmax.0.backward": {"input": [fake()], "output": [fake()]},
        "Torch.tanh.0.forward": forward(tensor(4, 8)),
    }
    checked = check(pytester, "--msprobe-dump", write_dump(pytester.path / "run", records))
    assert checked.outcomes == {name: "passed" if "tanh" in name else "skipped" for name in records}
    reason = "a compiler or tracer made this call: its tensors are FakeTensors, which have no values"
    assert f"4 skipped: {reason}" in checked.output
