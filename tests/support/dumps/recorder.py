"""Recording calls as msprobe 1.2.2 writes them, independently of the project's own recorder."""

from __future__ import annotations

import json
import math
import operator
import warnings
from pathlib import Path
from typing import Any

import torch

from msprobe_hooks.dump.names import parse_api_name
from msprobe_hooks.dump.schema import backward_record, forward_record
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.references import ReferenceRegistry


class _Npu:
    """The APIs of torch_npu, as their golden definitions compute them."""

    def __getattr__(self, name: str) -> Any:
        return ReferenceRegistry().get(f"NPU.{name}")


HOMES = {
    "Functional": torch.nn.functional,
    "Tensor": torch.Tensor,
    "Torch": torch,
    "Aten": torch.ops.aten,
    "VF": torch._VF,
    "NPU": _Npu(),
}


def statistics_of(tensor: torch.Tensor) -> dict[str, Any]:
    """Max, Min, Mean and Norm by the rules of msprobe 1.2.2."""
    tensor = tensor.detach()
    if tensor.numel() == 0 or "float8" in str(tensor.dtype):
        return dict.fromkeys(("Max", "Min", "Mean", "Norm"))
    if tensor.dtype is torch.bool:
        return {"Max": bool(tensor.any()), "Min": bool(tensor.all()), "Mean": None, "Norm": None}
    if tensor.is_complex():
        size = tensor.to(torch.complex128).abs()
        return {"Max": size.max().item(), "Min": size.min().item(), "Mean": size.mean().item(), "Norm": None}
    if tensor.dim() == 0:
        return dict.fromkeys(("Max", "Min", "Mean", "Norm"), tensor.item())
    values = tensor if tensor.dtype in (torch.float16, torch.bfloat16) else tensor.to(torch.float32)
    found = {"Max": values.max(), "Min": values.min(), "Mean": values.mean(), "Norm": values.norm()}
    statistics = {name: value.item() for name, value in found.items()}
    finite = values[values.isfinite()]
    for name in ("Max", "Min"):
        if not math.isfinite(statistics[name]):
            extremum = getattr(finite, name.lower())().item() if finite.numel() else math.nan
            statistics[f"{name}_except_inf_nan"] = extremum
    return statistics


def element(value: Any, key: str = "") -> Any:
    """What msprobe 1.2.2 writes for one Python value."""
    if isinstance(value, torch.Tensor):
        found = {"type": "torch.Tensor", "dtype": str(value.dtype), "shape": list(value.shape)}
        return {**found, **statistics_of(value), "requires_grad": value.requires_grad}
    if isinstance(value, torch.Size):
        return {"type": "torch.Size", "value": list(value)}
    if isinstance(value, (list, tuple)):
        return [element(item) for item in value]
    if isinstance(value, dict):
        return {name: element(item, name) for name, item in value.items()}
    if isinstance(value, torch.dtype):
        return {"type": "torch.dtype", "value": str(value)} if key == "dtype" else {}
    if isinstance(value, torch.device):
        return {"type": "torch.device", "value": "npu:0"} if key == "device" else {}
    if isinstance(value, torch.memory_format):
        return {"type": "torch.memory_format", "format": str(value).removeprefix("torch.")}
    if isinstance(value, slice):
        return {"type": "slice", "value": [value.start, value.stop, value.step]}
    if value is ...:
        return {"type": "ellipsis", "value": "..."}
    if isinstance(value, (bool, int, float, str)):
        return {"type": type(value).__name__, "value": value}
    return None


class Recorder:
    """Runs APIs and records them: ``recorder.Torch.linalg.norm(x)``, ``recorder.Tensor["__add__"](x, y)``."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def __getattr__(self, kind: str) -> Api:
        return Api(self, kind, "")

    def record(self, kind: str, api: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Run one call and its backward, and record both."""
        function = operator.attrgetter(api)(HOMES[kind])
        # A property such as Tensor.T is recorded as a call with one argument.
        function = function if callable(function) else operator.attrgetter(api)
        forward: dict[str, Any] = {
            "input_args": element(args),
            "input_kwargs": element(kwargs),
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            output = function(*args, **kwargs)
        outputs = output if isinstance(output, (list, tuple)) and not isinstance(output, torch.Size) else [output]
        forward["output"] = element(list(outputs))
        differentiable = [item for item in outputs if isinstance(item, torch.Tensor) and item.requires_grad]
        backward = None
        if differentiable and not any(item.numel() == 0 for item in differentiable):
            arriving = [
                torch.randn(item.shape, dtype=torch.float32).to(item.dtype)
                if isinstance(item, torch.Tensor) and item.requires_grad
                else None
                for item in outputs
            ]
            backward = {"input": element(arriving), "output": []}
        return self.keep(f"{kind}.{api}.{len(self.calls)}", forward, backward)

    def keep(self, key: str, forward: dict[str, Any], backward: dict[str, Any] | None = None) -> Call:
        """Take a call from bodies of records as they stand in a file."""
        name = parse_api_name(f"{key}.forward")
        call = Call(
            name,
            forward_record(str(name), json.loads(json.dumps(forward))),
            backward_record(f"{key}.backward", json.loads(json.dumps(backward))) if backward else None,
            Path("dump_tensor_data"),
        )
        self.calls.append(call)
        return call


class Api:
    """A function below a kind of API, found by attributes; calling it records the call."""

    def __init__(self, recorder: Recorder, kind: str, name: str) -> None:
        self._recorder, self._kind, self._name = recorder, kind, name

    def __getattr__(self, part: str) -> Api:
        return Api(self._recorder, self._kind, f"{self._name}.{part}" if self._name else part)

    __getitem__ = __getattr__

    def __call__(self, *args: Any, **kwargs: Any) -> Call:
        return self._recorder.record(self._kind, self._name, args, kwargs)
