"""Faults planted into MindSpore's functions, and how many of them are found.

    python benchmarks/mindspore_faults.py

Calls are those of the tests that MindSpore computes on a CPU, of mint, mint.nn.functional, ops, Tensor and primitives,
each with one fault: of its result, or of its first gradient.
"""

from __future__ import annotations

import inspect
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mindspore
import numpy as np
from measure import quote
from mindspore import Tensor, nn

Array = Any
SKIPPED = ("interpolate", "grid_sample", "binary_cross_entropy_with_logits", "SeLU", "rms_norm", "clone")


def _half(x: Array) -> Array:
    return x.astype(np.float16).astype(x.dtype)


def _scaled(x: Array) -> Array:
    return (x * 1.001).astype(x.dtype)


def _shifted(x: Array) -> Array:
    return (x + 1e-3 * np.abs(x).max()).astype(x.dtype)


def _at(place: int, change: Callable[[Any], Any]) -> Callable[[Array], Array]:
    def fault(x: Array) -> Array:
        flat = x.reshape(-1).copy()
        # Where there is something to lose: among the greater half of the elements.
        chosen = np.argsort(-np.abs(flat), kind="stable")[place % max(flat.size // 2, 1)]
        flat[chosen] = change(flat[chosen])
        return flat.reshape(x.shape)

    return fault


def _unwritten(x: Array) -> Array:
    flat = x.reshape(-1).copy()
    flat[flat.size - flat.size // 4 - 1 :] = 0
    return flat.reshape(x.shape)


FAULTS: dict[str, Callable[[Array], Array]] = {
    "in half precision": _half,
    "times 1.001": _scaled,
    "a thousandth of the greatest added": _shifted,
    "one element times 1.01": _at(3, lambda value: value * 1.01),
    "one sign": _at(1, lambda value: -value),
    "the end not written": _unwritten,
    "one NaN": _at(2, lambda value: np.nan),
}


class Gradient(nn.Cell):
    """Returns what it gets, and passes a faulty gradient back."""

    def __init__(self, fault: Callable[[Array], Array]) -> None:
        super().__init__()
        self.fault = fault

    def construct(self, x: Tensor) -> Tensor:
        """Return the same values."""
        return x * 1.0

    def bprop(self, x: Tensor, out: Tensor, gradient: Tensor) -> tuple[Tensor]:
        """Return the faulty gradient."""
        return (Tensor(self.fault(gradient.asnumpy())),)


def faulty(
    function: Callable[..., Any], fault: str, direction: str, felt: Callable[[], object] = bool
) -> Callable[..., Any]:
    """Return a function with a fault in its first float result, or in the gradient of its first float tensor.

    ``felt`` is called where the fault changes a value: a whole number in half precision is the same.
    """

    def change(values: Array) -> Array:
        changed = FAULTS[fault](values)
        if not np.array_equal(changed, values):
            felt()
        return changed

    def forward(*args: Any, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        first, *others = found if isinstance(found, (tuple, list)) else [found]
        values = first.asnumpy()
        first = first + Tensor(change(values) - values)
        return (first, *others) if isinstance(found, (tuple, list)) else first

    def backward(*args: Any, **kwargs: Any) -> Any:
        given, place = list(args), next(i for i, each in enumerate(args) if _is_float(each))
        if isinstance(given[place], Tensor):
            given[place] = Gradient(change)(given[place])
        else:
            given[place] = (Gradient(change)(given[place][0]), *given[place][1:])
        return function(*given, **kwargs)

    return forward if direction == "forward" else backward


def _is_float(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return bool(value) and _is_float(value[0])
    return isinstance(value, Tensor) and value.is_floating_point()


class Effects:
    """Counts how often a fault changed a value."""

    def __init__(self) -> None:
        self.count = 0

    def add(self) -> None:
        """Count one more."""
        self.count += 1


class Planted:
    """A class of primitives that all have a fault."""

    def __init__(self, plant: Callable[..., Any], kind: Callable[..., Any]) -> None:
        self.plant = plant
        self.kind = kind
        self.__signature__ = inspect.signature(kind)

    def __call__(self, **settings: Any) -> Any:
        """Return a primitive with the fault."""
        return self.plant(self.kind(**settings))


def plan(folder: Path) -> None:
    """Write a dump of the calls for each direction, and which fault each of them gets."""
    from tests.mindspore.calls import FUNCTIONAL, MINT, OPS, OUTPUTS, TENSOR, record
    from tests.support.dumps.dump_files import write_dump

    folder.mkdir(parents=True, exist_ok=True)
    tables = {"Mint": MINT, "MintFunctional": FUNCTIONAL, "Tensor": TENSOR, "Functional": OPS}
    differentiable = {kind: [each for each in table if each[0].endswith("+")] for kind, table in tables.items()}
    for shift, direction in enumerate(("forward", "backward")):
        planted: dict[str, str] = {}
        records: dict[str, Any] = {}
        faults = itertools.cycle(FAULTS)
        for kind, table in differentiable.items():
            # From the first call for results, from the last for gradients, so that a call has two faults.
            chosen = [each for each in (table, table[::-1])[shift] if each[0][:-1] not in SKIPPED]
            for name, *args in chosen:
                records |= record(f"{kind}.{name}", *args, output=OUTPUTS.get(f"{kind}.{name}"))
                planted[f"{kind}.{name[:-1]}.0"] = next(faults)
        for key, body in _held(shift).items():
            records[key] = body
            planted.setdefault(key.rpartition(".")[0], next(faults))
        write_dump(folder / direction, _with_shapes(records), framework="mindspore")
        (folder / direction / "faults.json").write_text(json.dumps(planted, indent=1))


def _with_shapes(records: dict[str, Any]) -> dict[str, Any]:
    """Return records with what their calls return: a check that draws gradients goes by the recorded shapes."""
    from msprobe_hooks.dump.reader import read_dump
    from pytest_msprobe.engine.replay.call import read_call
    from pytest_msprobe.engine.replay.check import Replay
    from tests.mindspore.calls import tensor
    from tests.support.dumps.dump_files import write_dump

    with TemporaryDirectory() as folder:
        dump = read_dump(write_dump(Path(folder), records, framework="mindspore"))
        for name in [name for name in records if name.endswith(".forward") and not name.startswith("Primitive")]:
            found = Replay(read_call(dump, name), _setup()).trial.target.output
            outputs = found if isinstance(found, (list, tuple)) else [found]
            backward = records.get(f"{name.removesuffix('.forward')}.backward")
            if backward is not None:
                backward["input"] = [
                    tensor(*each.shape, low=-1.0, high=1.0, dtype=_name_of(each)) if each.is_floating_point() else None
                    for each in outputs
                ]
    return records


def _name_of(each: Any) -> str:
    return str(each.dtype).removeprefix("torch.").capitalize()


def _held(shift: int) -> dict[str, Any]:
    from tests.corpus.mindspore_primitives import HELD, record_held
    from tests.support.dumps.dump_files import Json

    held = [each for each in HELD if each.differentiable and each.kind not in SKIPPED]
    chosen = (held, held[::-1])[shift]
    found: Json = {}
    with TemporaryDirectory() as folder:
        for number, each in enumerate(chosen):
            dump = record_held(each, Path(folder) / str(number))
            for key, body in json.loads(dump.read_text())["data"].items():
                kind, _, name, _, direction = key.split(".")
                found[f"{kind}.held{number}.{name}.0.{direction}"] = body
    return found


def _setup() -> Any:
    from msprobe_standards import Policy
    from pytest_msprobe.devices.registry import DeviceRegistry
    from pytest_msprobe.engine.frameworks import framework_named
    from pytest_msprobe.engine.replay.trials.config import ReplayConfig

    framework = framework_named("mindspore")
    return ReplayConfig(framework.device(DeviceRegistry(), "cpu"), Policy.load("default"), framework=framework)


def check(folder: Path) -> Iterator[tuple[str, str, str, bool]]:
    """Yield each fault, with its direction, and whether it is found."""
    from msprobe_hooks.dump.names import parse_api_name
    from msprobe_hooks.dump.reader import read_dump
    from pytest_msprobe.engine.replay.call import read_call
    from pytest_msprobe.engine.replay.check import Replay
    from pytest_msprobe.extensions.mindspore.framework import function_named

    setup = _setup()
    for direction in ("forward", "backward"):
        dump = read_dump(folder / direction / "dump.json")
        for key, fault in json.loads((folder / direction / "faults.json").read_text()).items():
            call = read_call(dump, f"{key}.forward")
            function = function_named(parse_api_name(f"{key}.forward"))
            assert function is not None, key

            plant = partial(faulty, fault=fault, direction=direction, felt=(effects := Effects()).add)
            wrong = Planted(plant, function) if key.startswith("Primitive") else plant(function)
            healthy = Replay(call, setup).judge(direction).verdict
            assert healthy.outcome == "pass", f"{key}: {healthy.reason}"
            found = Replay(call, setup, function=wrong).judge(direction).verdict.outcome == "fail"
            if effects.count:
                yield key, direction, fault, found
            else:
                print(f"void: {key}.{direction}: {fault}")


def main() -> None:
    """Plant the faults and count."""
    ours: dict[str, Counter[str]] = defaultdict(Counter)
    with TemporaryDirectory() as folder:
        plan(Path(folder))
        for key, direction, fault, is_found in check(Path(folder)):
            ours[f"{key.partition('.')[0]} {direction}"]["found" if is_found else "missed"] += 1
            if not is_found:
                print(f"missed: {key}.{direction}: {fault}")
    for kind, counts in ours.items():
        print(f"{kind}: {counts['found']} of {counts.total()}")
    found, planted = sum(counts["found"] for counts in ours.values()), sum(map(Counter.total, ours.values()))
    quote(f"MindSpore: of {planted} planted faults found", 100 * found / planted, unit="%")
    print(f"{found} of {planted} planted faults found, MindSpore {mindspore.__version__}")


if __name__ == "__main__":
    main()
