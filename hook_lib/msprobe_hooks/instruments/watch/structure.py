"""The structure of a model as it runs: what goes into each module and comes out, and the stack that calls it."""

from __future__ import annotations

import csv
import json
import traceback
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from msprobe_hooks.instruments.watch.collection import Collection

STRUCTURE_FILE = "module_struct.json"
STACK_FILE = "stack_info.csv"

# The frames that run hooks tell nothing.
_HIDDEN = (str(Path(__file__).parent), nn.modules.module.__file__)


class Structure:
    """Notes the first call of each module, given as name and module, until `write`."""

    def __init__(
        self, collection: Collection, modules: Sequence[tuple[str, nn.Module]], *, has_structure: bool, has_stacks: bool
    ) -> None:
        self._has_structure = has_structure
        self._has_stacks = has_stacks
        self._structure: dict[str, dict[str, Any]] = {}
        self._stacks: dict[str, str] = {}
        self._handles: list[Any] = []
        for name, module in modules:
            hook = collection.harmless(f"the structure of module {name!r}", partial(self._note, name))
            self._handles.append(module.register_forward_hook(hook))

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def write(self, folder: Path) -> None:
        """Write what was noted, of which there is no more."""
        self.remove()
        folder.mkdir(parents=True, exist_ok=True)
        if self._has_structure:
            (folder / STRUCTURE_FILE).write_text(json.dumps(self._structure, indent=2) + "\n")
        if self._has_stacks:
            with (folder / STACK_FILE).open("w", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(("module_name", "stack_info"))
                writer.writerows(self._stacks.items())

    def _note(self, name: str, _: nn.Module, inputs: Any, output: Any) -> None:
        if name in self._structure:
            return
        self._structure[name] = {"input": _described(inputs), "output": _described(output)}
        if self._has_stacks:
            frames = reversed([one for one in traceback.extract_stack() if not one.filename.startswith(_HIDDEN)])
            self._stacks[name] = "".join(
                f"File {one.filename}, line {one.lineno}, in {one.name}, \n {one.line}\n" for one in frames
            )


def _described(value: Any) -> dict[str, str]:
    """Return what msprobe says of a value: ``{"config": "tuple[1]", "0": "size=(2, 8), dtype=torch.float32"}``."""
    if isinstance(value, (tuple, list)):
        sizes = {str(place): _size(one) for place, one in enumerate(value)}
        return {"config": f"{type(value).__name__}[{len(value)}]", **sizes}
    return {"config": "tensor", "tensor": _size(value)} if isinstance(value, Tensor) else {"config": f"{type(value)}"}


def _size(value: Any) -> str:
    return f"size={tuple(value.shape)}, dtype={value.dtype}" if isinstance(value, Tensor) else f"{type(value)}"
