"""``torch.compile`` as a target: what a compiler makes of each function, next to its eager kernels."""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from msprobe_hooks.messages import did_you_mean
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.devices.device import Device
from pytest_msprobe.devices.math_modes import ReducedPrecision, reduced_precision
from pytest_msprobe.errors import DeviceError
from pytest_msprobe.modes.check.features import CheckFeature, FeatureOptions
from pytest_msprobe.results.result import LITTLE_JUDGED, DirectionResult, decode_extra

if TYPE_CHECKING:
    import torch

    from pytest_msprobe.modes.check.follow_ups import FollowUp, Judged
    from pytest_msprobe.reports.summary import Tally
    from pytest_msprobe.run.options import Options

DEFAULT_BACKEND: Final = "inductor"
# Under this name a result says what was compiled.
_COMPILED = "compiled"

# A compiled function keeps its graphs and its loaded kernels.
_KEPT = 256


class Compilation(msgspec.Struct, frozen=True):
    """Outcome of compiling one function for some dtypes and shapes, in one direction.

    ``graphs`` were captured, ``breaks`` says why Python ran between or in place of them. ``kernels`` were generated,
    None where the backend is another one than inductor, which counts them. ``seconds`` went into it, of a function that
    was compiled before none.
    """

    backend: str
    graphs: int
    breaks: tuple[str, ...] = ()
    kernels: int | None = None
    seconds: float = 0.0

    @property
    def left_eager(self) -> str:
        """Return why a verdict says little of the compiler: it compiled nothing; empty where it did."""
        if self.breaks and not self.kernels:
            return f"{self.backend} compiled nothing of it: {'; '.join(self.breaks)}"
        return f"{self.backend} only calls the eager kernel" if self.kernels == 0 else ""


@dataclass(slots=True)
class _Compiled:
    """A function compiled for some dtypes and shapes, by its directions once they have run."""

    function: Callable[..., Any]
    directions: dict[str, Compilation]


class CompiledDevice:
    """The ``best`` card that there is, with every function compiled by a ``backend`` of `torch.compile`.

    Gradients are those of the compiled function; autograd itself is not compiled. ``unclocked`` is entered
    while something is compiled, which takes seconds that are not the function's.
    """

    def __init__(self, best: Callable[[], Device] = CpuDevice, backend: str = "") -> None:
        self.name = f"compiled:{backend}" if backend else "compiled"
        self.backend = backend or DEFAULT_BACKEND
        self._best = best
        self.unclocked: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
        self._functions: OrderedDict[Hashable, _Compiled] = OrderedDict()
        self._numbers = itertools.count()
        self._last: tuple[str, _Compiled] | None = None

    def with_text(self, backend: str) -> CompiledDevice:
        """Return the device of another backend, which follows the colon of its name."""
        return CompiledDevice(self._best, backend)

    @functools.cached_property
    def eager(self) -> Device:
        """The card that functions are compiled for."""
        return self._best()

    def count(self) -> int:
        """Return the number of cards to compile for."""
        return self.eager.count()

    def activate(self, index: int) -> None:
        """Activate the card and compile something small: what a compiler loads first takes longest.

        Raises DeviceError where the backend is unknown, or has no compiler.
        """
        self.eager.activate(index)
        import torch
        import torch._dynamo
        import torch._functorch.config
        import torch._inductor.config

        backends = torch._dynamo.list_backends(None)
        if self.backend not in backends:
            message = (
                f"torch.compile has no such backend; it has {', '.join(backends)}{did_you_mean(self.backend, backends)}"
            )
            raise DeviceError(f"device {self.name!r}: {message}")
        # Kernels are small and workers many: no pool of compilers for each of them.
        torch._inductor.config.compile_threads = 1
        # From this cache both directions come at once, and no one could say which of them generated a kernel.
        torch._functorch.config.enable_autograd_cache = False
        try:
            self.call(torch.exp, (self.put(torch.ones(4)),), {}, record="")
        except Exception as error:
            problem = str(error).strip().splitlines()
            raise DeviceError(
                f"device {self.name!r}: backend {self.backend} cannot compile: {problem[0] if problem else error!r}; "
                "inductor needs a C++ compiler (CXX names one) for the CPU, compiled:aot_eager needs none"
            ) from error

    def math_modes(self) -> dict[str, str]:
        """Return the card's switches."""
        own: Callable[[], Mapping[str, str]] = getattr(self.eager, "math_modes", dict)
        return dict(own())

    def reduced_precision(self) -> ReducedPrecision:
        """Return in which modes the card computes with fewer bits."""
        return reduced_precision(self.eager)

    def location(self) -> torch.device:
        """Return where the card is."""
        return self.eager.location()

    def describe(self) -> str:
        """Return the backend and the card."""
        return f"torch.compile by {self.backend} on {self.eager.describe()}"

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy on the card."""
        return self.eager.put(tensor)

    def get(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a result as a CPU tensor."""
        return self.eager.get(tensor)

    def synchronize(self) -> None:
        """Wait for the card."""
        self.eager.synchronize()

    def call(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, record: str) -> Any:
        """Run the function compiled, or the backward pass of the one that ran last."""
        key, _, direction = record.rpartition(".")
        if direction == "backward":
            compiled = self._last[1] if self._last is not None and self._last[0] == key else None
            return self._run(compiled, direction, func, args, kwargs, record)
        compiled = self._compiled(func, args, kwargs)
        self._last = key, compiled
        return self._run(compiled, direction, compiled.function, args, kwargs, record)

    def take_compilation(self, record: str) -> Compilation | None:
        """Return what compiling the record that ran last came to, with the time that it took the first time asked."""
        key, _, direction = record.rpartition(".")
        if self._last is None or self._last[0] != key:
            return None
        directions = self._last[1].directions
        compilation = directions.get(direction)
        if compilation is not None:
            directions[direction] = msgspec.structs.replace(compilation, seconds=0.0)
        return compilation

    def _run(
        self,
        compiled: _Compiled | None,
        direction: str,
        func: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        record: str,
    ) -> Any:
        if compiled is None or direction in compiled.directions:
            return self.eager.call(func, args, kwargs, record=record)
        with self.unclocked(), _counted(self.backend) as compilation:
            result = self.eager.call(func, args, kwargs, record=record)
        compiled.directions[direction] = compilation()
        return result

    def _compiled(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> _Compiled:
        import torch

        signature = (func, torch.is_grad_enabled(), torch.is_autocast_enabled(), _signature((args, dict(kwargs))))
        compiled = self._functions.get(signature)
        if compiled is None:
            compiled = _Compiled(
                torch.compile(_apart(func, next(self._numbers)), backend=self.backend, dynamic=False), {}
            )
            self._functions[signature] = compiled
            if len(self._functions) > _KEPT:
                self._functions.popitem(last=False)
        self._functions.move_to_end(signature)
        return compiled


def _apart(func: Callable[..., Any], number: int) -> Callable[..., Any]:
    """Return a function that calls ``func`` and shares no code with others.

    torch gives up compiling code that was compiled for eight kinds of inputs, without a word.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    call.__code__ = call.__code__.replace(co_name=f"call_{number}")
    return call


def _signature(tree: Any) -> Hashable:
    """Return what arguments must share for one compilation to serve them."""
    import torch

    if isinstance(tree, torch.Tensor):
        layout = tree.stride() if tree.layout is torch.strided else tree.layout
        return tree.dtype, tuple(tree.shape), layout, tree.requires_grad, tree.device
    if isinstance(tree, (list, tuple)):
        return type(tree), tuple(map(_signature, tree))
    if isinstance(tree, dict):
        return tuple((name, _signature(value)) for name, value in tree.items())
    return type(tree), repr(tree)


@contextlib.contextmanager
def _counted(backend: str) -> Iterator[Callable[[], Compilation]]:
    """Yield what returns, once the block is over, what was compiled in it."""
    from torch._dynamo.utils import counters
    from torch._inductor import metrics

    breaks, graphs = dict(counters["graph_break"]), counters["stats"]["unique_graphs"]
    kernels, started = metrics.generated_kernel_count, time.perf_counter()
    ended = started

    def compilation() -> Compilation:
        new = (reason for reason, count in counters["graph_break"].items() if count > breaks.get(reason, 0))
        return Compilation(
            backend,
            counters["stats"]["unique_graphs"] - graphs,
            tuple(reason.strip().partition("\n")[0] for reason in new),
            metrics.generated_kernel_count - kernels if backend == DEFAULT_BACKEND else None,
            ended - started,
        )

    try:
        yield compilation
    finally:
        ended = time.perf_counter()


class CompiledFeature(CheckFeature):
    """Notes on calls whose kernels a compiler made."""

    name = "compiled"

    def usual_options(self) -> FeatureOptions:
        """Return the step that follows each verdict on the compiled device."""
        return _OnCompiledDevice()

    def tallies(self, *, in_detail: bool) -> Collection[Tally]:
        """Return what counts compiled calls."""
        return (CompiledTally(),)


@dataclass(frozen=True, slots=True)
class _OnCompiledDevice(FeatureOptions):
    """The step, without an option of its own: the device asks for it."""

    name = "compiled"

    def follow_up(self, options: Options) -> FollowUp | None:
        """Return what adds the notes, None for any other device."""
        return add_compilation_note if options.device.name.partition(":")[0] == "compiled" else None


def compilation_of(extras: Mapping[str, Any]) -> Compilation | None:
    """Return what the extras of a result say of compiling."""
    return decode_extra(extras, _COMPILED, Compilation)


def add_compilation_note(judged: Judged) -> DirectionResult:
    """Return a result with what was compiled, and of a failure whether the same call passes where it is not."""
    device, result = judged.replay.setup.device, judged.result
    assert isinstance(device, CompiledDevice)
    compilation = device.take_compilation(result.record)
    if compilation is None:
        # It did not come to a run on the device.
        return result
    result = result.with_extra(_COMPILED, msgspec.to_builtins(compilation))
    if result.verdict.outcome == "fail":
        return replace(result, notes=(*result.notes, _whose_fault(judged, device)))
    if result.verdict.outcome == "pass" and compilation.left_eager and LITTLE_JUDGED not in result.extras:
        return result.with_extra(LITTLE_JUDGED, compilation.left_eager)
    return result


def _whose_fault(judged: Judged, device: CompiledDevice) -> str:
    """Return what the same call comes to where nothing is compiled, on the same inputs, and then compiled again."""
    from pytest_msprobe.engine.replay.check import Replay
    from pytest_msprobe.engine.replay.rerun_differences import PASSED_AGAIN

    replay = judged.replay
    eager = Replay(replay.call, replace(replay.setup, device=device.eager)).judge(judged.direction)
    match eager.verdict.outcome:
        case "fail":
            return f"It fails without torch.compile as well, so the kernel is wrong: {eager.reason}"
        case "skip":
            return f"Without torch.compile it cannot be judged: {eager.reason}"
        case _ if replay.again().judge(judged.direction).verdict.outcome != "fail":
            return f"It passes without torch.compile, and {PASSED_AGAIN} compiled: it is not wrong each time."
        case _:
            return f"It passes without torch.compile: the code that {device.backend} made of it is wrong."


class CompiledTally:
    """Counts, for the summary, what was compiled and how long that took, and where Python ran in between."""

    def __init__(self) -> None:
        self._backend = ""
        self._compiled = 0
        self._seconds = 0.0
        self._breaks: Counter[str] = Counter()

    def add(self, extras: Mapping[str, Any]) -> None:
        """Count one record."""
        compiled = compilation_of(extras)
        if compiled is not None:
            self._backend = compiled.backend
            self._compiled += compiled.seconds > 0
            self._seconds += compiled.seconds
            self._breaks.update(compiled.breaks)

    def lines(self) -> list[str]:
        """Return the summary's lines."""
        if not self._backend:
            return []
        whole = f"{self._compiled} compiled by {self._backend} in {self._seconds:.1f} s; equal shapes share the code"
        return [whole, *(f"  {count} with a graph break: {reason}" for reason, count in self._breaks.most_common())]
