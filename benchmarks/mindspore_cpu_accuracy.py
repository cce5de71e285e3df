"""How far MindSpore's CPU kernels of functions are off, in units of the last place: by function, dtype and direction.

    python benchmarks/mindspore_cpu_accuracy.py [FILE]

Each function is called by every name that MindSpore has for it, on ranges around its zeros, its poles and its tails, on
tensors of few and of many elements, and judged against torch in raised precision. The rules that follow are written
into the policy ``default``, or into FILE (docs/standards-reference.md, "MindSpore's CPU kernels", says how).
"""

from __future__ import annotations

import argparse
import itertools
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from msprobe_hooks.dump.reader import read_dump
from msprobe_standards import Policy
from pytest_msprobe.devices.registry import DeviceRegistry
from pytest_msprobe.engine.frameworks import framework_named
from pytest_msprobe.engine.replay.call import read_call
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from tests.support.dumps.dump_files import forward, value, write_dump

#: Functions made of terms near 1, which is the least magnitude that their errors are related to, and that of the
#: gradients that arrive for those of theirs; others are related to their own mean magnitude at least.
NEAR_ONE = frozenset(
    """elu erf erfc expm1 gelu hardsigmoid hardswish log log10 log1p log2 log_softmax logsigmoid mish selu sinc softplus
    tanh tanhshrink""".split()
)
#: Functions whose gradients are products with differences of those that arrive, related to a share of these.
DIFFERENCES = {"sigmoid": 1.0, "silu": 1.0, "glu": 1.0, "softmax": 0.02}
#: Gradients that MindSpore 2.10 computes wrongly, or otherwise where a function has a kink, and the function whose
#: results they are held to.
WRONG_GRADIENTS = {"binary_cross_entropy_with_logits": "sigmoid", "selu": "elu", "hardswish": "hardswish"}
#: Other names of the same kernels.
_ALSO = {"silu": ["swish"], "softmax": ["softmin"], "cross_entropy": ["SoftmaxCrossEntropyWithLogits"]}
#: Other vector units, compilers and versions round otherwise, and no measurement meets the worst input; the least
#: limits are those of good libraries.
_ALLOWANCE = 8
_LEAST = {"float32": 8, "float16": 4}
_RULES = Path(__file__).parents[1] / "standards" / "msprobe_standards" / "policies" / "measured" / "mindspore-cpu.yaml"
_HEAD = """\
# Written by benchmarks/mindspore_cpu_accuracy.py: what MindSpore's CPU kernels of these functions may be off by.
# The comment of each rule is the greatest error that was measured.
"""
_ANY = ((-2, 2), (-10, 10), (-0.1, 0.1), (-20, 20), (4, 9), (-9, -4))
_POSITIVE = ((0.01, 1), (0.5, 2), (1, 100), (0.99, 1.01), (1e-4, 1e-2))
_UNIT = ((-0.9, 0.9), (-0.99, 0.99), (-0.1, 0.1))
_SHARES = ((0.01, 0.99), (0.4, 0.6))
_SHAPES = ((64, 256), (4, 9))
_SEEDS = 2
_PLACES = ("Mint", "MintFunctional", "Functional", "Tensor", "Primitive")

Ranges = tuple[tuple[float, float], ...]

#: Ranges of the first argument, by function; further arguments by their plain values.
FUNCTIONS: dict[str, tuple[Ranges, tuple[Any, ...]]] = {
    **dict.fromkeys(
        """elu erf erfc exp gelu hardsigmoid hardswish logsigmoid mish selu sigmoid silu sinc softplus tanh
        tanhshrink expm1""".split(),
        (_ANY, ()),
    ),
    **dict.fromkeys(("log", "log2", "log10", "log1p"), (_POSITIVE, ())),
    "erfinv": (_UNIT, ()),
    "softmax": (_ANY, ("axis",)),
    "log_softmax": (_ANY, ("axis",)),
    "logsumexp": (_ANY, (-1,)),
    "glu": (((-2, 2), (-10, 10)), ()),
    "binary_cross_entropy": (_SHARES, ("shares",)),
    "binary_cross_entropy_with_logits": (((-2, 2), (-10, 10)), ("shares",)),
    "cross_entropy": (((-2, 2), (-10, 10), (-60, 60)), ("classes",)),
    "nll_loss": (((-2, 2), (-10, 10)), ("classes",)),
}
_PRIMITIVES = {
    "elu": "Elu", "erf": "Erf", "erfc": "Erfc", "exp": "Exp", "expm1": "Expm1", "gelu": "GeLU",
    "hardsigmoid": "HSigmoid",
    "hardswish": "HSwish", "log": "Log", "log1p": "Log1p", "log_softmax": "LogSoftmax", "mish": "Mish", "selu": "SeLU",
    "sigmoid": "Sigmoid", "softmax": "Softmax", "softplus": "Softplus", "tanh": "Tanh",
}  # fmt: skip


def measure() -> dict[str, dict[str, float]]:
    """Return the greatest error of each function by dtype and direction: ``float32``, ``float32 backward``."""
    framework = framework_named("mindspore")
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        device = framework.device(DeviceRegistry(), "cpu")
        for function, dtype, records in _calls():
            loaded = _policy(Path(folder), function)
            dump = read_dump(write_dump(Path(folder), records, framework="mindspore"))
            errors = found.setdefault(function, {})
            for name in dump.api_names[::2]:
                for seed in range(_SEEDS):
                    replay = Replay(read_call(dump, name), ReplayConfig(device, loaded, framework=framework, seed=seed))
                    for result, key in ((replay.forward(), dtype), (replay.backward(), f"{dtype} backward")):
                        for output in result.outputs:
                            error = float(output.verdict.metrics.get("max_ulp_error", 0.0))
                            errors[key] = max(errors.get(key, 0.0), error)
    return found


def limits_of(function: str, direction: str, measured: float, dtype: str = "float32") -> dict[str, float]:
    """Return the limits for a function that was off by this much: a power of two from ``_ALLOWANCE`` times it."""
    allowed = 2 ** math.ceil(math.log2(max(_ALLOWANCE * measured, _LEAST[dtype])))
    one = float(function in NEAR_ONE)
    floor = DIFFERENCES.get(function, one) if direction == "backward" else one
    name = "arriving_floor" if direction == "backward" else "least_magnitude"
    return {"max_ulp": allowed, "scale_floor": 1} | ({name: floor} if floor else {})


def rules(measured: dict[str, dict[str, float]]) -> Iterator[str]:
    """Yield the rules, one a line, as a policy has them."""
    for direction in ("forward", "backward"):
        for function, errors in sorted(measured.items()):
            for dtype, output in (("float32", "[float32]"), ("float16", "[float16, bfloat16]")):
                error = errors[dtype] if direction == "forward" else errors[f"{dtype} backward"]
                if direction == "backward" and function in WRONG_GRADIENTS:
                    error = measured[WRONG_GRADIENTS[function]][dtype]
                limits = ", ".join(
                    f"{key}: {limit:g}" for key, limit in limits_of(function, direction, error, dtype).items()
                )
                apis = ", ".join([function, *_ALSO.get(function, [])])
                back = f"backward: {str(direction == 'backward').lower()}, "
                yield (
                    f"- {{standard: ulp, framework: mindspore, device: cpu, {back}output: {output}, apis: [{apis}], "
                    f"limits: {{{limits}}}}}  # {error:.3g}\n"
                )


def _policy(folder: Path, function: str) -> Policy:
    path = folder / f"{function}.yaml"
    rules = [
        {"standard": "ulp", "backward": is_backward, "limits": limits_of(function, direction, 0.0) | {"max_ulp": 1e30}}
        for direction, is_backward in (("forward", False), ("backward", True))
    ]
    path.write_text(yaml.safe_dump({"name": function, "rules": rules}))
    return Policy.load(path)


def _calls() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for function, (ranges, more) in FUNCTIONS.items():
        for dtype in ("float32", "float16"):
            records: dict[str, Any] = {}
            for place in _PLACES:
                # Kernels differ by the axis, and by whether rows fill a vector.
                for number, (bounds, shape, axis) in enumerate(itertools.product(ranges, _SHAPES, (-1, 0))):
                    given = tuple(axis if each == "axis" else each for each in more)
                    records |= _records(place, function, number, dtype, bounds, shape, given)
            yield function, dtype, records


def _records(
    place: str,
    function: str,
    number: int,
    dtype: str,
    bounds: tuple[float, float],
    shape: tuple[int, ...],
    more: tuple[Any, ...],
) -> dict[str, Any]:
    api, arguments, settings = f"{place}.{function}", [_argument(each, shape, dtype) for each in more], {}
    if place == "Primitive":
        if function not in _PRIMITIVES:
            return {}
        api, settings = f"Primitive.f.{_PRIMITIVES[function]}", {"axis": more[0]} if more else {}
        arguments = []
    if api == "Primitive.f.Elu":
        settings = {"alpha": 1.0}
    body = forward(_tensor(shape, *bounds, dtype), *arguments, output=[_tensor((1,), -1, 1, dtype)])
    if settings:
        body["details"] = {"settings": settings}
    gradient = {"input": [_tensor((1,), -1.0, 1.0, dtype)], "output": []}
    return {f"{api}.{number}.forward": body, f"{api}.{number}.backward": gradient}


def _argument(plain: Any, shape: tuple[int, ...], dtype: str) -> Any:
    if plain == "shares":
        return _tensor(shape, 0.05, 0.95, dtype)
    if plain == "classes":
        return _tensor(shape[:1], 0, shape[1] - 1, "int32")
    return value(plain)


def _tensor(shape: tuple[int, ...], low: float, high: float, dtype: str) -> dict[str, Any]:
    statistics = {"Max": high, "Min": low, "Mean": None, "Norm": None}
    return {"type": "mindspore.Tensor", "dtype": dtype.capitalize(), "shape": list(shape)} | statistics


def main() -> None:
    """Measure, and write the rules."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", default=_RULES)
    parser.parse_args().file.write_text(_HEAD + "".join(rules(measure())))


if __name__ == "__main__":
    main()
