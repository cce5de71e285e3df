"""Facts of a PyTorch training: random functions, counted without being replaced, digests of data, switches of torch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from msprobe_hooks.extensions.environment.random_calls import RandomCounts
from msprobe_hooks.extensions.environment.recorder import CallReport
from msprobe_hooks.extensions.environment.start_file import TensorFact, digest, fact
from msprobe_hooks.recording.interposition import Interposition, uncopied
from msprobe_hooks.torch.apis import Api, ApiTable
from msprobe_hooks.torch.call_mode import CallMode, ThisThread
from msprobe_hooks.torch.modules import UnscriptedHooks
from msprobe_hooks.torch.no_dispatch import NoDispatch
from msprobe_hooks.torch.session import process_rank
from msprobe_hooks.torch.statistics import Deferred, fetch, is_readable, local_part, measure
from msprobe_hooks.torch.tensor_memory import as_bytes

_FUNCTIONS = (
    *("rand", "randint", "randn", "rand_like", "randint_like", "randn_like", "randperm", "normal", "bernoulli"),
    "multinomial",
)
_METHODS = (
    *("exponential_", "geometric_", "log_normal_", "cauchy_", "normal_", "uniform_", "bernoulli_", "random_"),
    *("bernoulli", "multinomial"),
)
# What these call inside is not seen.
_INITIALISING = ("uniform_", "normal_", "kaiming_uniform_")
_SEED = "torch.manual_seed"
_BETWEEN = (str(Path(torch.__file__).parent), str(Path(__file__).parents[2]))

# A choice: a batch that holds itself ends here.
_DEEPEST = 32

_BACKENDS = (
    *("fp32_precision", "cuda.matmul.allow_tf32", "cuda.matmul.fp32_precision", "cuda.matmul.allow_fp16_accumulation"),
    "cuda.matmul.allow_fp16_reduced_precision_reduction",
    "cuda.matmul.allow_bf16_reduced_precision_reduction",
    *("cuda.preferred_linalg_library()", "cuda.flash_sdp_enabled()", "cuda.mem_efficient_sdp_enabled()"),
    *("cuda.math_sdp_enabled()", "cuda.cudnn_sdp_enabled()", "cuda.preferred_blas_library()"),
    *("cudnn.enabled", "cudnn.benchmark", "cudnn.deterministic", "cudnn.allow_tf32", "cudnn.version()"),
    *("cudnn.conv.fp32_precision", "cudnn.rnn.fp32_precision"),
    *("mkldnn.enabled", "mkldnn.deterministic", "mkldnn.matmul.fp32_precision", "mkldnn.conv.fp32_precision"),
)

_OF_CARDS = {"npu": ("matmul.allow_hf32", "conv.allow_hf32")}


class TorchRandom:
    """Counts what draws from torch's generators, or seeds them, between ``begin`` and ``end``."""

    def __init__(self, counts: RandomCounts) -> None:
        table: ApiTable = {getattr(torch, name): Api(f"torch.{name}") for name in _FUNCTIONS}
        table |= {getattr(torch.Tensor, name): Api(f"torch.Tensor.{name}") for name in _METHODS}
        table |= {getattr(torch.nn.init, name): Api(f"torch.nn.init.{name}") for name in _INITIALISING}
        self._names = [api.qualified for api in table.values()]
        self._counts = counts
        self._mode = ThisThread(_CountingMode(table, counts))
        self._seeding: Interposition | None = None

    @property
    def names(self) -> list[str]:
        """Return what is counted."""
        return [*self._names, _SEED]

    def begin(self) -> None:
        """Begin counting."""
        self._mode.begin()
        self._seeding = Interposition(torch.manual_seed, self._seed)

    def end(self) -> None:
        """End counting."""
        self._mode.end()
        if self._seeding is not None:
            self._seeding.remove()
            self._seeding = None

    def _seed(self, function: Any, args: Any, kwargs: Any) -> Any:
        self._counts.note_seed(_SEED, args, kwargs)
        frame: FrameType | None = sys._getframe()
        # It is decorated, by other functions in each version.
        while frame is not None and frame.f_code.co_filename.startswith(_BETWEEN):
            frame = frame.f_back
        self._counts.note(_SEED, frame)
        return function(*args, **kwargs)


class _CountingMode(CallMode):
    """Makes every call as it is, and counts those of the table."""

    def __init__(self, table: ApiTable, counts: RandomCounts) -> None:
        super().__init__(table)
        self._counts = counts

    def make(self, api: Api, func: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        """Count a call and make it."""
        self._counts.note(api.qualified, frame)
        return func(*args, **kwargs)

    def note_error(self, where: str, error: Exception) -> None:
        """Ignore it: there is nothing that could fail."""


def values_given(
    args: tuple[Any, ...], kwargs: dict[str, Any], fact_of: Callable[[Any], TensorFact | None]
) -> dict[str, TensorFact | str]:
    """Return the values of a call by place, as ``args.0`` or ``kwargs.inputs.mask``.

    ``fact_of`` describes a tensor or an array, and returns None for what is neither.
    """
    return dict([*_leaves("args", args, 0, fact_of), *_leaves("kwargs", kwargs, 0, fact_of)])


def _leaves(
    path: str, value: Any, depth: int, fact_of: Callable[[Any], TensorFact | None]
) -> Iterator[tuple[str, TensorFact | str]]:
    fact = fact_of(value)
    if fact is not None:
        yield path, fact
    elif value is None or isinstance(value, (bool, int, float, str)):
        yield path, f"{type(value).__name__}: {value}" if isinstance(value, str) else str(value)
    elif depth < _DEEPEST and isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(f"{path}.{key}", item, depth + 1, fact_of)
    elif depth < _DEEPEST and isinstance(value, (list, tuple)):
        for place, item in enumerate(value):
            yield from _leaves(f"{path}.{place}", item, depth + 1, fact_of)


def weights_and_buffers(model: nn.Module) -> tuple[dict[str, TensorFact], dict[str, TensorFact]]:
    """Return the parameters and the buffers of a model by name; of distributed ones the part of this rank."""
    parameters = {name: tensor_fact(value) for name, value in model.named_parameters()}
    return parameters, {name: tensor_fact(value) for name, value in model.named_buffers()}


def batch(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, TensorFact | str]:
    """Return the values that a model was called with, by place, as ``args.0`` or ``kwargs.inputs.mask``."""
    return values_given(args, kwargs, _fact_of)


def _fact_of(value: Any) -> TensorFact | None:
    if isinstance(value, Tensor):
        return tensor_fact(value)
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        return tensor_fact(torch.from_numpy(np.ascontiguousarray(value).copy()))
    return None


def tensor_fact(tensor: Tensor) -> TensorFact:
    """Return digest (BLAKE2b of the bytes of the contiguous tensor), statistics, dtype and shape of a tensor."""
    with NoDispatch():
        own = local_part(tensor.detach())
        dtype, shape = str(own.dtype).removeprefix("torch."), tuple(own.shape)
        if not is_readable(own):
            return TensorFact(dtype=dtype, shape=shape)
        statistics = measure(own)
        if isinstance(statistics, Deferred):
            fetch([statistics])
        return fact(statistics, dtype, shape, _bytes(own))


def _bytes(tensor: Tensor) -> memoryview:
    return as_bytes(tensor.resolve_conj().resolve_neg().contiguous().cpu()).data


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
        return _torch_switches()

    def generator_states(self, seeded: dict[str, str]) -> dict[str, str]:
        """Return torch's seed, and digests of what its generators have come to."""
        states = {
            "torch.initial_seed": str(torch.initial_seed()),
            "state of torch": digest(torch.get_rng_state().numpy().tobytes()),
        }
        for kind, library in _used_cards().items():
            if hasattr(library, "get_rng_state"):
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


def _torch_switches() -> dict[str, str]:
    """Return torch's switches and math modes, versions below it and the card, each in words.

    Nothing is started for it: a card is named only where the program uses it already.
    """
    states = {name: _read(read) for name, read in _SWITCHES.items()}
    states |= {f"backends.{place}": _read(partial(_at, torch.backends, place)) for place in _BACKENDS}
    states |= _card()
    return {name: state for name, state in states.items() if state is not None}


def _read(read: Callable[[], Any]) -> str | None:
    try:
        return str(read())
    except Exception:
        # Another torch lacks the switch, or refuses the older spelling of one that was set by the newer.
        return None


def _autocast_kinds() -> list[str]:
    return [kind for kind in ("cpu", *_kinds()) if _is_autocast(kind)]


def _is_autocast(kind: str) -> bool:
    try:
        return torch.is_autocast_enabled(kind)
    except RuntimeError:
        return False


_SWITCHES: dict[str, Callable[[], Any]] = {
    "default dtype": torch.get_default_dtype,
    "default device": torch.get_default_device,
    "float32 matmul precision": torch.get_float32_matmul_precision,
    "deterministic algorithms": torch.are_deterministic_algorithms_enabled,
    "deterministic algorithms warn only": torch.is_deterministic_algorithms_warn_only_enabled,
    "anomaly detection": torch.is_anomaly_enabled,
    "autocast": lambda: [f"{kind}: {torch.get_autocast_dtype(kind)}" for kind in _autocast_kinds()] or "off",
    "threads": torch.get_num_threads,
    "interop threads": torch.get_num_interop_threads,
    "CPU capability": torch.backends.cpu.get_cpu_capability,
    "CUDA": lambda: torch.version.cuda,
    "ROCm": lambda: torch.version.hip,
    "deterministic fill": lambda: torch.utils.deterministic.fill_uninitialized_memory,  # type: ignore[attr-defined]
}


def _at(library: Any, place: str) -> Any:
    value = attrgetter(place.removesuffix("()"))(library)
    return value() if place.endswith("()") else value


def _card() -> dict[str, str | None]:
    for kind, library in _used_cards().items():
        switches = {place: _read(partial(_at, library, place)) for place in _OF_CARDS.get(kind, ())}
        return {"card": _read(partial(_at, library, "get_device_name()")), **switches}
    return {}


def _kinds() -> tuple[str, ...]:
    """Return the types of cards that torch and the backend that it has loaded know."""
    return "cuda", "xpu", torch._C._get_privateuse1_backend_name()


def _used_cards() -> dict[str, Any]:
    """Return the modules of the cards that the program has started, by type; a backend may not know whether it has."""
    libraries: dict[str, Any] = {kind: getattr(torch, kind, None) for kind in _kinds()}
    return {
        kind: library
        for kind, library in libraries.items()
        if library is not None and getattr(library, "is_initialized", getattr(library, "is_available", bool))()
    }
