"""Samples of the operators, which recordings without a model are made of: each is drawn as the inputs of a dump are.

Importing it loads torch.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import torch

from msprobe_hooks.dump.names import parse_api_name
from msprobe_hooks.dump.schema import forward_record
from msprobe_hooks.json_decoding import decode_json
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.calls.arguments import build_arguments
from pytest_msprobe.engine.replay.references import ReferenceRegistry
from pytest_msprobe.engine.values.pytree import map_with_paths
from pytest_msprobe.extensions.npu_operators.left_out import left_out
from pytest_msprobe.extensions.npu_operators.operator_table import DEFINED
from pytest_msprobe.extensions.operators.database import NoSampleError, Operator, Sample

#: Samples by API, a line each, written by ``python -m tests.support.npu.operator_samples``.
FILE = Path(__file__).with_name("samples.json")

#: Operators whose definitions agree only on what a forward saved: one computes anew what another takes from it.
OF_SAVED = frozenset(
    {
        "Aten.npu_dropout_with_add_softmax_backward", "Aten.npu_gru_backward", "Aten.npu_mhc_pre_backward",
        "Aten.npu_multi_head_attention_backward",
    }
)  # fmt: skip

_LIBRARY = "torch_npu"
HALVES = ("float16", "bfloat16")
_DTYPES = ("float32", *HALVES)
_TENSOR = re.compile(r"(?P<dtype>\w+)\[(?P<shape>[\d,]*)\](?: (?P<low>\S+)\.\.(?P<high>\S+))?(?P<gradient> grad)?")


class Arguments(msgspec.Struct, omit_defaults=True):
    """The arguments of a sample: ``float16[2,3] -1..1 grad`` is a tensor, ``{"str": "BSND"}`` a value by its type."""

    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    #: The dtypes of what a card returns, empty for what is no tensor: definitions compute in any.
    results: list[str] = []
    #: Whether it holds in its own dtype alone, where others hold in both 16-bit ones.
    fixed: bool = False

    @property
    def dtype(self) -> str:
        """The dtype that a sweep may have in its place: that of the first tensor of 16-bit floats, else float32."""
        named = (match["dtype"] for match in _TENSOR.finditer(str([self.args, self.kwargs])))
        return next((dtype for dtype in named if dtype in HALVES), "float32")

    @property
    def dtypes(self) -> Sequence[str]:
        """The dtypes of sweeps that have it."""
        return HALVES if self.dtype in HALVES and not self.fixed else (self.dtype,)

    def swept(self, name: str, dtype: str) -> str:
        """Return a dtype of the sample as it is in a sweep."""
        return dtype if name == self.dtype else name

    def record(self, dtype: str) -> dict[str, Any]:
        """Return the record of a call with these arguments, in the dtype of a sweep."""

        def element(value: Any) -> Any:
            if isinstance(value, list):
                return [element(one) for one in value]
            if isinstance(value, dict):
                ((kind, text),) = value.items()
                named = f"torch.{self.swept(text, dtype)}" if kind == "torch.dtype" else text
                return {"type": kind, "value": float(text) if kind == "float" else named}
            if not isinstance(value, str):
                return None if value is None else {"type": type(value).__name__, "value": value}
            match = _TENSOR.fullmatch(value)
            assert match is not None, value
            ends = {
                key: decode_json(match[end].encode()) for key, end in (("Min", "low"), ("Max", "high")) if match[end]
            }
            return {
                "type": "torch.Tensor",
                "dtype": f"torch.{self.swept(match['dtype'], dtype)}",
                "shape": [int(size) for size in match["shape"].split(",") if size],
                "requires_grad": match["gradient"] is not None,
                **ends,
            }

        named = {name: element(value) for name, value in self.kwargs.items()}
        return {"input_args": [element(value) for value in self.args], "input_kwargs": named, "output": []}


def operators() -> Iterator[Operator]:
    """Yield torch_npu's operators, those without a sample included: what they raise for it says why.

    They are computed by the golden definitions. Where torch_npu is not installed, only patterns with its name, or with
    ``npu``, choose them: what a check on another device computes are the golden definitions again.
    """
    library = "" if find_spec(_LIBRARY) else "npu"
    samples = decode_json(FILE.read_bytes(), dict[str, list[Arguments]])
    for api in sorted(api for apis in DEFINED.values() for api in apis):
        in_file = samples.get(api, ())
        drawn = functools.partial(_drawn, api, in_file) if in_file else functools.partial(_none, _why_none(api))
        yield _operator(api, drawn, library)
    for name, reason in left_out():
        yield _operator(f"NPU.{name}", functools.partial(_none, reason), library)


def _operator(api: str, samples: Callable[[torch.dtype], Iterable[Sample]], library: str) -> Operator:
    name = f"{_LIBRARY}.{api.partition('.')[2]}"
    return Operator(name, functools.partial(_compute, api), samples, _DTYPES, recorded=api, library=library)


def _why_none(api: str) -> str:
    if api in OF_SAVED:
        return "what its forward saved belongs together, and cannot be drawn"
    is_gradient = api.startswith("Aten.")
    return "its gradients are judged with the operator that has them" if is_gradient else "no sample is known of it"


def _none(reason: str, dtype: torch.dtype) -> Sequence[Sample]:
    raise NoSampleError(reason)


def _compute(api: str, *args: Any, **kwargs: Any) -> Any:
    definition = _references().get(api)
    assert definition is not None, api
    return definition(*args, **kwargs)


_references = functools.cache(ReferenceRegistry)


def _drawn(api: str, samples: Sequence[Arguments], dtype: torch.dtype) -> Iterable[Sample]:
    """Return the samples in a dtype, of which 16-bit ones stand for each other. Raises NoSampleError without any."""
    name = str(dtype).removeprefix("torch.")
    fitting = [sample for sample in samples if name in sample.dtypes]
    if not fitting:
        raise NoSampleError(f"its samples are in {' and '.join(dict.fromkeys(sample.dtype for sample in samples))}")
    for number, sample in enumerate(fitting):
        call = _sample(f"{api}.{number}.forward", sample.record(name))
        dtypes = (sample.swept(one, name) for one in sample.results)
        yield call._replace(results=[getattr(torch, one) if one else None for one in dtypes])


def _sample(name: str, record: dict[str, Any]) -> Sample:
    call = Call(parse_api_name(name), forward_record(name, record), None, Path())
    arguments = build_arguments(call, seed=0, real_data=False)

    def with_gradient(path: str, leaf: Any) -> Any:
        return leaf.requires_grad_() if path in arguments.differentiable else leaf

    args, kwargs = (
        map_with_paths(with_gradient, tree, place)
        for tree, place in ((arguments.args, "args"), (arguments.kwargs, "kwargs"))
    )
    return Sample(args, kwargs)
