"""Why records differ between msprobe and msprobe_hooks: a class of differences and its reason."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml

_GROUPS = {"Functional": "functional", "Tensor": "tensor", "Torch": "torch", "VF": "_VF"}

_RETURNS_ITS_INPUT = ("Tensor.to.", "Tensor.float.", "Tensor.type_as.", "Functional.dropout.")


@cache
def supported(environment: Path) -> dict[str, frozenset[str]]:
    """Return the API names that an installed msprobe records, by the first part of a record's name."""
    (path,) = environment.glob("lib/python3*/site-packages/msprobe/pytorch/**/support_wrap_ops.yaml")
    groups = yaml.safe_load(path.read_text())
    return {type_: frozenset(groups[group]) for type_, group in _GROUPS.items()}


def unequal_values(kind: str, name: str, *, peer_changed: bool) -> str:
    """Return the class of a record whose numbers differ by more than rounding."""
    if kind == "unexplained: close values" and peer_changed:
        return "values after the peer changed results"
    if kind == "unexplained: values" and name.startswith(_RETURNS_ITS_INPUT) and name.endswith(".backward"):
        return "values through an unchanged tensor"
    return kind


def peer_only_record(name: str, version: str) -> str:
    """Return the class of a record that only msprobe has."""
    if name.startswith("Tensor.view_as.") and version == "1.2.2":
        return "only msprobe: made by its module hooks"
    if name.rpartition(".")[0].rpartition(".")[0] in ("Torch.pow", "Torch.floor_divide", "Torch.remainder"):
        return "only msprobe: inside an operator"
    return "MISSED"


def extra_record(name: str, version: str, apis: dict[str, frozenset[str]]) -> str:
    """Return the class of a record that only msprobe_hooks has."""
    type_, _, rest = name.partition(".")
    if type_ == "Module":
        return "only ours: module backward" if ".backward." in name else "unexplained: only ours"
    api = rest.rpartition(".")[0].rpartition(".")[0]
    if api not in apis[type_]:
        return "only ours: not in msprobe's list"
    if f"{type_}.{api}" in ("Tensor.neg", "Tensor.abs"):
        return "only ours: an operator"
    if name.endswith(".backward"):
        return "only ours: call backward"
    if version != "1.2.2" and f"{type_}.{api}" in ("VF.lstm", "Torch.ones_like"):
        return "only ours: called from a place that keeps the original function"
    return "unexplained: only ours"


REASONS = {
    "other name": "1.2.2 numbers no parameters_grad; 26.x drops linalg. from names; module backward calls are numbered"
    " as they arrive by msprobe, as their forward calls by us",
    "only msprobe: made by its module hooks": "1.2.2's module hooks view every input and output and record that",
    "only msprobe: inside an operator": "1.2.2 does not know 2 ** x, 2 % x, x // 2: it records what they call; we"
    " record the operator, as 26.x does",
    "only ours: not in msprobe's list": "an API that this version of msprobe does not record",
    "only ours: an operator": "-x and abs(x), which msprobe does not see; we record Tensor.neg and Tensor.abs",
    "only ours: module backward": "msprobe's hooks see no gradient where a module works in place (26.x), or no input"
    " wants one (1.2.2)",
    "only ours: call backward": "msprobe's hook does not fire: in-place calls under module hooks, __setitem__, dropout"
    " with p = 0",
    "only ours: called from a place that keeps the original function": "26.x replaces attributes after nn.LSTM and"
    " autograd took their references",
    "order": "backward records are written when the last gradient of the call has left; msprobe writes when its one"
    " hook fires, and at once for modules whose positional inputs want no gradient",
    "key is_recompute": "1.2.2's key, kept; 26.x has none",
    "key details": "what msprobe's form loses: tuples, classes, complex numbers, positional dtypes",
    "key stride": "memory layout, kept",
    "key memory_format": "memory layout, kept",
    "key Max_except_inf_nan": "finite extrema as 1.2.2 writes them, in all cases",
    "key Min_except_inf_nan": "finite extrema as 1.2.2 writes them, in all cases",
    "no Mean of integers": "26.x computes none",
    "no Norm of integers": "26.x computes none",
    "rounding of Mean in bfloat16": "msprobe reduces in bfloat16, we in float32",
    "rounding of Norm in bfloat16": "msprobe reduces in bfloat16, we in float32",
    "rounding of Mean in float32": "another order of the sum",
    "rounding of Norm in float32": "another order of the sum",
    "rounding of Mean in int64": "1.2.2 casts to float32, we compute exactly",
    "rounding of Norm in int64": "1.2.2 casts to float32, we compute exactly",
    "md5 of bfloat16 1.2.2": "1.2.2 widens to float32 first; we hash the bytes, as 26.x does",
    "md5 26.2.0": "26.x hashes later, in another thread, tensors that were changed in place since",
    "md5 of bfloat16 26.2.0": "26.x hashes later, in another thread, tensors that were changed in place since",
    "gradients of the last node": "msprobe's output holds what the last autograd node of the call passes on; ours the"
    " gradients of the call's inputs",
    "gradients of the first output": "msprobe sees the first output only; ours all",
    "module backward input length": "1.2.2 flattens one level of outputs; ours all tensors",
    "module backward input value": "an output that the module itself goes on using: ours includes that use",
    "module backward output length": "msprobe sees positional inputs only (1.2.2 with a place for those that want no"
    " gradient); ours every input that wants one",
    "module backward output value": "msprobe sees positional inputs only; ours every input that wants one",
    "values of module forward input_args": "1.2.2 reads a module's inputs after it ran, changed in place",
    "values through an unchanged tensor": "a call that returned its input, under module hooks of msprobe that put a"
    " node of their own between: ours holds the gradient of the tensor",
    "recording changed the peer's results": "msprobe's module hooks change the order in which gradients are added up",
    "values after the peer changed results": "follows from it",
}
