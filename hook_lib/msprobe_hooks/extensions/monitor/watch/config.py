"""Configuration of a monitor, from keyword arguments or msprobe's configuration of its TrainerMon, and what it watches.

Every mistake is a ConfigError that names the key, the value and what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypedDict, get_args

from msprobe_hooks.errors import ConfigError, unknown_name
from msprobe_hooks.extensions.monitor.series.paths import start_order
from msprobe_hooks.recording.validators import flag, object_with, one_of, read_json

FIELDS: Final = ("input", "output", "input_grad", "output_grad")

_SPEC = re.compile(r"tensor|tuple\[(\d+)\](?::(\d+))?")

Format: TypeAlias = Literal["csv", "parquet", "tensorboard", "mindspore-csv", "api"]
FORMATS: Final[tuple[str, ...]] = get_args(Format)


class WatchOptions(TypedDict, total=False):
    """Options of ``watch`` besides its arguments, as a user writes them; docs/monitor-reference.md describes each."""

    targets: Mapping[str, Mapping[str, str]]
    ranks: list[int] | tuple[int, ...]
    start_step: int
    every: int
    collect_times: int
    statistics: Sequence[str]
    eps: float
    format: Format
    ndigits: int
    steps_per_file: int
    squashes_names: bool


#: The keys of a configuration that change nothing here, and what a warning says of each.
NOT_FOLLOWED: Final = {
    "recording_l2_features": "spectral and attention features are not recorded",
    "l2_targets": "spectral and attention features are not recorded",
    "sa_order": "spectral and attention features are not recorded",
}

_MAX_STEPS_PER_FILE = 1_000_000

#: Keys that are true or false, and what they ask for; those of activations decide together.
_SWITCHES: Mapping[str, str] = {
    "print_struct": "structure",
    "xy_distribution": "",
    "all_xy": "",
    "is_select": "",
    "forward_only": "",
    "backward_only": "",
    "wg_distribution": "gradients",
    "monitor_mbs_grad": "micro_batch_gradients",
    "mv_distribution": "moments",
    "param_distribution": "parameters",
    "ur_distribution": "updates",
    "mg_direction": "direction",
    "stack_info": "stacks",
}

#: Keys of the configuration, and the field of the plan that each one sets.
_KEYS: Mapping[str, str] = {
    "targets": "targets",
    "module_ranks": "ranks",
    "start_step": "start_step",
    "step_interval": "every",
    "collect_times": "collect_times",
    "ops": "statistics",
    "eps": "eps",
    "format": "format",
    "ndigits": "ndigits",
    "step_count_per_record": "steps_per_file",
    "squash_name": "squashes_names",
    "append_output": "appends_to",
    "dynamic_on": "is_dynamic",
}

_STRUCTURED = ("cc_distribution", "alert")
_ARGUMENTS = ("what", "micro_batches", "first_step")

#: msprobe's statistics, and two beyond: the root mean square and the share of subnormals.
STATISTICS: Final = ("norm", "min", "max", "zeros", "nans", "id", "mean", "rms", "subnormals")

#: What ``watch(..., what=[...])`` can be given.
WHAT: Final = (
    "activations",
    "activation_gradients",
    "gradients",
    "micro_batch_gradients",
    "moments",
    "parameters",
    "updates",
    "direction",
    "collectives",
    "structure",
    "stacks",
)

#: Those of them that are measured of parameters.
OF_PARAMETERS: Final = frozenset(
    {"gradients", "micro_batch_gradients", "moments", "parameters", "updates", "direction"}
)

#: Why MindSpore's collectives cannot be among them.
NO_COLLECTIVES: Final = "MindSpore's communication functions are not monitored"


def whole_number(least: int, most: int | None = None) -> Callable[[str, object], int]:
    """Return a check for whole numbers from the least to the most, where there is one."""

    def check(key: str, value: object) -> int:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if not is_whole or value < least or (most is not None and value > most):  # type: ignore[operator]
            end = "" if most is None else f" to {most}"
            raise ConfigError(key, value, f"an integer from {least}{end}" if most else f"an integer >= {least}")
        return value  # type: ignore[return-value]

    return check


def size(key: str, value: object) -> float:
    """Return a finite number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise ConfigError(key, value, "a number >= 0")
    return float(value)


def names_of(allowed: tuple[str, ...]) -> Callable[[str, object], tuple[str, ...]]:
    """Return a check for lists of names, each of which counts once."""

    def check(key: str, value: object) -> tuple[str, ...]:
        if not isinstance(value, (list, tuple)):
            raise ConfigError(key, value, "a list of " + ", ".join(allowed))
        for name in value:
            if name not in allowed:
                raise ConfigError(key, name, ", ".join(allowed), known=allowed)
        return tuple(dict.fromkeys(value))

    return check


def checked_statistics(key: str, value: object) -> tuple[str, ...]:
    """Return statistics by name; none of them means the norm."""
    return names_of(STATISTICS)(key, value) or ("norm",)


def ranks(key: str, value: object) -> frozenset[int]:
    """Return a list of ranks as a set."""
    if not isinstance(value, (list, tuple)):
        raise ConfigError(key, value, "a list of ranks")
    return frozenset(whole_number(0)(key, rank) for rank in value)


def targets(key: str, value: object) -> Mapping[str, Mapping[str, str]]:
    """Return modules with their fields, each with the element that is meant."""
    if not isinstance(value, Mapping):
        raise ConfigError(key, value, 'an object such as {"layers.0": {"input": "tensor"}}')
    for name, fields in value.items():
        if not isinstance(fields, Mapping):
            raise ConfigError(f"{key}.{name}", fields, 'an object such as {"input": "tensor"}')
        for one, spec in fields.items():
            if one not in FIELDS:
                raise unknown_name(f"{key}.{name} has no key", one, spec, FIELDS)
            if not _is_spec(spec):
                raise ConfigError(f"{key}.{name}.{one}", spec, "tensor, tuple[n], or tuple[n]:i with i < n")
    return value


def _is_spec(spec: object) -> bool:
    match = _SPEC.fullmatch(spec) if isinstance(spec, str) else None
    return match is not None and (match[1] is None or int(match[2] or 0) < int(match[1]))


def selected(spec: str) -> tuple[int, int] | None:
    """Return length and index that ``tuple[n]:i`` names, None for ``tensor``."""
    match = _SPEC.fullmatch(spec)
    return None if match is None or match[1] is None else (int(match[1]), int(match[2] or 0))


def times(key: str, value: object) -> tuple[str, str] | None:
    """Return the first and the last time of folders; None for an empty list."""
    try:
        starts = [(start_order(time), time) for time in value]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        starts = []
    if len(starts) == 2 and starts == sorted(starts):
        return starts[0][1], starts[1][1]
    if value == []:
        return None
    raise ConfigError(key, value, 'the first and the last time of folders, as in ["Dec03_00-00-00", "Dec03_21-34-40"]')


@dataclass(frozen=True, slots=True)
class Collectives:
    """Selection of watched collectives: those whose stack matches one of the patterns; none means all."""

    codelines: tuple[str, ...] = ()
    before: bool = False
    only_stacks: bool = False


@dataclass(frozen=True, slots=True)
class Alerts:
    """The rules that values are held against as they come: names and arguments; ``dump`` keeps what they find."""

    rules: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    dump: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Selection of what is watched, and when; without ``targets`` everything is.

    ``appends_to`` are the times between which the folder was started that is gone on with.
    """

    what: frozenset[str] = frozenset()
    targets: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    has_all_modules: bool = True
    ranks: frozenset[int] = frozenset()
    start_step: int = 0
    every: int = 1
    collect_times: int = 100_000_000
    statistics: tuple[str, ...] = ("norm",)
    eps: float = 1e-8
    format: str = "csv"
    ndigits: int = 6
    steps_per_file: int = 1
    squashes_names: bool = False
    collectives: Collectives = Collectives()
    alerts: Alerts = Alerts()
    appends_to: tuple[str, str] | None = None
    is_dynamic: bool = False

    def wants(self, what: str) -> bool:
        """Return whether something of `names.WHAT` is watched."""
        return what in self.what

    @property
    def wants_parameters(self) -> bool:
        """Return whether something is watched that is measured of parameters."""
        return not self.what.isdisjoint(OF_PARAMETERS)

    def is_for(self, rank: int | None) -> bool:
        """Return whether a rank is watched; a program that is not distributed, rank None, is rank 0."""
        return not self.ranks or (rank or 0) in self.ranks

    def takes(self, step: int) -> bool:
        """Return whether a step is one of those that are collected, were there no end to them."""
        return step >= self.start_step and (step - self.start_step) % self.every == 0


def plan(what: Sequence[str], **options: Any) -> Plan:
    """Check the options of ``watch``, named as the fields of a Plan. Raises ConfigError."""
    for key in options:
        if key not in _OPTIONS:
            raise unknown_name("watch() has no option", key, options[key], {*_OPTIONS, *_ARGUMENTS})
    checked = {key: _OPTIONS[key](key, value) for key, value in options.items()}
    named = frozenset(names_of(WHAT)("what", what))
    if not named:
        raise ConfigError("what", what, "at least one of " + ", ".join(WHAT))
    has_all = not checked.get("targets")
    return Plan(what=named, has_all_modules=has_all, collectives=Collectives(before=True), **checked)


def read_config(path: str | Path) -> tuple[Plan, list[str]]:
    """Read a configuration of TrainerMon; with it come warnings on keys that are not followed. Raises ConfigError."""
    content = read_json(path)
    for key in content:
        if key not in _KEYS and key not in _SWITCHES and key not in _STRUCTURED and key not in NOT_FOLLOWED:
            raise unknown_name(f"{path}: unknown key", key, content[key], {*_KEYS, *_SWITCHES, *_STRUCTURED})
    warnings = [f"{key} is ignored: {NOT_FOLLOWED[key]}" for key in content if content[key] and key in NOT_FOLLOWED]
    fields = {key: _KEYS[key] for key in content if key in _KEYS}
    options = {name: _CHECKS[name](key, content[key]) for key, name in fields.items()}
    switches = {key: flag(key, content.get(key, False)) for key in _SWITCHES}
    what, more = _what(switches)
    options["collectives"], has_collectives = _collectives(content.get("cc_distribution", {}))
    if has_collectives:
        what.add("collectives")
    options["alerts"] = _alerts(content.get("alert", {}))
    options.setdefault("squashes_names", True)
    unselected = Plan(what=frozenset(what), **options)
    if not what and (unselected.targets or unselected.alerts.rules or unselected.is_dynamic):
        warnings.append("nothing is monitored: xy_distribution, wg_distribution and the like are all false")
    is_open = "is_select" in content and not switches["is_select"]
    has_all = switches["all_xy"] or is_open or not unselected.targets
    return replace(unselected, has_all_modules=has_all), warnings + more


def _what(switches: Mapping[str, bool]) -> tuple[set[str], list[str]]:
    what, warnings = {_SWITCHES[key] for key, is_on in switches.items() if is_on and _SWITCHES[key]}, []
    if switches["xy_distribution"]:
        if switches["forward_only"] and switches["backward_only"]:
            warnings.append("neither activations nor their gradients: forward_only and backward_only are both true")
        if not switches["backward_only"]:
            what.add("activations")
        if not switches["forward_only"]:
            what.add("activation_gradients")
        if switches["forward_only"] and switches["backward_only"]:
            what -= {"activations", "activation_gradients"}
    return what, warnings


def _collectives(value: object) -> tuple[Collectives, bool]:
    key, names = "cc_distribution", ("enable", "cc_codeline", "cc_pre_hook", "cc_log_only")
    section = object_with(names)(key, value)
    codelines = section.get("cc_codeline", [])
    if not isinstance(codelines, (list, tuple)) or not all(_is_pattern(line) for line in codelines):
        raise ConfigError(f"{key}.cc_codeline", codelines, "a list of regular expressions")
    before, only_stacks = (flag(f"{key}.{name}", section.get(name, False)) for name in names[2:])
    is_on = flag(f"{key}.enable", section.get("enable", False))
    return Collectives(tuple(codelines), before, only_stacks), is_on


def _is_pattern(line: object) -> bool:
    try:
        re.compile(line)  # type: ignore[call-overload]
    except (re.error, TypeError):
        return False
    return True


def _alerts(value: object) -> Alerts:
    section = object_with(("rules", "dump"))("alert", value)
    return Alerts(_rules("alert.rules", section.get("rules", [])), flag("alert.dump", section.get("dump", False)))


def _rules(key: str, value: object) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    allowed = 'a list of objects such as {"rule_name": "AnomalyTurbulence", "args": {"threshold": 0.5}}'
    if not isinstance(value, (list, tuple)):
        raise ConfigError(key, value, allowed)
    rules = []
    for rule in value:
        if not isinstance(rule, Mapping) or not set(rule) <= {"rule_name", "args"} or "rule_name" not in rule:
            raise ConfigError(key, rule, allowed)
        args = rule.get("args") or {}
        if not isinstance(rule["rule_name"], str) or not isinstance(args, Mapping):
            raise ConfigError(key, rule, allowed)
        rules.append((rule["rule_name"], args))
    return tuple(rules)


_OPTIONS: Mapping[str, Callable[[str, Any], Any]] = {
    "targets": targets,
    "ranks": ranks,
    "start_step": whole_number(0),
    "every": whole_number(1),
    "collect_times": whole_number(0),
    "statistics": checked_statistics,
    "eps": size,
    "format": one_of(FORMATS),
    "ndigits": whole_number(1, 20),
    "steps_per_file": whole_number(1, _MAX_STEPS_PER_FILE),
    "squashes_names": flag,
}

_CHECKS: Mapping[str, Callable[[str, Any], Any]] = {**_OPTIONS, "appends_to": times, "is_dynamic": flag}
