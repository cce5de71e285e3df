"""Arrays that a user's file names: ``.npy``, ``.safetensors`` or ``.pt``, left in their file until they are used."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe_hooks.errors import DumpError
from msprobe_hooks.regular_files import require_regular
from pytest_msprobe.engine.import_torch import import_torch
from pytest_msprobe.errors import OptionError
from pytest_msprobe.messages import not_one_of

if TYPE_CHECKING:
    import torch

_SUFFIXES = (".npy", ".safetensors", ".pt", ".pth")
_REMEDY = "name a .npy file, or the tensor in a .safetensors or .pt file by its key"


@dataclass(frozen=True)
class ArrayFile:
    """An array in a file; ``key`` is its name there, empty for a file of one array. ``place`` is the line that says so.

    Pickled objects are not read, and neither is code.
    """

    path: Path
    key: str
    place: str

    @property
    def name(self) -> str:
        """The name of the file, with that of the array where it has one."""
        return f"{self.path.name}[{self.key}]" if self.key else self.path.name

    @cached_property
    def tensor(self) -> torch.Tensor:
        """The array. Raises OptionError that names line, file and problem."""
        import_torch()
        try:
            return self._read()
        except OSError as error:
            raise self._refuse(f"cannot be read: {error.strerror or error}") from None
        except DumpError as error:
            raise OptionError(str(error), file=self.place) from None
        except OptionError:
            raise
        except Exception as error:
            # Bytes that are no array make the readers raise almost anything.
            first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise self._refuse(f"not a readable array: {first_line}") from None

    def _read(self) -> torch.Tensor:
        import numpy as np
        import torch

        if self.path.suffix == ".npy":
            if self.key:
                raise self._refuse("a .npy file holds one array; leave the key out")
            require_regular(self.path)
            # Copied where it is written to, which torch asks for and nothing does.
            return torch.from_numpy(np.load(self.path, mmap_mode="c", allow_pickle=False))
        if self.path.suffix == ".safetensors":
            return self._of_safetensors()
        if self.path.suffix not in _SUFFIXES:
            raise self._refuse(f"{self.path.suffix or 'no suffix'} is not one of {', '.join(_SUFFIXES)}")
        from msprobe_hooks.torch.torch_files import load_torch_file

        loaded = load_torch_file(self.path, mapped=True)
        if isinstance(loaded, dict):
            loaded = loaded[self._key_among(list(map(str, loaded)))]
        if not isinstance(loaded, torch.Tensor):
            raise self._refuse(f"holds a {type(loaded).__name__}, not a tensor")
        return loaded.detach()

    def _of_safetensors(self) -> torch.Tensor:
        from msprobe_hooks.dump.tensor_files.containers import tensor_names
        from pytest_msprobe.engine.values.tensor_files import read_contained

        return read_contained(self.path, self._key_among(tensor_names(self.path)), mapped=True)

    def _key_among(self, names: list[str]) -> str:
        if not self.key and len(names) == 1:
            return names[0]
        if not self.key:
            raise self._refuse(f"holds {len(names)} tensors; say which by its key")
        if self.key not in names:
            raise self._refuse(f"its key {self.key!r} is {not_one_of(self.key, names[:20])}")
        return self.key

    def _refuse(self, problem: str) -> OptionError:
        return OptionError(f"{self.path}: {problem}", file=self.place, remedy=_REMEDY)
