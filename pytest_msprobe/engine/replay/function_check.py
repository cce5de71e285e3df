"""The check of a user's own function: the same trial as for a record, with a golden definition of the user's."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch

from msprobe_hooks.dump.names import Direction, api_record
from msprobe_hooks.messages import closest
from msprobe_standards import Standard, Verdict
from pytest_msprobe.devices.device import hardware
from pytest_msprobe.engine.replay.calls.arguments import Arguments, CheckError, Subject
from pytest_msprobe.engine.replay.check import input_tensors
from pytest_msprobe.engine.replay.inputs.random_tensors import stream_seed
from pytest_msprobe.engine.replay.judging.directions import judge_backward, judge_forward
from pytest_msprobe.engine.replay.judging.half_precision import judged_in_float64, with_narrow_roundoffs
from pytest_msprobe.engine.replay.judging.informative_inputs import without_number
from pytest_msprobe.engine.replay.judging.outputs import result_of
from pytest_msprobe.engine.replay.judging.run_outputs import add_conditioning_note
from pytest_msprobe.engine.replay.own_backward import judge_by_differences
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.values.pytree import map_leaves, tensors_with_paths
from pytest_msprobe.results.outcomes import Breakdown, SkipReason
from pytest_msprobe.results.result import LITTLE_JUDGED, DirectionResult, OutputResult, failed_without_result

#: The keyword under which a module gets its parameters and buffers.
STATE = "module_state"

# What a test may want to say to the check, and what it is called.
_OPTIONS = {name: f"{name}=" for name in ("golden", "backward", "batch_invariant")} | dict.fromkeys(
    ("standard", "rtol", "atol"), "the mark precision_standard"
)

#: The positional and the named arguments of a function.
Given: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]


class FunctionCheck:
    """One call of a user's function being checked, as `Replay` is a recorded call being checked.

    It is judged against ``golden`` (by default the function itself) in raised precision. ``standard`` judges every
    output and gradient; None leaves the choice to the policy. ``backward`` compares, for random gradients of the
    outputs, the gradients of every tensor that requires grad. A golden function for a module is called with the
    module's parameters and buffers as the keyword ``module_state``, a dict by name.

    Function, golden and arguments are the user's: what golden raises is a failure, and so is a check that compares
    nothing. ``raised`` holds the exceptions that failures are about. Only what the device does not implement, and
    gradients that do not exist, are skips.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        name: str,
        setup: ReplayConfig,
        golden: Callable[..., Any] | None = None,
        backward: bool = False,
        standard: Standard | None = None,
    ) -> None:
        keywords = {**kwargs, STATE: _state(function)} if isinstance(function, torch.nn.Module) else dict(kwargs)
        self.setup = setup
        self.directions: tuple[Direction, ...] = ("forward", "backward") if backward else ("forward",)
        self.raised: list[BaseException] = []
        self._name = name
        self._standard = standard
        self._has_golden = golden is not None
        self._is_own_golden = golden is None or golden is function
        self._not_judged = ""
        self._forward: DirectionResult | None = None
        subject = Subject(
            key=name,
            api=getattr(function, "__name__", type(function).__name__),
            target=_callable(function),
            golden=_callable(function if golden is None else golden),
            arguments=Arguments(tuple(args), keywords, _differentiable(args, keywords) if backward else frozenset()),
            grad_outputs=(lambda output: _random_gradients(output, name, setup.seed)) if backward else None,
            is_given=True,
        )
        # A function cannot travel to a card elsewhere that would judge it.
        self.trial = Trial(subject, setup.device)

    def judge(self, direction: Direction) -> DirectionResult:
        """Judge what the function returned, or its gradients."""
        record, forward = api_record(self._name, direction), self._forward
        if direction == "backward" and forward is not None and forward.breakdown is Breakdown.TEST:
            reason = SkipReason.FORWARD_FAILED
            return DirectionResult(record, Verdict("skip", "", f"{reason.value}: {forward.reason}"), skip=reason)
        result = result_of(record, functools.partial(self._judged, direction), self.raised)
        if result.breakdown is Breakdown.TEST and self.raised:
            result = replace(result, notes=(*result.notes, *self._golden_notes()))
        little = (self._not_judged if direction == "backward" else "") or without_number(self.trial, direction)
        if little and result.verdict.outcome == "pass":
            result = result.with_extra(LITTLE_JUDGED, little)
        if direction == "forward":
            result = self._forward = _failure_to_judge(result)
        return add_conditioning_note(result, self.trial, direction)

    def _judged(self, direction: Direction) -> list[OutputResult]:
        judge = judge_forward if direction == "forward" else judge_backward
        if direction == "backward":
            self._require_gradients()
        elif self.trial.randomness is None:
            self._require_results()
        # A standard that the user names is meant as it is.
        in_mode = self._select_in_mode if self._standard is None and self.setup.math_mode == "auto" else None
        judged = functools.partial(judge, self.trial, self._select, in_mode=in_mode, measure_all=self.setup.measure_all)
        in_float64 = self._standard is None and self.setup.policy.failures_in_float64
        results = judged_in_float64(self.trial, judged) if in_float64 else judged()
        results = with_narrow_roundoffs(self.trial, results)
        return results if direction == "forward" else [*results, *self._by_differences()]

    def _by_differences(self) -> list[OutputResult]:
        """Return the verdicts by finite differences on a backward of the function's own, which golden has as well."""
        name = self.trial.golden.own_backward if self._is_own_golden else ""
        if not name:
            return []
        results, not_judged = judge_by_differences(self.trial)
        if not_judged:
            self._not_judged = f"the backward of {name} was judged by itself, not by finite differences: {not_judged}"
        return results

    def _golden_notes(self) -> Iterator[str]:
        """Yield which keywords may be meant for the check, and what golden is and gets, which users may not know."""
        api = self.trial.subject.api
        for name in self.trial.subject.arguments.kwargs:
            nearest = closest(name, _OPTIONS) if repr(name) in str(self.raised[-1]) else None
            if nearest is not None:
                yield f"{name}= was passed on to {api}; did you mean {_OPTIONS[nearest]}?"
        if not self._has_golden:
            place = f"on the CPU, its floating-point inputs in {self.trial.golden_side.default_dtype}"
            yield f"Without golden=, golden is {api} itself, {place}."
        elif STATE in self.trial.subject.arguments.kwargs:
            yield f"golden gets the parameters and buffers of {api} as the keyword {STATE}, a dict by name."

    def _require_results(self) -> None:
        """Raise CheckError where golden returns and changes nothing, or returns a tensor of another framework."""
        run = self.trial.golden
        leaves: list[Any] = []
        map_leaves(leaves.append, run.output)
        whose = "golden" if self._has_golden else self.trial.subject.api
        if all(leaf is None for leaf in leaves) and not run.changed:
            raise CheckError(f"nothing to compare: {whose} returned {run.output!r} and changed no argument")
        foreign = next((leaf for leaf in leaves if _is_foreign(leaf)), None)
        if foreign is not None:
            kind = f"{type(foreign).__module__}.{type(foreign).__qualname__}"
            others = "msprobe_dump and msprobe_live check calls of MindSpore"
            raise CheckError(f"{whose} returned a {kind}; precision.check compares tensors of torch only, {others}")

    def _require_gradients(self) -> None:
        """Raise CheckError where no gradient was asked for, or none comes out of the function."""
        if not self.trial.differentiates:
            raise CheckError("backward=True, but no tensor requires grad: call .requires_grad_() on an input")
        if not self.trial.grad_outputs:
            api = self.trial.subject.api
            raise CheckError(f"backward=True, but nothing that {api} returned requires grad, though an input does")

    def input_tensors(self, direction: Direction) -> dict[str, torch.Tensor]:
        """Return the CPU tensors that one direction computes with, by path, as `Replay.input_tensors` does."""
        return input_tensors(self.trial, direction)

    def _select(self, direction: Direction, leaf: Any, modes: Collection[str] = ()) -> Standard:
        if self._standard is not None:
            return self._standard
        arguments, setup = self.trial.subject.arguments, self.setup
        return setup.policy.select(
            self.trial.subject.api,
            output_dtype=leaf.dtype if isinstance(leaf, torch.Tensor) else None,
            input_dtypes=arguments.tensor_dtypes,
            framework=setup.framework.name,
            device=hardware(setup.device),
            backward=direction == "backward",
            scalars=arguments.has_rounded_scalars,
            math_modes=modes,
        )

    def _select_in_mode(self, direction: Direction, leaf: Any, modes: Collection[str]) -> Standard | None:
        with contextlib.suppress(ValueError):
            return self._select(direction, leaf, modes)
        return None


@dataclass(frozen=True, slots=True)
class CheckedFunction:
    """A function's check on one input, and what came of its directions."""

    check: FunctionCheck
    results: Sequence[DirectionResult]

    @property
    def failed(self) -> DirectionResult | None:
        """The first result that is a failure, if one is."""
        return next((result for result in self.results if result.verdict.outcome == "fail"), None)


def _failure_to_judge(forward: DirectionResult) -> DirectionResult:
    """Return the result of a forward check, as a failure where it is a skip for which no device is the reason."""
    if forward.verdict.outcome != "skip" or forward.skip == SkipReason.UNSUPPORTED:
        return forward
    return failed_without_result(forward.record, Breakdown.TEST, f"nothing can be judged: {forward.verdict.reason}")


def _is_foreign(leaf: Any) -> bool:
    """Return whether a value is a tensor of MindSpore, JAX or the like, which golden does not compute any better."""
    is_known = isinstance(leaf, (torch.Tensor, np.ndarray, np.generic))
    return not is_known and hasattr(leaf, "shape") and hasattr(leaf, "dtype")


def _state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    # As arguments, parameters and buffers are placed and raised like any other tensor.
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {_uncompiled(name): tensor for name, tensor in state.items()}


def _uncompiled(name: str) -> str:
    """Return what a parameter is called where its module is not compiled: torch.compile wraps modules in another."""
    return name.replace("_orig_mod.", "")


def _callable(function: Callable[..., Any]) -> Callable[..., Any]:
    if not isinstance(function, torch.nn.Module):
        return function
    module = function
    names = {_uncompiled(name): name for name in (*dict(module.named_parameters()), *dict(module.named_buffers()))}

    def call_with_state(*args: Any, module_state: dict[str, torch.Tensor] | None = None, **kwargs: Any) -> Any:
        if module_state is None:
            # Nothing raises the precision of its parameters: only those of the checked module are inputs.
            raise TypeError("golden is an nn.Module, but the checked function is not; pass a function as golden")
        state = {names.get(name, name): tensor for name, tensor in module_state.items()}
        return torch.func.functional_call(module, state, args, kwargs)

    return call_with_state


def _differentiable(args: Sequence[Any], kwargs: Mapping[str, Any]) -> frozenset[str]:
    tensors = [*tensors_with_paths(list(args), "args"), *tensors_with_paths(dict(kwargs), "kwargs")]
    return frozenset(path for path, tensor in tensors if tensor.requires_grad)


def _random_gradients(output: Any, name: str, seed: int) -> dict[str, torch.Tensor]:
    gradients = {}
    for path, tensor in tensors_with_paths(output):
        if tensor.requires_grad:
            generator = torch.Generator().manual_seed(stream_seed(seed, name, f"grad.{path}"))
            gradients[path] = torch.randn(tensor.shape, generator=generator).to(tensor.dtype)
    return gradients
