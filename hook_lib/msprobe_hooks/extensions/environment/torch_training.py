"""What only torch knows of a training."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from msprobe_hooks.extensions.environment.random_calls import RandomCounts
from msprobe_hooks.extensions.environment.recorder import CallReport
from msprobe_hooks.extensions.environment.start_file import TensorFact, digest
from msprobe_hooks.extensions.environment.torch_random import TorchRandom
from msprobe_hooks.extensions.environment.torch_switches import torch_switches
from msprobe_hooks.extensions.environment.torch_values import batch, weights_and_buffers
from msprobe_hooks.recording.uncopied_hooks import uncopied
from msprobe_hooks.torch.scripting import UnscriptedHooks
from msprobe_hooks.torch.session import process_rank


class TorchTraining:
    """A training of torch; its models are modules."""

    def counter(self, counts: RandomCounts) -> TorchRandom:
        """Return what counts torch's random functions."""
        return TorchRandom(counts)

    def wait(self, called: Callable[[nn.Module], None]) -> Callable[[], None]:
        """Report the first module with parameters."""
        # A hook for all modules gets no keyword arguments, which is where a batch mostly is.
        original = nn.Module.__call__

        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if next(module.parameters(), None) is not None:
                called(module)
            return original(module, *args, **kwargs)

        def stop() -> None:
            if nn.Module.__call__ is call:
                nn.Module.__call__ = original  # type: ignore[method-assign]

        nn.Module.__call__ = call  # type: ignore[method-assign]
        return stop

    def before_calls(self, model: nn.Module, report: CallReport) -> Callable[[], None]:
        """Report each call of a module by a hook."""
        hook = uncopied(_uncompiled(report))
        handles: list[Any] = [model.register_forward_pre_hook(hook, with_kwargs=True), UnscriptedHooks()]

        def stop() -> None:
            for handle in handles:
                handle.remove()

        return stop

    def place(self) -> tuple[int, int] | None:
        """Return rank and size of the process group."""
        rank = process_rank()
        return None if rank is None else (rank, torch.distributed.get_world_size())

    def switches(self) -> dict[str, str]:
        """Return torch's switches and math modes."""
        return torch_switches()

    def generator_states(self, seeded: dict[str, str]) -> dict[str, str]:
        """Return torch's seed, and digests of what its generators have come to."""
        states = {
            "torch.initial_seed": str(torch.initial_seed()),
            "state of torch": digest(torch.get_rng_state().numpy().tobytes()),
        }
        for kind in ("cuda", "npu"):
            library: Any = getattr(torch, kind, None)
            if library is not None and library.is_initialized():
                states[f"state of torch.{kind}"] = digest(library.get_rng_state().numpy().tobytes())
        return states

    def batch(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, TensorFact | str]:
        """Return what a module was called with."""
        return batch(args, kwargs)

    def weights_and_buffers(self, model: nn.Module) -> tuple[dict[str, TensorFact], dict[str, TensorFact]]:
        """Return the parameters and the buffers of a module."""
        return weights_and_buffers(model)


def _uncompiled(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Return a hook that a compiler passes over; nothing of one is loaded for it."""
    if "torch._dynamo" not in sys.modules:
        return hook
    disabled: Callable[..., Any] = torch.compiler.disable(hook)  # type: ignore[no-untyped-call]
    return disabled
