"""The step of an optimizer, computed twice."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import msprobe_hooks
from msprobe_hooks.dump.reader import read_dump
from msprobe_hooks.errors import ConfigError, DifferingStepError
from msprobe_hooks.extensions.repeated_steps.step_repeat import StepRepeat
from tests.support.dumps.bit_flips import FlippedBit
from tests.support.runs import check

MakeOptimizer = Callable[[Iterable[Tensor]], torch.optim.Optimizer]


def adamw(**options: Any) -> MakeOptimizer:
    return lambda parameters: torch.optim.AdamW(parameters, 0.01, **options)


def muon(parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    """Return what has a momentum in float32 and computes in bfloat16, for matrices alone."""
    return torch.optim.Muon([one for one in parameters if one.dim() == 2], 0.01)


has_muon = pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon")


def train(
    folder: Path,
    make: MakeOptimizer = torch.optim.AdamW,
    *,
    steps: int = 5,
    scaled: bool = False,
    watch: bool = True,
    **options: Any,
) -> tuple[list[Tensor], StepRepeat]:
    """Return what a training has learned, and what watched it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
    optimizer = make(model.parameters())
    rates = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    scaler = torch.amp.GradScaler("cpu", enabled=scaled)
    mean = torch.optim.swa_utils.AveragedModel(model)
    optimizer.register_step_post_hook(lambda *_: mean.update_parameters(model))
    watched = {"optimizer": optimizer} if watch else {}
    replay = msprobe_hooks.replay_step(model, every=1, folder=folder, **{**watched, **options})
    for _ in range(steps):
        optimizer.zero_grad()
        x = torch.randn(3, 4)

        def forward_backward(x: Tensor = x) -> None:
            scaler.scale(model(x).square().mean()).backward()

        replay(forward_backward)
        scaler.step(optimizer)
        scaler.update()
        rates.step()
    return [*model.state_dict().values(), *mean.state_dict().values()], replay


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        adamw(foreach=False),
        adamw(foreach=True, amsgrad=True),
        adamw(fused=True),
        lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9, foreach=True),
        torch.optim.NAdam,
        torch.optim.Adafactor,
        pytest.param(muon, marks=has_muon),
    ],
)
def test_a_training_keeps_its_bits(tmp_path: Path, make: MakeOptimizer, scaled: bool) -> None:
    plain, _ = train(tmp_path, make, scaled=scaled, watch=False)
    watched, replay = train(tmp_path, make, scaled=scaled)
    assert (replay.report.optimizer_steps, replay.report.differences) == (3, [])
    assert all(map(torch.equal, plain, watched))


@pytest.mark.parametrize(
    ("make", "operator", "number", "odd", "named"),
    [
        # Two steps that are not watched, and the third, which is made twice.
        (adamw(foreach=True), "_foreach_addcdiv_", 3, 1, "aten._foreach_addcdiv_.ScalarList"),
        (adamw(foreach=True), "_foreach_addcdiv_", 4, 2, "aten._foreach_addcdiv_.ScalarList"),
        (adamw(fused=True), "_fused_adamw_", 3, 1, "aten._fused_adamw_.default"),
        (adamw(fused=True), "_fused_adamw_", 4, 2, "aten._fused_adamw_.default"),
        # Four parameters in each step.
        (adamw(foreach=False), "addcdiv_", 9, 1, "aten.addcdiv_.default"),
        (adamw(foreach=False), "addcdiv_", 13, 2, "aten.addcdiv_.default"),
    ],
)
def test_a_flipped_bit_is_named_with_the_parameter_and_does_not_stay(
    tmp_path: Path, make: MakeOptimizer, operator: str, number: int, odd: int, named: str
) -> None:
    right, _ = train(tmp_path, make)
    with FlippedBit(operator, number) as card:
        learned, replay = train(tmp_path, make)
    assert card.calls > number
    (found,) = replay.report.differences
    assert (found.kind, found.step, found.optimizer, found.odd_pass) == ("wrong", 2, "AdamW", odd)
    assert found.values == ["0.weight"]
    assert found.call is not None
    assert found.call.operator == named
    assert found.call.source.startswith(__file__)
    # The mean of the parameters was taken from what two steps agree on as well.
    assert all(map(torch.equal, right, learned))


@has_muon
@pytest.mark.parametrize(
    ("operator", "number", "odd"),
    # Two calls of each pass of the model, and ten of a matrix, before the third step 44, before its optimizer 48.
    [("lerp_", 5, 1), ("lerp_", 7, 2), ("addmm", 49, 1), ("addmm", 88, 2)],
)
def test_a_bit_that_flips_in_muon_is_named_with_its_matrix(
    tmp_path: Path, operator: str, number: int, odd: int
) -> None:
    right, _ = train(tmp_path, muon)
    with FlippedBit(operator, number, bit=12):
        learned, replay = train(tmp_path, muon)
    (found,) = replay.report.differences
    assert (found.kind, found.step, found.optimizer, found.odd_pass) == ("wrong", 2, "Muon", odd)
    assert found.call is not None
    assert found.call.operator.startswith(f"aten.{operator}.")
    assert found.call.wrong_values.endswith(("bit 12", "bit 12 of one element"))
    assert all(map(torch.equal, right, learned))


class CompiledDescent(torch.optim.Optimizer):
    """Descends by a compiled function; what it is compiled to rounds in its own way, and is once wrong.

    Of four parameters, calls 9 and 13 are the first of both passes of step 2, which is the first that is watched.
    """

    def __init__(self, parameters: Iterable[Tensor], flipped: int = 0) -> None:
        super().__init__(parameters, {"lr": 0.1})
        self.calls = 0
        self.flipped = flipped
        self._update = torch.compile(lambda gradient: gradient * 0.1, backend=self._backend, dynamic=True)

    def _backend(self, *_: Any) -> Callable[..., tuple[Tensor]]:
        def update(*values: Any) -> tuple[Tensor]:
            self.calls += 1
            (gradient,) = (value for value in values if isinstance(value, Tensor))
            return (gradient * (0.1000001 + (self.calls == self.flipped)),)

        return update

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Descend."""
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter -= self._update(parameter.grad)


@pytest.mark.parametrize(("flipped", "odd"), [(0, None), (9, 1), (13, 2)])
def test_an_optimizer_that_compiles_runs_compiled_and_is_compared_as_a_whole(
    tmp_path: Path, flipped: int, odd: int | None
) -> None:
    torch._dynamo.reset()
    plain, _ = train(tmp_path, CompiledDescent, watch=False)
    learned, replay = train(tmp_path, lambda parameters: CompiledDescent(parameters, flipped))
    assert all(map(torch.equal, plain, learned))
    assert replay.report.optimizer_steps == 3
    assert "compared as wholes, as they are compiled: optimizer CompiledDescent" in str(replay)
    assert [(found.kind, found.step, found.odd_pass) for found in replay.report.differences] == (
        [] if odd is None else [("wrong", 2, odd)]
    )
    assert all("(calls not compared: the optimizer is compiled)" in one.reason for one in replay.report.differences)


def test_an_optimizer_is_compared_call_by_call_next_to_one_that_compiles(tmp_path: Path) -> None:
    torch._dynamo.reset()
    model = nn.Linear(4, 2)
    optimizers = [CompiledDescent([model.weight]), torch.optim.SGD([model.bias], 0.1)]
    replay = msprobe_hooks.replay_step(model, every=1, folder=tmp_path, optimizer=optimizers)
    for _ in range(5):
        model.zero_grad()
        replay(lambda: model(torch.ones(3, 4)).square().mean().backward())
        for optimizer in optimizers:
            optimizer.step()
    assert replay.report.compiled == ["optimizer CompiledDescent"]
    assert replay.report.optimizer_steps == 6


@pytest.mark.parametrize(
    ("make", "operator", "number", "keep_values"),
    [
        (adamw(foreach=True), "_foreach_addcdiv_", 4, False),
        (adamw(foreach=True), "_foreach_addcdiv_", 3, True),
        (adamw(fused=True), "_fused_adamw_", 4, False),
        (adamw(foreach=False), "addcdiv_", 13, False),
    ],
)
def test_the_wrong_operator_of_a_step_is_a_case_that_the_printed_commands_check(
    pytester: pytest.Pytester, make: MakeOptimizer, operator: str, number: int, keep_values: bool
) -> None:
    with FlippedBit(operator, number, bit=25):
        _, replay = train(Path("repeats"), make, keep_values=keep_values)
    (found,) = replay.report.differences
    assert found.call is not None
    assert found.call.wrong_values.startswith("1 of 24 elements, first [0, 0]: ")
    assert found.call.wrong_values.endswith(", bit 25")
    printed = re.findall("pytest (--msprobe[^,;]+)", found.reason)
    right, compared = (check(pytester, *command.split()) for command in printed)
    assert right.exit_code == 0
    assert compared.wrong == {f"Aten.{found.call.operator.removeprefix('aten.')}.0.forward"}


@pytest.mark.parametrize("foreach", [True, False])
def test_the_recorded_inputs_and_results_are_those_of_the_wrong_call(tmp_path: Path, foreach: bool) -> None:
    with FlippedBit("_foreach_addcdiv_" if foreach else "addcdiv_", 4 if foreach else 13):
        train(tmp_path / "repeats", adamw(foreach=foreach))
    right, wrong = (
        json.loads((tmp_path / folder / "step2/rank/dump.json").read_text())["data"]
        for folder in ("repeats", "repeats-wrong")
    )
    ((name, record),) = right.items()

    def tensor(folder: str, element: Any) -> Tensor:
        found: Tensor = torch.load(tmp_path / folder / "step2/rank/dump_tensor_data" / element["data_name"])
        return found.double()

    def first(elements: Any) -> Any:
        return elements[0] if foreach else elements

    parameter, average, root = (first(one) for one in record["input_args"][:3])
    step = first(record["input_args"][3] if foreach else record["input_kwargs"]["value"])
    before, average, root = (tensor("repeats", one) for one in (parameter, average, root))
    after = tensor("repeats", record["output"][0])
    # addcdiv_ is self + value * tensor1 / tensor2.
    torch.testing.assert_close(after, before + step["value"] * average / root, rtol=1e-6, atol=0)
    differs = tensor("repeats-wrong", wrong[name]["output"][0]) != after
    assert differs.nonzero().tolist() == [[0, 0]]


def test_a_wrong_pass_and_a_wrong_step_of_one_number_are_two_cases(tmp_path: Path) -> None:
    with FlippedBit("tanh", 4), FlippedBit("_fused_adamw_", 4):
        _, replay = train(tmp_path / "repeats", adamw(fused=True))
    first, second = (each.call for each in replay.report.differences)
    assert first is not None
    assert second is not None
    assert (first.dump, second.dump) == tuple(f"{tmp_path}/repeats/{part}step2/rank" for part in ("", "2/"))
    assert list(read_dump(Path(second.dump or "") / "dump.json").records) == ["Aten._fused_adamw_.default.0.forward"]


def test_without_calls_the_step_of_an_optimizer_is_known_by_its_values_alone(tmp_path: Path) -> None:
    with FlippedBit("_fused_adamw_", 3):
        _, replay = train(tmp_path, adamw(fused=True), calls=False)
    (found,) = replay.report.differences
    assert (found.odd_pass, found.values, found.call) == (1, ["0.weight"], None)
    assert "(calls not compared: calls=False)" in found.reason


def test_a_scheduler_may_be_made_after_the_steps_are_watched(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    replay = msprobe_hooks.replay_step(model, every=1, folder=tmp_path, optimizer=optimizer)
    rates = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    with FlippedBit("add_", 7):
        for _ in range(3):
            replay(lambda: model(torch.ones(1, 4)).sum().backward())
            optimizer.step()
            rates.step()
    (found,) = replay.report.differences
    assert found.call is not None
    assert found.call.operator == "aten.add_.Tensor"
    assert not recwarn.list


def test_a_step_that_raises_leaves_nothing_behind(tmp_path: Path) -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    replay = msprobe_hooks.replay_step(model, every=1, folder=tmp_path, optimizer=optimizer)
    for _ in range(3):
        replay(lambda: model(torch.ones(1, 4)).sum().backward())
    optimizer.param_groups[0]["lr"] = "fast"
    with FlippedBit("add_", 100), pytest.raises(TypeError):
        optimizer.step()
    assert torch._C._len_torch_dispatch_stack() == 0


def test_a_wrong_state_is_named(tmp_path: Path) -> None:
    with FlippedBit("_foreach_lerp_", 4):
        _, replay = train(tmp_path, adamw(foreach=True))
    (found,) = replay.report.differences
    assert found.values == ["0.weight", "exp_avg of 0.weight"]
    assert "optimizer AdamW: aten._foreach_lerp_.Scalar (call " in str(replay)


def test_a_step_of_an_optimizer_that_differs_ends_the_training_on_request(tmp_path: Path) -> None:
    with FlippedBit("_fused_adamw_", 3), pytest.raises(DifferingStepError, match=r"^step 2 \(cpu of .*optimizer AdamW"):
        train(tmp_path, adamw(fused=True), on_difference="stop")


def test_a_step_with_a_closure_is_counted_as_not_compared(tmp_path: Path) -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    replay = msprobe_hooks.replay_step(model, every=1, folder=tmp_path, optimizer=optimizer)
    for _ in range(3):
        replay(lambda: model(torch.ones(1, 4)).sum().backward())
        optimizer.step(lambda: 1.0)
    assert (replay.report.optimizer_steps, replay.report.closures) == (0, 1)
    assert "optimizer: 0 steps computed twice; not compared: 1 step with a closure" in str(replay)


def test_several_optimizers_are_compared_in_one_step_of_several_micro_batches(tmp_path: Path) -> None:
    model = nn.Linear(4, 2)
    optimizers = [torch.optim.SGD([parameter], 0.1) for parameter in model.parameters()]
    replay = msprobe_hooks.replay_step(model, every=2, micro_batches=2, folder=tmp_path, optimizer=optimizers)
    for _ in range(5):
        for _ in range(2):
            replay(lambda: model(torch.ones(1, 4)).sum().backward())
        for optimizer in optimizers:
            optimizer.step()
    assert replay.report.optimizer_steps == 4


@pytest.mark.parametrize("watch", [True, False])
def test_the_summary_says_whether_the_optimizer_is_compared(tmp_path: Path, watch: bool) -> None:
    _, replay = train(tmp_path, watch=watch)
    line = (
        "optimizer: 3 steps computed twice" if watch else "optimizer not compared: not passed, as in replay_step(model,"
    )
    assert line in str(replay)


def test_a_difference_is_logged_in_short_and_printed_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), FlippedBit("_fused_adamw_", 3):
        _, replay = train(tmp_path, adamw(fused=True))
    (message,) = caplog.messages
    assert message.endswith(f": wrong, optimizer AdamW; {tmp_path}/repeats.json")
    assert message not in str(replay)


def test_what_is_no_optimizer_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^optimizer is 'Linear'; allowed: a torch.optim.Optimizer, or several"):
        msprobe_hooks.replay_step(nn.Linear(1, 1), every=1, optimizer=nn.Linear(1, 1))
