"""Feeder of the modules of a program of PyTorch."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction
from torch.nn.modules.module import register_module_forward_pre_hook

from msprobe_hooks.dump.containers import find_tensor, read_elements, split_name
from msprobe_hooks.dump.npy import find_file, read_array
from msprobe_hooks.dump.schema import TensorElement
from msprobe_hooks.errors import DumpError
from msprobe_hooks.extensions.feed.arguments import KeptError
from msprobe_hooks.extensions.feed.feeder import Checkpoint, Feeder
from msprobe_hooks.recording.interposition import uncopied
from msprobe_hooks.recording.session import Model, running_session
from msprobe_hooks.torch.call_mode import is_traced
from msprobe_hooks.torch.gradients import is_recomputed, running_checkpoint
from msprobe_hooks.torch.modules import UnscriptedHooks
from msprobe_hooks.torch.no_dispatch import NoDispatch
from msprobe_hooks.torch.session import process_rank
from msprobe_hooks.torch.statistics import local_part
from msprobe_hooks.torch.torch_files import load_torch_file

_PLAIN = frozenset({Tensor, nn.Parameter})


class TorchFeeder(Feeder):
    """Gives each named ``torch.nn.Module`` its recorded inputs.

    A model that is not given is the outermost module that runs, or that of the recording that runs.
    """

    frameworks = ("pytorch",)
    tensor_class = Tensor
    module_class = nn.Module
    module_name = "torch.nn.Module"
    call_method = "forward"

    rank = staticmethod(process_rank)
    is_hidden = staticmethod(is_traced)

    def find_model(self) -> None:
        """Register hooks on the modules of each outermost module when it runs."""
        known: WeakSet[nn.Module] = WeakSet()

        def meet(module: nn.Module, _: object) -> None:
            if module in known or is_traced():
                return
            model = _recorded_model(module) or module
            known.update(module.modules())
            self.hook_model(model)

        self.keep(register_module_forward_pre_hook(meet))

    def hook_model(self, model: Model) -> None:
        """Register hooks on the named modules inside a model, which can be scripted meanwhile."""
        super().hook_model(model)
        self.keep(UnscriptedHooks())

    def named_modules(self, model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
        """Yield the path and the module of everything inside a model that takes hooks; scripted modules do not."""
        for path, module in model.named_modules():
            if not isinstance(module, torch.jit.ScriptModule):
                yield path, module

    def hook(self, module: nn.Module, give: Callable[[Any, Any, Any], Any]) -> Any:
        """Call ``give`` before the hooks of the program and of a recording."""
        return module.register_forward_pre_hook(uncopied(give), prepend=True, with_kwargs=True)

    def quiet(self) -> AbstractContextManager[object]:
        """Return a context that does nothing: what is done to tensors is done out of sight."""
        return nullcontext()

    def checkpoint(self) -> tuple[Checkpoint | None, bool]:
        """Return the activation checkpoint around this call, and whether it makes the call again."""
        found = running_checkpoint()
        if found is not None:
            return Checkpoint(found.frame, backward_pass=found.backward_pass), found.backward_pass is not None
        here = frame = sys._getframe(1)
        while frame.f_back is not None:
            frame = frame.f_back
            if frame.f_code.co_name in ("forward", "backward"):
                # Checkpointing with reentry, torch's own and those of others: a function with one object for both.
                context = frame.f_locals.get("ctx")
                if isinstance(context, BackwardCFunction):
                    return Checkpoint(context), frame.f_code.co_name == "backward"
        return None, is_recomputed(here)

    def recorded(self, tensor: Tensor, element: TensorElement, folder: Path) -> Tensor:
        """Return the recorded tensor with the program's dtype, device, strides and gradient."""
        part = local_part(tensor)
        if type(part) not in _PLAIN or part.layout is not torch.strided or part.is_meta or part.is_nested:
            raise KeptError(f"is a {type(part).__name__} of layout {part.layout}, which is not fed")
        with NoDispatch():
            fed = torch.empty_like(part, requires_grad=False)
            fed.copy_(_read_recorded(folder, element.data_name or "", tuple(part.shape)))
            if part is not tensor:
                fed = _distributed(fed, tensor)
        if tensor.requires_grad and torch.is_grad_enabled():
            through: Tensor = _PassedThrough.apply(tensor, [fed])  # type: ignore[no-untyped-call]
            return through
        return fed

    def difference(self, tensor: Tensor, fed: Tensor) -> float:
        """Return the greatest difference of the program's tensor from what replaces it, by its greatest value."""
        with NoDispatch(), torch.no_grad():
            mine, theirs = (_measurable(local_part(one)) for one in (tensor, fed))
            distance = (mine - theirs).abs()
            are_equal = (mine == theirs) | (mine.isnan() & theirs.isnan())
            distance = distance.masked_fill(are_equal, 0).nan_to_num(nan=math.inf, posinf=math.inf)
            greatest = float(distance.max()) if distance.numel() else 0.0
            scale = theirs.abs()
            scale = scale.masked_fill(~scale.isfinite(), 0)
            return greatest / (float(scale.max()) or 1.0) if greatest else 0.0


def _measurable(tensor: Tensor) -> Tensor:
    """Return a tensor in a dtype that all devices subtract in."""
    return tensor if tensor.is_complex() or tensor.dtype is torch.float64 else tensor.float()


class _PassedThrough(torch.autograd.Function):
    """A value in the place of another, whose gradient goes to that one unchanged."""

    @staticmethod
    def forward(_: Any, original: Tensor, fed: list[Tensor]) -> Tensor:
        return fed[0]

    @staticmethod
    def backward(_: Any, *gradients: Any) -> Any:
        return gradients[0], None


def _distributed(part: Tensor, whole: Any) -> Tensor:
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        part, whole.device_mesh, whole.placements, run_check=False, shape=whole.shape, stride=whole.stride()
    )


def _recorded_model(module: nn.Module) -> Any:
    """Return the model of the recording that runs, where a module is, holds or lies in it; None otherwise."""
    session = running_session()
    model = None if session is None else session.model
    if model is None:
        return None
    models = [model] if isinstance(model, nn.Module) else list(model)
    inside = set(module.modules())
    return model if any(one in inside or any(part is module for part in one.modules()) for one in models) else None


def _read_recorded(folder: Path, data_name: str, shape: tuple[int, ...]) -> Tensor:
    """Return the values of a recorded tensor, of a shape that is known, on the CPU.

    Raises DumpError where the file is missing, damaged or holds another shape.
    """
    contained = split_name(data_name)
    path = find_file(folder, data_name if contained is None else contained[0])
    if path is None:
        raise DumpError(f"{folder / data_name}: no such file; copy it, or record the step again")
    tensor = _whole(path) if contained is None else _contained(path, contained[1], shape)
    if tuple(tensor.shape) != shape:
        raise DumpError(f"{path}: holds the shape {tuple(tensor.shape)}, and {shape} is needed; record the step again")
    return tensor


def _whole(path: Path) -> Tensor:
    try:
        loaded = torch.from_numpy(np.array(read_array(path))) if path.suffix == ".npy" else load_torch_file(path)
    except Exception as error:
        # Bytes that are no tensor make torch's and numpy's readers raise almost anything.
        first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DumpError(f"{path}: not a readable tensor file, copy or record it again: {first_line}") from None
    if not isinstance(loaded, Tensor) or loaded.is_nested:
        raise DumpError(f"{path}: holds a {type(loaded).__name__}, not a tensor of one shape")
    return loaded.detach()


def _contained(path: Path, name: str, shape: tuple[int, ...]) -> Tensor:
    tensor = find_tensor(path, name)
    if tensor.shape != shape:
        # Before it is read: a compressed one may be of any size.
        raise DumpError(f"{path}: {name!r} has the shape {tensor.shape}, and {shape} is needed; record the step again")
    dtype = getattr(torch, tensor.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise DumpError(f"{path}: {name!r} is of {tensor.dtype}, which this torch does not have; record it in another")
    try:
        elements = torch.from_numpy(np.array(read_elements(path, tensor)))
    except OSError as error:
        raise DumpError(f"{path}: cannot be read, copy or record it again: {error.strerror}") from None
    return elements.view(dtype).view(shape) if elements.numel() else torch.empty(shape, dtype=dtype)
