"""Exploration around a judged record, as a step after the verdict, and a failing input as a program of its own.

Names and values of a dump are somebody else's: what is written is numbers, quoted texts and the names of functions that
the record resolves to, nothing verbatim.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from msprobe_hooks.dump.names import ApiName, Direction, parse_api_name, split_direction
from pytest_msprobe.engine.replay.calls.arguments import DeviceArgument
from pytest_msprobe.engine.replay.calls.side import may_work_in_place
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.function_check import STATE, FunctionCheck
from pytest_msprobe.engine.replay.judging.run_outputs import produced
from pytest_msprobe.engine.replay.ops.lookup import HOMES
from pytest_msprobe.engine.replay.rerun_differences import PASSED_AGAIN
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.values.pytree import tensors_with_paths
from pytest_msprobe.engine.values.tensor_text import MOST_NUMBERS, element_text, nested_text, number_text, tensor_text
from pytest_msprobe.extensions.explore.explore import Finding, explore, smallest_input
from pytest_msprobe.extensions.explore.explored_tally import AIMED, EXPLORED
from pytest_msprobe.extensions.explore.minimal_failure import only_drifts
from pytest_msprobe.extensions.explore.options import ExploreOptions
from pytest_msprobe.modes.check.follow_ups import Judged
from pytest_msprobe.modes.check.save_case import SaveFailure
from pytest_msprobe.modes.check.saved_case import with_saved
from pytest_msprobe.results.result import DirectionResult

_TAKEN = frozenset("torch result print x False None True lambda is in not and or if else del def as".split())

_ONLY_DRIFT = (
    "No smaller input was found: this one fails only by a drift that is common to its elements, "
    "which is not searched for, as repeated values cause one as well"
)


class Explore:
    """Tries inputs around the recorded one, and saves the one that fails where ``save`` is given."""

    def __init__(self, options: ExploreOptions, timeout: float | None, save: SaveFailure | None) -> None:
        self._options = options
        self._timeout = timeout
        self._save = save

    def __call__(self, judged: Judged) -> DirectionResult:
        """Explore; the result is that of an input that fails, where the recorded one does not."""
        recorded = judged.result
        if recorded.verdict.outcome == "skip":
            return recorded
        options = self._options.within(self._timeout, time.monotonic() - judged.started)
        body = judged.dump.body(judged.replay.call.forward.name)
        exploration = explore(judged.replay, body, recorded, options)
        finding = exploration.finding
        counts = {EXPLORED: exploration.judged, **({AIMED: exploration.aimed} if exploration.aimed else {})}
        if finding is None:
            notes = (_ONLY_DRIFT, *recorded.notes) if only_drifts(recorded.verdict) else recorded.notes
            return replace(recorded, notes=notes, extras={**recorded.extras, **counts})
        failed = recorded.verdict.outcome == "fail"
        note = _explored_text(finding, exploration.judged, recorded_failed=failed)
        noted = replace(finding.result, notes=(note,))
        result = replace(recorded, notes=(note, *recorded.notes)) if failed else noted
        extras = {**counts, **smallest_input(finding, judged.direction)}
        result = replace(result, extras={**result.extras, **extras})
        if self._save is None:
            return result
        return with_saved(result, self._save.saved(judged.dump, finding.replay, noted, finding.body))


def _explored_text(finding: Finding, judged: int, *, recorded_failed: bool) -> str:
    """Return what a failure text says of the explored input that fails."""
    how = "fails as well, and is smaller" if recorded_failed else "does not: the numbers above are its own"
    recorded = "The recorded input fails" if recorded_failed else "The recorded input passes"
    # An error that comes once has no size as its cause.
    why = f"it has {finding.why}" if finding.fails_again and finding.why else ""
    about = "".join(f"; {words}" for words in (why, "" if finding.fails_again else f"it {PASSED_AGAIN}") if words)
    code = _indented(snippet(finding.replay, finding.result))
    return f"{recorded}; of {judged} explored around it, this one {how}{about}:\n\n{code}"


def drawn_text(check: FunctionCheck, result: DirectionResult, judged: int, *, fails_again: bool) -> str:
    """Return what a failure text says of the smallest drawn input at which a user's function fails."""
    subject, direction = check.trial.subject, split_direction(result.record)[1] or "forward"
    tensors = {path: tensor for path, tensor in subject.arguments.tensors() if STATE not in path.split(".")}
    names = _names(tensors)
    leaves = subject.arguments.differentiable
    lines = [
        f"{names[path]} = {tensor_text(tensor)}{'.requires_grad_()' if path in leaves else ''}"
        for path, tensor in tensors.items()
    ]
    kwargs = {key: value for key, value in subject.arguments.kwargs.items() if key != STATE}
    name = subject.api if subject.api.isidentifier() else "function"
    lines.append(f"{name}({', '.join(_arguments(subject.arguments.args, kwargs, names))})")
    lines += _comments(check.trial, direction, result)
    again = "" if fails_again else f"; it {PASSED_AGAIN}"
    return f"Of {judged} drawn inputs this is the smallest found that fails{again}:\n\n{_indented(chr(10).join(lines))}"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())


def snippet(replay: Replay, result: DirectionResult) -> str:
    """Return the input of a judged replay as Python code, with the right and the wrong results as comments."""
    direction = parse_api_name(result.record).direction
    subject = replay.trial.subject
    tensors = replay.input_tensors(direction)
    names = _names(tensors)
    location = replay.trial.device.location()
    lines = ["import torch", *_on(location), ""]
    differentiated = list(replay.trial.golden.leaves) if direction == "backward" else []
    for path, tensor in tensors.items():
        marked = ".requires_grad_()" if path in differentiated else ""
        lines.append(f"{names[path]} = {tensor_text(tensor)}{marked}")
    # An in-place API may not write to what gradients are taken of.
    copied = differentiated if may_work_in_place(subject.operation, subject.arguments) else []
    call = _call(replay, {path: f"{name}.clone()" if path in copied else name for path, name in names.items()})
    if subject.autocast is not None:
        lines.append(f"with torch.autocast({location.type!r}, {subject.autocast}):")
    lines.append(f"{'    ' if subject.autocast is not None else ''}result = {call}")
    if direction == "backward":
        grad_outputs = replay.trial.grad_outputs
        outputs = ["result" + "".join(f"[{_index(part)}]" for part in path.split(".") if part) for path in grad_outputs]
        lists = (outputs, [names[path] for path in differentiated], [names[f"grad.{path}"] for path in grad_outputs])
        shown = ", ".join(f"[{', '.join(words)}]" for words in lists)
        lines.append(f"result = torch.autograd.grad({shown}, allow_unused=True)")
    return "\n".join([*lines, "print(result)", *_comments(replay.trial, direction, result)])


def _on(location: torch.device) -> list[str]:
    """Return the lines that have tensors made on a device; a simulated one is the CPU."""
    if location.type == "cpu":
        return []
    return [*(["import torch_npu"] if location.type == "npu" else []), f"torch.set_default_device({str(location)!r})"]


def _comments(trial: Trial, direction: Direction, result: DirectionResult) -> Iterator[str]:
    """Yield what came out and what should have, of the outputs that are wrong."""
    sides = {side: dict(tensors_with_paths(tree)) for side, tree in produced(trial, direction).items()}
    for output in result.outputs:
        if output.verdict.outcome == "fail":
            for side, word in (("target", "wrong"), ("golden", "right")):
                tensor = sides.get(side, {}).get(output.path)
                if tensor is not None:
                    yield f"# {word}: {output.path} is {_shown(tensor)}"


def _shown(tensor: torch.Tensor) -> str:
    if tensor.numel() > MOST_NUMBERS:
        return f"{tensor.dtype} {tuple(tensor.shape)}"
    values = [element_text(value, tensor.dtype) for value in tensor.reshape(-1).tolist()]
    return nested_text(values, tuple(tensor.shape)).replace("float('", "").replace("')", "")


def _names(tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Return a variable for each path: a keyword's own name where it is one, x, y, z ... for the others."""
    names: dict[str, str] = {}
    for path in tensors:
        kind, _, rest = path.partition(".")
        name = rest if kind == "kwargs" and rest.isidentifier() and rest.isascii() else ""
        if kind == "grad":
            name = f"grad{''.join(f'_{part}' for part in rest.split('.') if part.isdigit())}"
        names[path] = name if name and name not in names.values() and name not in _TAKEN else f"x{len(names)}"
    return {path: "x" if name == "x0" else name for path, name in names.items()}


def _call(replay: Replay, names: Mapping[str, str]) -> str:
    arguments, name = replay.trial.subject.arguments, replay.call.name
    parts = _arguments(arguments.args, arguments.kwargs, names)
    if name.type == "Tensor" and not callable(getattr(torch.Tensor, name.api, None)):
        return f"{parts[0]}.{name.api}"
    return f"{_function(name)}({', '.join(parts)})"


def _arguments(args: Sequence[Any], kwargs: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    parts = [_value(value, f"args.{i}", names) for i, value in enumerate(args)]
    plain = {key: value for key, value in kwargs.items() if key.isidentifier() and key.isascii()}
    parts += [f"{key}={_value(value, f'kwargs.{key}', names)}" for key, value in plain.items()]
    others = {key: value for key, value in kwargs.items() if key not in plain}
    if others:
        items = (f"{key!r}: {_value(value, f'kwargs.{key}', names)}" for key, value in others.items())
        parts.append(f"**{{{', '.join(items)}}}")
    return parts


def _function(name: ApiName) -> str:
    """Return the function's name as Python finds it: msprobe writes Torch.norm for torch.linalg.norm."""
    if name.type == "NPU":
        return f"torch.ops.npu.{name.api}"
    homes = HOMES[name.type]
    return f"torch.{next((home for home in homes if _exists(f'{home}{name.api}')), homes[0])}{name.api}"


def _exists(dotted: str) -> bool:
    try:
        return callable(operator.attrgetter(dotted)(torch))
    except AttributeError:
        return False


def _index(part: str) -> str:
    return part if part.isdigit() else repr(part)


def _value(value: Any, path: str, names: Mapping[str, str]) -> str:
    if path in names:
        return f"{names[path]}.numpy()" if not isinstance(value, torch.Tensor) else names[path]
    if isinstance(value, torch.Size):
        return f"torch.Size({list(value)})"
    if isinstance(value, (list, tuple)):
        parts = [_value(item, f"{path}.{i}", names) for i, item in enumerate(value)]
        return f"[{', '.join(parts)}]" if isinstance(value, list) else f"({', '.join(parts)}{',' * (len(parts) == 1)})"
    if isinstance(value, dict):
        items = (f"{key!r}: {_value(item, f'{path}.{key}', names)}" for key, item in value.items())
        return f"{{{', '.join(items)}}}"
    if isinstance(value, DeviceArgument):
        return "'cpu'"
    if isinstance(value, complex):
        return f"complex({number_text(value.real)}, {number_text(value.imag)})"
    return number_text(value)
