"""Operators with inputs to call them on: of torch's own database, of a table of MindSpore's, of libraries and files."""

from __future__ import annotations

import random
import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from importlib.metadata import entry_points
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch

from msprobe_hooks.messages import did_you_mean, escaped_name, listed
from msprobe_hooks.regular_files import read_regular
from msprobe_standards.decoding import YamlError, decode_yaml
from pytest_msprobe.engine.frameworks import framework_named
from pytest_msprobe.errors import CommandError, DeviceError
from pytest_msprobe.extensions.operators.sweep import DTYPES, FRAMEWORKS

#: Entry points of this group are functions that return operators.
ENTRY_POINTS = "pytest_msprobe.operators"

#: The dtypes in which an operator of a file is called, where the file names none.
FLOATING = ("float32", "float64", "float16", "bfloat16")
_SHOWN = 5

_MINDSPORE = "mindspore"
_MINDSPORE_TABLE = Path(__file__).with_name("mindspore.yaml")


class Sample(NamedTuple):
    """The arguments of one call, and the dtypes of what it returns where the function's may differ, None: no tensor."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any] = {}
    results: Sequence[torch.dtype | None] = ()


class NoSampleError(LookupError):
    """Raised where an operator has no samples in a dtype; the text says why."""


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator, and the calls of it that are recorded.

    Attributes:
        name: Its name, such as ``nn.functional.conv2d``.
        function: What is called.
        samples: Returns the calls' arguments in a dtype, on the CPU; tensors that are to have gradients require them.
        dtypes: The dtypes, such as ``bfloat16``, in which it is called.
        variant: A word that distinguishes several of one name.
        why_not: Why it is not called, of one that is only listed.
        recorded: The name under which a call is recorded as a whole, such as ``NPU.npu_swiglu``; empty where it is that
            of the function, or of those that it calls.
        library: A word without which no pattern chooses the operator, for one of a library that is not installed;
            without patterns it is not recorded. Empty for all others.
    """

    name: str
    function: Callable[..., Any]
    samples: Callable[[torch.dtype], Iterable[Sample]]
    dtypes: Collection[str]
    variant: str = ""
    why_not: str = ""
    recorded: str = ""
    library: str = ""

    @property
    def framework(self) -> str:
        """The framework: ``mindspore`` where the name begins so, else ``torch``."""
        return _MINDSPORE if self.name.startswith(f"{_MINDSPORE}.") else "torch"

    @property
    def label(self) -> str:
        """The name with the variant."""
        return f"{self.name}/{self.variant}" if self.variant else self.name

    def draw(self, dtype: torch.dtype, most: int) -> list[Sample]:
        """Return up to so many of the samples, the same in every process. Raises what drawing them raises."""
        torch.manual_seed(0)
        random.seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            drawn = list(self.samples(dtype))
        random.Random(0).shuffle(drawn)
        return drawn[:most]


def find_operators(patterns: Collection[str], files: Iterable[Path], framework: str = FRAMEWORKS[0]) -> list[Operator]:
    """Return a framework's operators that patterns name, all where there is none; those of files whatever they name.

    A pattern names an operator by its name, with or without the framework's or a variant, or by the last part of it.
    Raises CommandError where a pattern names none, a file cannot be used, torch's database cannot be imported, or
    MindSpore cannot.
    """
    of_files = [operator for path in files for operator in _of_file(path)]
    if of_files and not patterns:
        return of_files
    own = [*(_of_mindspore() if framework == _MINDSPORE else _of_torch())]
    of_libraries = (operator for operator in _of_libraries() if operator.framework == framework)
    all_operators = [*of_files, *of_libraries, *own]
    if not patterns:
        return [operator for operator in all_operators if not operator.library]
    for pattern in patterns:
        if not any(_is_named(operator, pattern) for operator in all_operators):
            hint = did_you_mean(pattern, dict.fromkeys(name for one in all_operators for name in _spellings(one)))
            raise CommandError(f"no operator {escaped_name(pattern)!r}{hint}")
    return [one for one in all_operators if any(_is_named(one, pattern) for pattern in patterns)]


def _is_named(operator: Operator, pattern: str) -> bool:
    return operator.library in pattern and any(fnmatchcase(name, pattern) for name in _spellings(operator))


def _spellings(operator: Operator) -> tuple[str, ...]:
    name = operator.name
    short = name.removeprefix(f"{_MINDSPORE}.")
    return name, operator.label, f"torch.{name}", short, name.rpartition(".")[2]


def _of_torch() -> Iterator[Operator]:
    """Yield the operators of torch's database."""
    # The module reads the command line of the program that imports it, and forbids it to set switches such as TF32's.
    words, sys.argv = sys.argv, sys.argv[:1]
    backends: Any = torch.backends
    try:
        with warnings.catch_warnings(), backends.__allow_nonbracketed_mutation():
            warnings.simplefilter("ignore")
            from torch.testing._internal.common_methods_invocations import op_db
    except ModuleNotFoundError as error:
        if error.name == "expecttest":
            raise CommandError(
                "torch's database of operators needs expecttest", remedy="pip install 'pytest-msprobe[operators]'"
            ) from None
        raise CommandError(f"the database of operators of torch {torch.__version__} needs {error.name}") from None
    except Exception as error:
        # It is torch's own test code, of whatever version and build.
        line = next(iter(str(error).splitlines()), type(error).__name__)
        raise CommandError(
            f"the database of operators of torch {torch.__version__} cannot be imported: {line}",
            remedy="name operators of your own with --file",
        ) from None
    finally:
        sys.argv = words
    for entry in op_db:
        yield _of_entry(entry)


def _of_entry(entry: Any) -> Operator:
    """Return an operator of torch's database, which says what of it the CPU supports."""
    differentiable = entry.supported_backward_dtypes("cpu") if entry.supports_autograd else frozenset()

    def samples(dtype: torch.dtype) -> Iterator[Sample]:
        has_gradient = dtype in differentiable and (dtype.is_floating_point or dtype.is_complex)
        for sample in entry.sample_inputs("cpu", dtype, requires_grad=has_gradient):
            yield Sample((sample.input, *sample.args), sample.kwargs)

    dtypes = frozenset(str(dtype).removeprefix("torch.") for dtype in entry.supported_dtypes("cpu"))
    return Operator(entry.name, entry.op, samples, dtypes, entry.variant_test_name)


def _of_mindspore() -> Iterator[Operator]:
    """Yield the operators of the table of MindSpore's; those that this version lacks are only listed."""
    try:
        framework_named(_MINDSPORE)
    except DeviceError as error:
        raise CommandError(str(error)) from None
    return _of_file(_MINDSPORE_TABLE, missing="this version of MindSpore has none")


def _of_libraries() -> Iterator[Operator]:
    """Yield the operators that installed libraries add by an entry point."""
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            yield from entry.load()()
        except Exception as error:
            # It is the library's own code.
            raise CommandError(f"entry point {entry.name} = {entry.value} of {ENTRY_POINTS} raises: {error}") from None


def _of_file(path: Path, missing: str = "") -> Iterator[Operator]:
    """Yield the operators of a file; one that cannot be found is only listed where ``missing`` says why.

    It names modules to import, and by each operator's name its samples and, where not all floats, its dtypes. A family
    has several names, for which braces may stand; those that are not called are listed by the reason::

        import: [torchvision]
        operators:
          torchvision::nms:
            dtypes: [float32]
            samples:
              - args: [{shape: [8, 4], low: 0, high: 9}, {shape: [8]}, 0.5]
        families:
          - names: torch.{add,mul} torch.maximum
            samples:
              - args: [{values: [1, 2]}, {shape: [2]}]
        left_out:
          random numbers: torch.{rand,randn}
    """
    try:
        content = decode_yaml(read_regular(path))
    except OSError as error:
        raise CommandError(f"cannot be read: {error.strerror}", file=path) from None
    except YamlError as error:
        raise CommandError(f"is no YAML: {error}", file=path) from None
    _require_keys(path, "the file", content, {"import": list, "operators": dict, "families": list, "left_out": dict})
    for module in content.get("import", ()):
        try:
            import_module(str(module))
        except Exception as error:
            raise CommandError(f"import {module}: {error}", file=path) from None
    for names, entry in [*content.get("operators", {}).items(), *_families(path, content.get("families", ()))]:
        _require_keys(path, names, entry, {"samples": list, "dtypes": list})
        for sample in entry.get("samples", ()):
            _require_keys(path, f"a sample of {names}", sample, {"args": list, "kwargs": dict})
        if not entry.get("samples"):
            raise CommandError(f"{names} has no samples", file=path, remedy="add a list samples, each with args")
        dtypes = [str(dtype) for dtype in entry.get("dtypes", FLOATING)]
        for name in _expanded(str(names)):
            try:
                yield Operator(name, _function(path, name), _drawn(entry["samples"]), dtypes)
            except CommandError:
                if not missing:
                    raise
                yield _listed(name, missing)
    for reason, names in content.get("left_out", {}).items():
        yield from (_listed(name, str(reason)) for name in _expanded(str(names)))


def _families(path: Path, families: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the names of each family, and the rest of it."""
    for family in families:
        _require_keys(path, "a family", family, {"names": str, "samples": list, "dtypes": list})
        if "names" not in family:
            raise CommandError("a family has no names", file=path, remedy="add names, such as torch.{add,mul}")
        yield family["names"], {key: value for key, value in family.items() if key != "names"}


def _listed(name: str, why_not: str) -> Operator:
    return Operator(name, _listed, lambda dtype: (), DTYPES, why_not=why_not)


def _expanded(names: str) -> Iterator[str]:
    """Yield the names that words with braces stand for, as in a shell: ``a.{b,c}`` for ``a.b`` and ``a.c``."""
    for word in re.findall(r"(?:[^\s{]|{[^}]*})+", names):
        choices = [[name.strip() for name in part.split(",")] for part in re.split(r"[{}]", word)]
        yield from map("".join, product(*choices))


def _require_keys(path: Path, where: str, content: Any, kinds: Mapping[str, type]) -> None:
    """Raise CommandError where a mapping has another key, or a value of another kind."""
    if not isinstance(content, dict):
        raise CommandError(f"{where}: expected a mapping with {listed([*kinds], _SHOWN)}", file=path)
    for key, value in content.items():
        if key not in kinds:
            raise CommandError(f"{where}: unknown key {key!r}{did_you_mean(key, kinds)}", file=path)
        if not isinstance(value, kinds[key]):
            expected = "a list" if kinds[key] is list else "a text" if kinds[key] is str else "a mapping"
            raise CommandError(f"{where}: {key} is {value!r}, expected {expected}", file=path)


def _function(path: Path, name: Any) -> Callable[..., Any]:
    """Return the function of a name such as ``torchvision::nms``, ``torch.ops.mine.gelu`` or ``torch.softmax``."""
    first, *others = str(name).replace("::", ".").split(".")
    module: Any = torch.ops if "::" in str(name) else torch if first == "torch" else None
    attributes = [first, *others] if "::" in str(name) else others
    try:
        function = import_module(first) if module is None else module
        for attribute in attributes:
            function = getattr(function, attribute)
    except (ImportError, AttributeError) as error:
        raise CommandError(
            f"no operator {name}: {error}", file=path, remedy="list the module that defines it under import"
        ) from None
    if not callable(function):
        raise CommandError(f"{name} is no function", file=path)
    return function  # type: ignore[no-any-return]


def _drawn(samples: Sequence[Mapping[str, Any]]) -> Callable[[torch.dtype], Iterator[Sample]]:
    def draw(dtype: torch.dtype) -> Iterator[Sample]:
        for sample in samples:
            args = [_value(value, dtype) for value in sample.get("args", ())]
            yield Sample(args, {name: _value(value, dtype) for name, value in sample.get("kwargs", {}).items()})

    return draw


def _value(value: Any, dtype: torch.dtype) -> Any:
    """Return an argument: a mapping with a shape is a tensor, of uniform numbers from ``low`` to ``high``.

    One with ``values`` is a tensor of these, one with a dtype alone is the dtype.
    """
    if isinstance(value, list):
        return [_value(one, dtype) for one in value]
    if not isinstance(value, dict) or not value.keys() & {"shape", "values", "dtype"}:
        return value
    own = getattr(torch, str(value["dtype"])) if "dtype" in value else dtype
    has_gradient = value.get("gradient", "dtype" not in value) and (own.is_floating_point or own.is_complex)
    if "values" in value:
        return torch.tensor(value["values"], dtype=own, requires_grad=has_gradient)
    if "shape" not in value:
        return own
    # The bounds of torch's own samples.
    low, high = value.get("low", -9), value.get("high", 9)
    return torch.testing.make_tensor(
        tuple(value["shape"]), dtype=own, device="cpu", low=low, high=high, requires_grad=has_gradient
    )
