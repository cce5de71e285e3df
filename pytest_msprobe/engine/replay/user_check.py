"""The check of a user's own function: the same trial as for a record, with a golden definition of the user's."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch

from msprobe_hooks.dump.names import api_record
from msprobe_standards import Standard
from pytest_msprobe.engine.replay.amplification import told_amplification
from pytest_msprobe.engine.replay.arguments import Arguments
from pytest_msprobe.engine.replay.check import result_of
from pytest_msprobe.engine.replay.judging import judge_backward, judge_forward
from pytest_msprobe.engine.replay.random_inputs import stream_seed
from pytest_msprobe.engine.replay.trial import Setup, Subject, Trial
from pytest_msprobe.engine.values.tree import tensors_with_paths
from pytest_msprobe.results.result import DirectionResult

_STATE = "module_state"


def check_function(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    name: str,
    setup: Setup,
    golden: Callable[..., Any] | None = None,
    backward: bool = False,
    standard: Standard | None = None,
) -> list[DirectionResult]:
    """Check a function, or an ``nn.Module``, against ``golden`` (by default itself) in raised precision.

    ``standard`` judges every output and gradient; None leaves the choice to the policy. ``backward`` compares, for
    random gradients of the outputs, the gradients of every tensor that requires grad. A golden function for a module
    is called with the module's parameters and buffers as the keyword ``module_state``, a dict by name.
    """
    given = {**kwargs, _STATE: _state(function)} if isinstance(function, torch.nn.Module) else dict(kwargs)
    subject = Subject(
        key=name,
        api=getattr(function, "__name__", type(function).__name__),
        target=_callable(function),
        golden=_callable(golden or function),
        arguments=Arguments(tuple(args), given, _differentiable(args, given) if backward else frozenset()),
        grad_outputs=(lambda output: _random_gradients(output, name, setup.seed)) if backward else None,
    )
    trial = Trial(subject, setup.device)
    inputs = subject.arguments.tensor_dtypes

    def select(direction: Any, leaf: Any, modes: Collection[str] = ()) -> Standard:
        dtype = leaf.dtype if isinstance(leaf, torch.Tensor) else None
        chosen = setup.policy.select(
            subject.api,
            output_dtype=dtype,
            input_dtypes=inputs,
            backward=direction == "backward",
            scalars=subject.arguments.has_rounded_scalars,
            math_modes=modes,
        )
        return standard or chosen

    def select_in_mode(direction: Any, leaf: Any, modes: Collection[str]) -> Standard | None:
        with contextlib.suppress(ValueError):
            return select(direction, leaf, modes)
        return None

    # A standard that the user names is meant as it is.
    in_mode = select_in_mode if standard is None and setup.math_mode == "auto" else None
    forward = result_of(api_record(name, "forward"), lambda: judge_forward(trial, select, in_mode=in_mode))
    results = [told_amplification(forward, trial, "forward")]
    if backward:
        judged = functools.partial(judge_backward, trial, select, in_mode=in_mode)
        results.append(told_amplification(result_of(api_record(name, "backward"), judged), trial, "backward"))
    return results


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

    def call_with_state(*args: Any, module_state: dict[str, torch.Tensor], **kwargs: Any) -> Any:
        state = {names.get(name, name): tensor for name, tensor in module_state.items()}
        return torch.func.functional_call(module, state, args, kwargs)

    return call_with_state


def _differentiable(args: Sequence[Any], kwargs: Mapping[str, Any]) -> frozenset[str]:
    given = [*tensors_with_paths(list(args), "args"), *tensors_with_paths(dict(kwargs), "kwargs")]
    return frozenset(path for path, tensor in given if tensor.requires_grad)


def _random_gradients(output: Any, name: str, seed: int) -> dict[str, torch.Tensor]:
    gradients = {}
    for path, tensor in tensors_with_paths(output):
        if tensor.requires_grad:
            generator = torch.Generator().manual_seed(stream_seed(seed, name, f"grad.{path}"))
            gradients[path] = torch.randn(tensor.shape, generator=generator).to(tensor.dtype)
    return gradients
