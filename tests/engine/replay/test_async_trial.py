"""A card that computes next to the CPU: what is launched before golden, and what becomes of late errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_msprobe.devices.accelerator import Accelerator
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.engine.replay.calls.arguments import Arguments, Subject, TargetError
from pytest_msprobe.engine.replay.prepared_call import LaunchingTrial, trial_on
from pytest_msprobe.engine.replay.strategies import StrategyRegistry
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.results.outcomes import Breakdown, Skip, SkipReason


class Card(Accelerator):
    """Computes on the CPU and keeps a diary; what it is to fail at, by record, it fails at when it is waited for."""

    name = "card"

    def __init__(self, **fails_at: str) -> None:
        self.diary: list[str] = []
        self.pending: list[str] = []
        self.fails_at = fails_at

    def runtime(self) -> Any:
        raise AssertionError("it has none")

    def location(self) -> torch.device:
        return torch.device("cpu")

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().clone()

    def launch(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
        direction = record.rpartition(".")[2]
        self.diary.append(f"{direction} launched")
        self.pending += [self.fails_at[direction]] if direction in self.fails_at else []
        return func(*args, **kwargs)

    def synchronize(self) -> None:
        self.diary.append("waited")
        if self.pending:
            raise RuntimeError(self.pending.pop())


class Timed(Card):
    """A card whose user times its calls."""

    def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
        self.diary.append("timed")
        return super().call(func, args, kwargs, record=record)


def x(*shape: int) -> torch.Tensor:
    return torch.linspace(-1, 1, torch.Size(shape).numel()).reshape(shape).requires_grad_()


def product_on(card: Card, golden: Callable[..., Any] = torch.mm) -> Trial:
    """Return the trial of a product that is large enough to be launched, whose golden runs are in the diary."""

    def noting(*args: Any) -> Any:
        if args[0].dtype is torch.float64:
            card.diary.append("golden forward")
        result = golden(*args)
        result.register_hook(lambda _: card.diary.append("golden backward"))
        return result

    arguments = Arguments((x(256, 128).detach(), x(128, 256).detach()), {}, frozenset({"args.0", "args.1"}))
    subject = Subject("k", "mm", torch.mm, noting, arguments, lambda output: {"": torch.ones(output.shape)})
    strategies = StrategyRegistry()
    strategies.add(lambda _: None, is_accepted=lambda operation, _: operation == "mm")
    return trial_on(card, strategies)(subject, card)


def test_a_card_computes_a_product_and_its_gradients_while_the_cpu_computes_golden() -> None:
    card = Card()
    trial = product_on(card)
    assert isinstance(trial, LaunchingTrial)
    _ = trial.golden, trial.golden_gradients
    diary = [
        *("forward launched", "golden forward", "waited"),
        *("backward launched", "golden backward", "waited"),
    ]
    assert card.diary == diary
    called = Trial(trial.subject, CpuDevice())
    assert torch.equal(trial.target.output, called.target.output)
    for path, gradient in called.target_gradients.items():
        found = trial.target_gradients[path]
        assert found is not None
        assert gradient is not None
        assert torch.equal(found, gradient)
    assert card.diary == diary


def test_what_has_run_on_the_card_is_not_launched_again() -> None:
    card = Card()
    trial = product_on(card)
    _ = trial.target, trial.target_gradients, trial.golden, trial.golden_gradients
    assert card.diary.count("forward launched") == card.diary.count("backward launched") == 1


def test_what_the_cpu_may_reject_by_its_values_is_launched_after_golden(recorder: Any, check: Any) -> None:
    card, table = Card(), x(300, 200)
    call = recorder.Functional.embedding(torch.tensor([0, 299]), table)
    assert check(call, device=card).forward.verdict.outcome == "pass"
    beyond = Arguments((torch.tensor([300]), table.detach()), {}, frozenset())
    card.diary.clear()
    trial = trial_on(card, StrategyRegistry())(Subject("k", "embedding", F.embedding, F.embedding, beyond), card)
    with pytest.raises(Skip):
        _ = trial.golden
    assert card.diary == []


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_an_error_that_comes_up_late_fails_the_record_that_made_it(recorder: Any, check: Any, direction: str) -> None:
    call = recorder.Torch.mm(x(256, 128), x(128, 256))
    result = check(call, device=Card(**{direction: "507015: aicore exception"}))
    failed = result.forward if direction == "forward" else result.backward
    assert failed.breakdown is Breakdown.RUN
    assert failed.verdict.reason == (
        "the API raises on the device, but not on the CPU: RuntimeError: 507015: aicore exception"
    )
    if direction == "forward":
        assert result.backward.skip is SkipReason.FORWARD_FAILED
    else:
        assert result.forward.verdict.outcome == "pass"


def test_memory_that_runs_out_late_is_no_error_of_the_call(recorder: Any, check: Any) -> None:
    result = check(recorder.Torch.mm(x(256, 128), x(128, 256)), device=Card(forward="NPU out of memory"))
    assert result.forward.breakdown is Breakdown.OOM


def test_a_card_is_waited_for_where_golden_fails_and_no_later_call_meets_its_error() -> None:
    card = Card(forward="lost")

    def refused(*_: Any) -> Any:
        raise RuntimeError("not for float64")

    trial = product_on(card, refused)
    with pytest.raises(Skip):
        _ = trial.golden
    assert card.diary == ["forward launched", "golden forward", "waited"]
    assert not card.pending
    with pytest.raises(TargetError, match="lost"):
        _ = trial.target


def test_what_interrupts_golden_waits_for_no_card() -> None:
    card = Card()

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _ = product_on(card, interrupted).golden
    assert card.diary == ["forward launched", "golden forward"]


def test_a_card_with_a_call_of_its_own_is_called_by_it() -> None:
    card = Timed()
    trial = product_on(card)
    _ = trial.golden, trial.target
    assert type(trial) is Trial
    assert card.diary == ["golden forward", "timed", "forward launched", "waited"]
