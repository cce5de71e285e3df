"""One recorded API call: its forward record and, where there is one, its backward record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from msprobe_hooks.dump.names import ApiName, parse_api_name
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.dump.schema import BackwardRecord, ForwardRecord

#: Where ``torch.`` has operations in addition to its own. msprobe 26.x writes Torch.norm for torch.linalg.norm too.
NAMESPACES = ("linalg", "fft", "special", "sparse", "nested")


@dataclass(frozen=True, slots=True)
class Call:
    """A call as recorded; ``tensor_folder`` is where its real data would be.

    ``counterpart`` is the torch API of the same meaning, for a call of another framework or by another name.
    """

    name: ApiName
    forward: ForwardRecord
    backward: BackwardRecord | None
    tensor_folder: Path
    counterpart: ApiName | None = None

    @property
    def api(self) -> str:
        """The name of the API in torch's terms, without its type: ``linalg.norm``."""
        return (self.counterpart or self.name).api


@cache
def operation(api: str) -> str:
    """Return an API's name without namespace and overload: ``norm`` of linalg.norm, ``add_`` of ATen's add_.Tensor.

    An operator of a library has the library's name before its own: ``torchvision.nms`` of ops.torchvision.nms.default;
    torch's own and those of torch_npu have not.
    """
    head, _, rest = api.partition(".")
    if head == "ops":
        library, _, operator = rest.partition(".")
        operator = operator.partition(".")[0]
        return operator if library in ("aten", "npu", "atb") else f"{library}.{operator}"
    return rest if head in (*NAMESPACES, "nn", "atb") else head


def read_call(dump: Dump, forward_name: str, *, with_backward: bool = True) -> Call:
    """Decode a call from a dump by the name of its forward record, with its backward record if that is wanted.

    Raises RecordError where a record is malformed, ValueError where the name is.
    """
    name = parse_api_name(forward_name)
    return Call(
        name=name,
        forward=dump.forward(forward_name),
        backward=dump.backward(name.backward) if with_backward and name.backward in dump.records else None,
        tensor_folder=dump.tensor_folder,
    )


def argument_of(args: Sequence[Any], kwargs: Mapping[str, Any], position: int, *names: str) -> Any:
    """Return the argument at a position or under the first of its names; None where it was not given."""
    if position < len(args):
        return args[position]
    return next((kwargs[name] for name in names if name in kwargs), None)
