"""The Python that inductor generates for a graph: its kernels, and the buffers that they read and write.

A kernel that inductor generated writes into buffers that are passed to it. Which ones follows from the names of its
parameters: ``in_ptr*`` is read, ``out_ptr*`` written, ``in_out_ptr*`` both; for C++, what is not ``const`` is written.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from msprobe_hooks.errors import ConfigError

HOOK: Final = "_msprobe_call"
LEAST_TORCH: Final = (2, 10)

_LIBRARIES = ("extern_kernels.", "aten.", "torch.ops.", "inductor_ops.", "_quantized.")
_CPP_PARAMETERS = re.compile(r"\bkernel\((.*?)\)", re.DOTALL)
_UNWRITTEN = "empty_strided"
_NO_WORD = re.compile(r"\W+")
# A choice: names of tensor files may have 255 bytes, and inductor names a kernel after all that it does.
_LONGEST_NAME = 80


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a generated kernel."""

    name: str
    is_read: bool
    is_written: bool


@dataclass(frozen=True, slots=True)
class Written:
    """A buffer that a call writes: where it is found when the call is made, and its variable.

    ``place`` is the index of an argument, the name of a keyword argument, or None for the result. ``item`` is the
    index in a result of several tensors. ``variable`` is empty for memory that the graph goes on writing to.
    """

    place: int | str | None
    variable: str
    item: int | None = None


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A call of a kernel in generated code.

    ``read`` are the names of the arguments that it reads, by their places. ``operands`` are the variables that are
    passed to a library's kernel, in their order; empty for other expressions.
    """

    kernel: str
    read: Mapping[int | str, str]
    written: tuple[Written, ...]
    operands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GeneratedCode:
    """A graph's code with a hook around each call. ``arguments`` and ``results`` are the variables of the graph."""

    tree: ast.Module
    calls: tuple[KernelCall, ...]
    arguments: tuple[str, ...]
    results: tuple[str, ...]


def require_torch(version: str) -> None:
    """Raise ConfigError where this torch is older than what was tried."""
    numbers = tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit())
    if numbers < LEAST_TORCH:
        needed = ".".join(map(str, LEAST_TORCH))
        raise ConfigError(
            "level",
            "compiled",
            f"torch >= {needed}",
            problem=f"a recording of compiled code needs torch >= {needed}, this is {version}",
        )


def generated_code(source: str) -> GeneratedCode:
    """Return the code of a graph, to be run in the namespace of its module, where each kernel call is made by a hook.

    The hook is called ``HOOK`` and gets the number of the call, the kernel and the arguments.
    """
    module = ast.parse(source)
    kernels = _generated_kernels(module)
    calls: list[KernelCall] = []
    arguments: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    for function in _functions(module):
        reading = _Reading(kernels, len(calls))
        reading.read(function.body)
        calls += reading.finished()
        if function.name == "call":
            arguments, results = _arguments(function), _results(function)
    definitions = [
        node for node in module.body if isinstance(node, (ast.ClassDef, ast.FunctionDef)) or _is_runner(node)
    ]
    tree = ast.fix_missing_locations(ast.Module(body=definitions, type_ignores=[]))
    return GeneratedCode(tree, tuple(calls), arguments, results)


def _functions(module: ast.Module) -> Iterator[ast.FunctionDef]:
    """Yield the functions that call kernels."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef) and (node.name == "call" or node.name.startswith("partition_")):
            yield node


def _is_runner(node: ast.stmt) -> bool:
    """Return whether a statement makes the object that runs the graph, or names its methods."""
    return isinstance(node, ast.Assign) and _dotted(node.targets[0]) in {"runner", "call", "recursively_apply_fns"}


def _generated_kernels(module: ast.Module) -> dict[str, tuple[Parameter, ...]]:
    kernels = {}
    for node in module.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            maker = _dotted(node.value.func)
            texts = [one.value for one in node.value.args if isinstance(one, ast.Constant) and type(one.value) is str]
            if maker.startswith("async_compile.") and texts:
                read = _cpp_parameters if "cpp" in maker else _triton_parameters
                kernels[_dotted(node.targets[0])] = read(max(texts, key=len))
    return kernels


def _cpp_parameters(source: str) -> tuple[Parameter, ...]:
    match = _CPP_PARAMETERS.search(source)
    texts = [text.strip() for text in match[1].split(",")] if match and match[1].strip() else []
    parameters = []
    for text in texts:
        name = re.split(r"[\s*&]+", text)[-1]
        is_written = "*" in text and not text.startswith("const ")
        parameters.append(Parameter(name, not is_written or name.startswith("in_out"), is_written))
    return tuple(parameters)


def _triton_parameters(source: str) -> tuple[Parameter, ...]:
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    names = [argument.arg for argument in functions[-1].args.args] if functions else []
    return tuple(
        Parameter(name, not name.startswith("out_ptr"), name.startswith(("out_ptr", "in_out_ptr"))) for name in names
    )


def _arguments(function: ast.FunctionDef) -> tuple[str, ...]:
    for node in function.body:
        if isinstance(node, ast.Assign) and _dotted(node.value) == "args" and isinstance(node.targets[0], ast.Tuple):
            return tuple(map(_dotted, node.targets[0].elts))
    return ()


def _results(function: ast.FunctionDef) -> tuple[str, ...]:
    """Return the variables that are returned, whole or in another shape; empty for anything else."""
    for node in reversed(function.body):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
            return tuple(_dotted(one) or _base(one) for one in node.value.elts)
    return ()


class _Reading:
    """Reads the body of one function in its order, and puts the hook around calls of kernels."""

    def __init__(self, kernels: Mapping[str, Sequence[Parameter]], first: int) -> None:
        self._kernels = kernels
        self._first = first
        self._calls: list[KernelCall] = []
        # The memory behind a variable, and what was never written to.
        self._memory: dict[str, str] = {}
        self._unwritten: set[str] = set()
        self._last_call: dict[str, int] = {}
        self._results: dict[str, int] = {}

    def read(self, body: Sequence[ast.stmt]) -> None:
        """Read statements."""
        for node, following in zip(body, [*body[1:], None], strict=True):
            if isinstance(node, ast.With):
                self.read(node.body)
            elif isinstance(node, (ast.Expr, ast.Assign)):
                target = _dotted(node.targets[0]) if isinstance(node, ast.Assign) else ""
                if isinstance(node.value, ast.Call) and self._is_kernel(_dotted(node.value.func)):
                    self._take_call(node.value, target)
                elif target:
                    self._take_assignment(target, node.value, following)

    def finished(self) -> list[KernelCall]:
        """Return the calls, with a variable only for what has its final value when the call returns."""
        finished = []
        for number, call in enumerate(self._calls):
            written = (
                one if self._last_call.get(one.variable, number) == number else replace(one, variable="")
                for one in call.written
            )
            finished.append(replace(call, written=tuple(written)))
        return finished

    def _is_kernel(self, function: str) -> bool:
        return function.removesuffix(".run") in self._kernels or function.startswith(_LIBRARIES)

    def _take_call(self, call: ast.Call, target: str) -> None:
        function = _dotted(call.func)
        kernel = function.removesuffix(".run")
        number = len(self._calls)
        operands: tuple[str, ...] = ()
        if kernel in self._kernels:
            read, written = self._of_generated(call, self._kernels[kernel])
        else:
            read, written = self._of_library(call, function)
            operands = tuple(map(_dotted, call.args))
            if target:
                written.append(Written(None, target))
                self._results[target] = number
        for one in written:
            self._note_write(one.variable, number)
        self._calls.append(KernelCall(kernel, read, tuple(written), operands))
        call.args = [ast.Constant(self._first + number), call.func, *call.args]
        call.func = ast.copy_location(ast.Name(HOOK, ast.Load()), call)

    def _of_generated(
        self, call: ast.Call, parameters: Sequence[Parameter]
    ) -> tuple[dict[int | str, str], list[Written]]:
        read: dict[int | str, str] = {}
        written = []
        for place, (argument, parameter) in enumerate(zip(call.args, parameters, strict=False)):
            variable = _dotted(argument)
            if parameter.is_read and not self._is_unwritten(variable):
                read[place] = parameter.name
            if parameter.is_written:
                # A view of a buffer is only a part of its value.
                self._note_partial(argument)
                written.append(Written(place, variable))
        return read, written

    def _of_library(self, call: ast.Call, function: str) -> tuple[dict[int | str, str], list[Written]]:
        read: dict[int | str, str] = dict.fromkeys(range(len(call.args)), "")
        written = []
        if operator_name(function).endswith("_") and call.args:
            self._note_partial(call.args[0])
            written.append(Written(0, _dotted(call.args[0])))
        for keyword in call.keywords:
            if keyword.arg == "out":
                self._note_partial(keyword.value)
                written.append(Written("out", _dotted(keyword.value)))
            elif keyword.arg is not None:
                read[keyword.arg] = keyword.arg
        return read, written

    def _take_assignment(self, target: str, value: ast.expr, following: ast.stmt | None) -> None:
        if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant):
            self._take_item(target, _dotted(value.value), value.slice.value)
            return
        if isinstance(value, ast.Call) and _dotted(value.func).startswith(_UNWRITTEN):
            self._unwritten.add(target)
            return
        source = _dotted(value) or _base(value)
        if not source:
            return
        if self._is_unwritten(source):
            self._unwritten.add(target)
        is_deleted = isinstance(following, ast.Delete) and source in map(_dotted, following.targets)
        if not is_deleted:
            # Both variables go on: what is written to one is written to the other.
            self._memory[target] = source

    def _take_item(self, target: str, source: str, index: object) -> None:
        number = self._results.get(source)
        if number is not None and isinstance(index, int):
            call = self._calls[number]
            others = tuple(one for one in call.written if one.variable != source)
            self._calls[number] = replace(call, written=(*others, Written(None, target, index)))

    def _is_unwritten(self, variable: str) -> bool:
        return variable in self._unwritten

    def _note_partial(self, argument: ast.expr) -> None:
        base = _base(argument)
        if base:
            self._note_write(base, len(self._calls))

    def _note_write(self, variable: str, number: int) -> None:
        while variable:
            self._unwritten.discard(variable)
            self._last_call[variable] = number
            variable = self._memory.get(variable, "")


def operator_name(function: str) -> str:
    """Return the name of the operator that a library's kernel computes: ``mm`` of ``extern_kernels.mm``.

    >>> operator_name("torch.ops.aten.convolution_backward.default")
    'convolution_backward'
    """
    parts = function.removeprefix("torch.ops.").split(".")
    return parts[1] if len(parts) > 1 else function


def short_name(kernel: str) -> str:
    """Return a kernel's name as a part of a record's, cut before its number where it is long."""
    name = _NO_WORD.sub("_", kernel)
    if len(name) <= _LONGEST_NAME:
        return name
    number = name.rpartition("_")[2]
    return f"{name[: _LONGEST_NAME - len(number) - 1].rstrip('_')}_{number}"


def _dotted(node: ast.AST) -> str:
    """Return a name or attributes of one as they are written; empty for another expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value)
        return f"{owner}.{node.attr}" if owner else ""
    return ""


def _base(node: ast.AST) -> str:
    """Return the variable of which an expression is a view; empty where it is none."""
    is_view = isinstance(node, ast.Call) and _dotted(node.func) in {"reinterpret_tensor", "alias"} and node.args
    return _dotted(node.args[0]) if is_view and isinstance(node, ast.Call) else ""
