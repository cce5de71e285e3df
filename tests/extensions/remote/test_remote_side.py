"""Calls that run in a process elsewhere, next to the same calls here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from msprobe_hooks.dump.names import parse_api_name
from msprobe_hooks.dump.schema import backward_record, forward_record
from msprobe_standards import Policy
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.devices.device import Device
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.calls.remote_calls import LinkError
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.determinism import unequal_bits
from pytest_msprobe.engine.replay.judging.run_outputs import of_target
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.torch_framework import TorchFramework
from pytest_msprobe.engine.values.pytree import tensors_with_paths
from pytest_msprobe.errors import DeviceError
from pytest_msprobe.extensions.remote.remote_device import RemoteDevice
from pytest_msprobe.results.outcomes import BaseSkipReason, Breakdown, SkipReason
from tests.support.conftests import device_after_each_call
from tests.support.dumps.dump_files import forward, tensor, value
from tests.support.hosts.elsewhere import process_elsewhere

X, POSITIVE = tensor(4, 6, requires_grad=True), tensor(4, 6, low=0.5, high=2.0, requires_grad=True)
HALF = tensor(4, 6, dtype="bfloat16", requires_grad=True)

CALLS: dict[str, tuple[Any, Any]] = {
    "Torch.exp": (forward(X), [X]),
    "Functional.linear": (forward(HALF, tensor(5, 6, dtype="bfloat16", requires_grad=True)), [tensor(4, 5)]),
    "Torch.cat": (forward([X, POSITIVE], dim=value(0)), [tensor(8, 6)]),
    "Torch.max": (forward(X, value(1), output=[tensor(4), tensor(4, dtype="int64", low=0, high=5)]), [tensor(4), None]),
    "Tensor.add_": (forward(tensor(4, 6), tensor(4, 6)), None),
    "Tensor.transpose": (forward(X, value(0), value(1)), [tensor(6, 4)]),
    "Tensor.size": (forward(X, output=[]), None),
    "Tensor.to": (forward(X, {"type": "torch.dtype", "value": "torch.float16"}), [X]),
    "Torch.where": (forward(tensor(4, 6, dtype="bool", low=0, high=1), X, POSITIVE), [X]),
    "Torch.linalg.qr": (forward(tensor(6, 4, requires_grad=True)), [tensor(6, 4), tensor(4, 4)]),
    "Functional.dropout": (forward(X, p=value(0.5)), [X]),
}

_FAULTS = """
if "exp.7" in record:
    raise RuntimeError("the kernel failed")
if "exp.8" in record:
    os._exit(3)
if "exp.9" in record:
    raise NotImplementedError("no kernel")
if "exp.10" in record:
    raise torch.OutOfMemoryError("out of memory")
if "exp.11" in record:
    time.sleep(60)
"""


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteDevice]:
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "planted.py").write_text(device_after_each_call(_FAULTS, name="planted"))
    device = RemoteDevice(f"popen//chdir={folder}//plugin=planted//device=planted//timeout=120")
    device.count()
    device.activate(1)
    yield device
    device.close()


def replay(name: str, device: Device, baseline: RemoteDevice | None = None) -> Replay:
    api, _, number = name.partition("#")
    body, gradients = CALLS[api]
    parsed = parse_api_name(f"{api}.{number or 0}.forward")
    backward = None if gradients is None else backward_record(parsed.backward, {"input": gradients, "output": []})
    call = Call(parsed, forward_record(parsed.forward, body), backward, Path())
    return Replay(call, ReplayConfig(device, Policy.load("default"), TorchFramework(), baseline=baseline))


def test_the_card_is_the_chosen_one(elsewhere: RemoteDevice) -> None:
    assert elsewhere.describe().startswith("simulated card 1 of 8")


@pytest.mark.parametrize("name", sorted(CALLS.keys() - {"Functional.dropout"}))
def test_a_call_gives_there_what_it_gives_here(elsewhere: RemoteDevice, name: str) -> None:
    there, here = replay(name, elsewhere), replay(name, CpuDevice())
    for direction in ("forward", "backward"):
        if direction == "backward" and here.call.backward is None:
            continue
        found, own = (of_target(each.trial, direction) for each in (there, here))
        tensors = dict(tensors_with_paths(own))
        assert dict(tensors_with_paths(found)).keys() == tensors.keys()
        for path, each in tensors_with_paths(found):
            assert each.dtype == tensors[path].dtype
            assert not unequal_bits(each, tensors[path]).any()
        a, b = there.judge(direction), here.judge(direction)
        assert (a.verdict, a.skip, a.notes) == (b.verdict, b.skip, b.notes)
    assert there.trial.target.written == here.trial.target.written
    assert there.trial.target.returned_at() == here.trial.target.returned_at()


def test_a_random_call_is_judged_by_its_draws_and_by_its_run_without_them(elsewhere: RemoteDevice) -> None:
    there = replay("Functional.dropout", elsewhere)
    forward, backward = there.forward(), there.backward()
    assert (forward.outcome, backward.outcome) == ("pass", "pass")
    assert any(output.path.startswith("not_random.") for output in backward.outputs)


def test_gradients_are_those_of_their_own_call_whatever_has_run_there_since(elsewhere: RemoteDevice) -> None:
    first, second = replay("Torch.exp", elsewhere), replay("Torch.where", elsewhere)
    for each in (first, second):
        assert each.forward().outcome == "pass"
    for each, name in ((first, "Torch.exp"), (second, "Torch.where")):
        own = replay(name, CpuDevice()).trial.target_gradients
        assert {path: gradient is not None for path, gradient in each.trial.target_gradients.items()} == {
            path: gradient is not None for path, gradient in own.items()
        }
        assert each.backward().outcome == "pass"


def test_gradients_are_those_of_their_own_call_though_another_has_failed_since(elsewhere: RemoteDevice) -> None:
    first = replay("Torch.exp", elsewhere)
    assert first.forward().outcome == "pass"
    assert replay("Torch.exp#7", elsewhere).forward().outcome != "pass"
    assert first.backward().outcome == "pass"


def test_an_error_of_the_kernel_there_is_the_records_failure(elsewhere: RemoteDevice) -> None:
    result = replay("Torch.exp#7", elsewhere).forward()
    assert result.breakdown is Breakdown.RUN
    assert "RuntimeError: the kernel failed" in result.verdict.reason


def test_a_missing_kernel_and_memory_that_runs_out_there_are_reported_as_here(elsewhere: RemoteDevice) -> None:
    assert replay("Torch.exp#9", elsewhere).forward().skip is SkipReason.UNSUPPORTED
    assert replay("Torch.exp#10", elsewhere).forward().breakdown is Breakdown.OOM


def test_a_process_that_dies_costs_its_record_and_no_other(elsewhere: RemoteDevice) -> None:
    earlier = replay("Torch.exp", elsewhere)
    assert earlier.forward().outcome == "pass"
    result = replay("Torch.exp#8", elsewhere).forward()
    assert (result.outcome, result.breakdown) == ("crash", Breakdown.CRASH)
    assert "ended with status 3 in this record" in result.verdict.reason
    assert earlier.backward().outcome == "pass"
    assert replay("Torch.exp", elsewhere).forward().outcome == "pass"


class Counted(RemoteDevice):
    """Counts the bytes that are sent."""

    sent = 0

    def ask(self, request: Any, answer: Any, blobs: Any = (), *, limit: float = 0) -> Any:
        self.sent += sum(blob.nbytes for blob in blobs)
        return super().ask(request, answer, blobs, limit=limit)


@pytest.mark.slow
@pytest.mark.parametrize("alike", [True, False], ids=["alike", "unlike"])
def test_inputs_are_drawn_there_again_and_sent_only_where_they_are_others(tmp_path: Path, *, alike: bool) -> None:
    draws_others = "import torch\nfrom pytest_msprobe.engine.replay.calls import arguments\n"
    draws_others += "own = arguments.random_tensor\n"
    draws_others += "arguments.random_tensor = lambda *args: own(*args) * 0.5\n"
    (tmp_path / "planted.py").write_text("" if alike else draws_others)
    device = Counted(f"popen//chdir={tmp_path}//plugin=planted//device=cpu//inputs=drawn")
    device.count()
    device.activate(0)
    there, here = replay("Torch.where", device), replay("Torch.where", CpuDevice())
    assert torch.equal(there.trial.target.output, here.trial.target.output)
    device.close()
    assert device.sent == (0 if alike else 24 + 2 * 96)


X_FORM = "TensorForm('torch.float32', (4, 6), (6, 1))"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (f"Ran(AtTensor(0), {{}}, [], [], [{X_FORM}]), bytes(95)", "95 bytes as torch.float32"),
        (f"Ran(AtTensor(1), {{}}, [], [], [{X_FORM}]), bytes(96)", "tensor 1 of 1"),
        (f"Ran(AtTensor(0), {{'args.0': 1}}, [], [], [{X_FORM}]), bytes(96)", "list index out of range"),
        (f"Ran(AtTensor(0), {{}}, ['args.0'], [], [{X_FORM}]), bytes(96)", "that was written to and is not there"),
        (f"Ran(AtTensor(0), {{}}, [], [], [{X_FORM}, {X_FORM}]), bytes(96)", "1 tensors, of which 2 are declared"),
        ("Ran(AtTensor(0), {}, [], [], [TensorForm('torch.float32', (2**60,), (0,))]), bytes(4)", "larger than is"),
        ("Skipped('BECAUSE', '')", "the reason 'BECAUSE'"),
        ("Failed('error', 'x' * 10**6)", "could not run it: xxx"),
    ],
)
def test_an_answer_that_cannot_be_is_no_verdict(tmp_path: Path, answer: str, problem: str) -> None:
    device = process_elsewhere(tmp_path, f"ask()\nsend({answer})\nask()")
    device.count()
    device.activate(0)
    result = replay("Torch.exp", device).forward()
    device.close()
    assert result.breakdown is Breakdown.ERROR
    assert problem in result.verdict.reason
    assert len(result.verdict.reason) < 3000


class OtherSkip(BaseSkipReason):
    """Declared as an extension does."""

    BUSY = "the others are busy"


def test_a_reason_that_an_extension_declares_comes_back_as_itself(tmp_path: Path) -> None:
    device = process_elsewhere(tmp_path, "ask()\nsend(Skipped('the others are busy', 'until noon'))\nask()")
    device.count()
    device.activate(0)
    result = replay("Torch.exp", device).forward()
    device.close()
    assert result.skip is OtherSkip.BUSY
    assert result.verdict.reason == "the others are busy: until noon"


@pytest.mark.slow
def test_a_baseline_that_dies_is_reported_and_the_next_one_has_a_new_process(elsewhere: RemoteDevice) -> None:
    trial = replay("Torch.exp#8", CpuDevice(), baseline=elsewhere).trial
    with pytest.raises(LinkError):
        trial.remote_run
    after = replay("Torch.exp", CpuDevice(), baseline=elsewhere).trial
    assert torch.equal(after.remote_run.output.detach(), after.target.output.detach())
    for path, gradient in after.remote_gradients.items():
        assert gradient is not None
        assert torch.equal(gradient, after.target_gradients[path])


def test_a_function_of_this_process_cannot_travel(elsewhere: RemoteDevice) -> None:
    subject = replay("Torch.exp", CpuDevice()).trial.subject
    trial = Trial(replace(subject, origin=None), elsewhere)
    with pytest.raises(DeviceError, match="runs recorded calls only"):
        trial.target
