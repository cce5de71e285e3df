"""Precision policies: YAML tables of the standard and limits that judge each API and dtype, read and checked."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from msprobe_standards.decoding import YamlError, decode_yaml
from msprobe_standards.dtypes import family
from msprobe_standards.exemption import ExcusedByBaseline
from msprobe_standards.policy_files import built_in_policies, policy_file
from msprobe_standards.policy_rules import (
    Nondeterministic,
    Rule,
    Screened,
    check_keys,
    mappings,
    names_in,
    one_of,
    parse_nondeterministic,
    parse_rule,
    parse_screened,
    rows_of,
)
from msprobe_standards.registry import STANDARDS, StandardRegistry
from msprobe_standards.sensitivity import ExcusedBySensitivity
from msprobe_standards.validation import hint, shown

if TYPE_CHECKING:
    from msprobe_standards.protocol import Standard

_POLICY_KEYS = (
    "name",
    "description",
    "names",
    "excused_by_baseline",
    "excused_by_sensitivity",
    "failures_in_float64",
    "accumulation",
    "levels",
    "rules",
    "nondeterministic",
    "screening",
)


@dataclass(frozen=True)
class Policy:
    """A table of rules, searched in order; the first whose conditions all hold gives the standard.

    `load` reads a built-in policy or a file, `select` returns the standard for one output::

        rules      [Rule(Ulp, apis={"add"}), Rule(Benchmark, output={"float16"}), Rule(Benchmark)]
        _selected  {("add", torch.float32, ...): Ulp, ("mul", torch.float16, ...): Benchmark}     as they were asked for

    Args:
        name: The name of the policy.
        rules: The rules in their order.
        levels: The levels that rules may require.
        level: The level of every API where the policy has levels; None leaves each API its own.
        loose_names: Whether a rule for ``add`` also holds for ``add_`` and ``__add__``.
        nondeterministic: APIs whose results may differ from run to run.
        sensitive: APIs whose floating-point outputs are excused by their own conditioning (`ExcusedBySensitivity`).
        screening: From how many operations on calls of some APIs are screened.
        failures_in_float64: Whether a failure against golden in float32 is judged again against golden in float64.
        accumulation: "float32" where a sum of 16-bit numbers that errs by more than float32 sums that are rounded once
            fails, "any" where the standards alone decide.
    """

    name: str
    rules: Sequence[Rule]
    levels: Sequence[str] = ()
    level: str | None = None
    loose_names: bool = False
    nondeterministic: Sequence[Nondeterministic] = ()
    sensitive: frozenset[str] = frozenset()
    screening: Sequence[Screened] = ()
    failures_in_float64: bool = False
    accumulation: str = "any"
    _selected: dict[object, Standard] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def load(cls, source: str | Path, level: str | None = None, standards: StandardRegistry = STANDARDS) -> Policy:
        """Load a built-in policy by name, or one from a YAML file.

        Args:
            source: The name of a built-in policy, or the path of a ``.yaml`` or ``.yml`` file.
            level: The level of every API where the policy has levels; None leaves each API its own.
            standards: The standards that its rules may name.

        Returns:
            The policy.

        Raises:
            ValueError: The name is unknown, or the file is wrong; the text names file, key, value and what is allowed.
            FileNotFoundError: The file is missing.
        """
        return _parse(*_read(source), level, standards)

    @classmethod
    def of(cls, standard: Standard) -> Policy:
        """Return the policy by which one standard, as it is, judges everything."""
        return cls(standard.name, [Rule(standard)])

    def select(
        self,
        api: str,
        *,
        output_dtype: torch.dtype | None,
        input_dtypes: Collection[torch.dtype] = (),
        framework: str = "pytorch",
        backward: bool = False,
        scalars: bool = False,
        recorded_baseline: bool = False,
        device: str | None = None,
        math_modes: Collection[str] = (),
    ) -> Standard:
        """Return the standard for one output of an API call.

        Args:
            api: The name in the record: "conv2d", "linalg.norm", "__add__".
            output_dtype: The dtype of the output leaf, None for a Python value (of which only floats and complex
                numbers are measured, as float32 ones).
            input_dtypes: The dtypes of the inputs.
            framework: "pytorch" or "mindspore".
            backward: Whether the output is a gradient.
            scalars: Whether a Python number other than a power of two takes part, which a device rounds before it
                computes.
            recorded_baseline: Whether the baseline is another device's recorded result, for which msprobe has rules
                of its own.
            device: The type of what computes the target: "cpu", "cuda", "npu"; None where it is not known.
            math_modes: Those of MATH_MODES that the call was computed in: with any, only the rules that ask for one of
                them are looked at, without, only the others.

        Raises:
            ValueError: No rule matches.
        """
        conditions = (_computing(framework), backward, scalars, recorded_baseline, device, frozenset(math_modes))
        key = (api, output_dtype, frozenset(input_dtypes), *conditions)
        if key not in self._selected:
            self._selected[key] = self._first_match(*key)
        return self._selected[key]

    def knows_nondeterministic(
        self, api: str, *, framework: str = "pytorch", backward: bool = False, device: str | None = None
    ) -> bool:
        """Return whether the results of this API may differ from run to run; the arguments are those of `select`."""
        names = _loose(api) if self.loose_names else {api}
        return any(
            not names.isdisjoint(entry.apis)
            and entry.backward in (None, backward)
            and entry.framework in (None, _computing(framework))
            and entry.device in (None, device)
            for entry in self.nondeterministic
        )

    def screened_above(self, api: str, default: float) -> float | None:
        """Return from how many billion operations on a call of this API is screened.

        Args:
            api: The name in the record.
            default: The number for an API that no row names; else the first row that names it decides.

        Returns:
            The number; None where no call is screened.
        """
        names = _loose(api) if self.loose_names and self.screening else {api}
        return next((row.above for row in self.screening if not names.isdisjoint(row.apis)), default)

    def _first_match(
        self,
        api: str,
        output_dtype: torch.dtype | None,
        input_dtypes: Collection[torch.dtype],
        framework: str,
        backward: bool,
        scalars: bool,
        recorded_baseline: bool,
        device: str | None,
        math_modes: frozenset[str],
    ) -> Standard:
        names = _loose(api) if self.loose_names else {api}
        output = _kinds(output_dtype or torch.float32)
        inputs = set().union(*map(_kinds, input_dtypes))
        for rule in self.rules:
            if self.level is not None and rule.level is not None:
                named = rule.level == self.level
            else:
                named = rule.apis is None or not names.isdisjoint(rule.apis)
            if (
                named
                and (rule.output is None or not output.isdisjoint(rule.output))
                and (rule.input is None or not inputs.isdisjoint(rule.input))
                and rule.backward in (None, backward)
                and rule.scalars in (None, scalars)
                and rule.recorded_baseline in (None, recorded_baseline)
                and rule.framework in (None, framework)
                and rule.device in (None, device)
                and (not math_modes if rule.math_mode is None else not rule.math_mode.isdisjoint(math_modes))
            ):
                computed = "float" in output or "complex" in output
                excused = computed and not names.isdisjoint(self.sensitive)
                return ExcusedBySensitivity(rule.standard) if excused else rule.standard
        raise ValueError(
            f"policy {self.name!r} has no rule for {api} with {output_dtype} output; add one without conditions"
        )


def _computing(framework: str) -> str:
    """Return the framework whose kernels compute the calls of another one: MindTorch's are MindSpore's."""
    return "mindspore" if framework == "mindtorch" else framework


def _kinds(dtype: torch.dtype) -> set[str]:
    """Return all that a rule may call this dtype: its name, its family, and float8 for any of those."""
    name = str(dtype).removeprefix("torch.")
    kinds = {name, family(dtype)}
    return kinds | {"float8"} if name.startswith("float8") else kinds


def _loose(api: str) -> set[str]:
    """Return the names under which a rule may list an API.

    In-place variants count as the function itself, operators as their method, dotted names as their last part
    (``linalg.norm``, which ATen and torch's own functions call ``linalg_norm``) or, for ATen overloads, their first
    (``add.Tensor``).
    """
    parts = {api, api.rpartition(".")[2], api.partition(".")[0]}
    parts |= {part.lstrip("_").removeprefix("linalg_") for part in parts if "linalg_" in part}
    names = parts | {part.rstrip("_") for part in parts}
    operators = {part.strip("_") for part in parts if part.startswith("__")}
    return names | operators | {operator[1:] for operator in operators if operator[0] in "ir"}


def declared_levels(source: str | Path) -> tuple[str, ...]:
    """Return the levels of a policy, none where it has none or cannot be read: `Policy.load` says why."""
    try:
        table, _ = _read(source)
    except (OSError, ValueError):
        return ()
    levels = table.get("levels", []) if isinstance(table, dict) else []
    return tuple(level for level in levels if isinstance(level, str)) if isinstance(levels, list) else ()


def _read(source: str | Path) -> tuple[object, Path]:
    """Return what a policy's file holds, with the file. Raises ValueError and FileNotFoundError."""
    path = Path(source)
    if path.suffix not in (".yaml", ".yml"):
        policies = built_in_policies()
        if str(source) not in policies:
            raise ValueError(
                f"unknown policy {str(source)!r}{hint(str(source), [*policies, 'or the path of a .yaml file'])}"
            )
        return _built_in(str(source))
    return _decoded(path), path


@cache
def _built_in(name: str) -> tuple[object, Path]:
    path = policy_file(name)
    return _decoded(path), path


def _decoded(path: Path) -> object:
    if path.exists() and not (path.is_file() or path.is_dir()):
        # Reading a FIFO would wait for a writer.
        raise ValueError(f"{path}: not a regular file; pass the path of a .yaml file")
    try:
        return decode_yaml(path.read_bytes())
    except YamlError as error:
        raise ValueError(f"{path}: {error}") from None
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None


def _parse(table: object, path: Path, level: str | None, standards: StandardRegistry) -> Policy:
    if not isinstance(table, dict):
        raise ValueError(f"{path}: not a policy; write a mapping with the keys {', '.join(_POLICY_KEYS)}")
    check_keys(table, _POLICY_KEYS, str(path))
    levels = names_in(table.get("levels", []), f"{path}: levels")
    if level is not None and level not in levels:
        if not levels:
            raise ValueError(
                f"level {level!r}: policy {path.stem} has no levels; choose one with levels, such as msprobe-26"
            )
        raise ValueError(f"{path}: unknown level {level!r}{hint(level, levels)}")
    names = one_of(table.get("names", "exact"), ("exact", "loose"), f"{path}: names")
    excused = one_of(table.get("excused_by_baseline", False), (True, False), f"{path}: excused_by_baseline")
    sensitive = names_in(table.get("excused_by_sensitivity", []), f"{path}: excused_by_sensitivity")
    again = one_of(table.get("failures_in_float64", False), (True, False), f"{path}: failures_in_float64")
    accumulation = one_of(table.get("accumulation", "any"), ("any", "float32"), f"{path}: accumulation")
    rows = table.get("rules")
    if not isinstance(rows, list) or not rows:
        raise ValueError(
            f"{path}: rules: {shown(rows)} is not a list of rules; write mappings with 'standard' and conditions"
        )

    def make(name: str, limits: Mapping[str, Any]) -> Standard:
        standard = standards.make(name, **limits)
        return ExcusedByBaseline(standard) if excused else standard

    places = [place for i, row in enumerate(rows) for place in rows_of(row, f"{path}: rules[{i}]")]
    rules = [parse_rule(row, where, levels, make) for row, where in places]
    nondeterministic = [parse_nondeterministic(row, where) for row, where in mappings(table, path, "nondeterministic")]
    screening = [parse_screened(row, where) for row, where in mappings(table, path, "screening")]
    name = table.get("name", path.stem)
    if not isinstance(name, str):
        raise ValueError(f"{path}: name: {shown(name)} is not a string")
    is_loose = names == "loose"
    return Policy(
        name, rules, levels, level, is_loose, nondeterministic, frozenset(sensitive), screening, again, accumulation
    )
