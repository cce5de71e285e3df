"""A bisection: the runs that the search requests, kept in a journal and bounded in number, and its result in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from msprobe_hooks.dump.call_context import outside_frameworks
from msprobe_hooks.extensions.fix.run_plan import Left
from pytest_msprobe.errors import CommandError, JournalError
from pytest_msprobe.extensions.bisect.command import (
    BisectionJournal,
    Candidate,
    Command,
    Listed,
    Measured,
    Run,
    candidates_of,
    sharing,
    stacks_of,
)
from pytest_msprobe.extensions.bisect.search import WIDER, Fixes, Found, bound_for, distance, left_text, search


@dataclass(frozen=True, slots=True)
class Culprit:
    """The call that was found, with its stack from the innermost frame out.

    ``processes`` are those that make a call of this name, ``everywhere`` is the number with it raised in all of them,
    where it was asked for: one process alone did not move the number.
    """

    found: Found
    candidate: Candidate
    stack: Sequence[str]
    processes: Sequence[str]
    everywhere: float | None = None

    @property
    def moves_everywhere(self) -> bool:
        """Return whether raising the call in every process that makes it moves the number beyond the bound."""
        return self.everywhere is not None and distance(self.everywhere, self.found.plain) > self.found.bound


@dataclass(slots=True)
class Bisection:
    """Runs a command until one call is found. ``report`` takes a line per run; ``runs`` is how many there were."""

    command: Command
    journal: BisectionJournal
    report: Callable[[str], None]
    max_runs: int | None = None
    runs: int = 0
    plain: float = field(init=False)
    raised: float = field(init=False)
    candidates: Sequence[Candidate] = field(init=False)
    bound: float = field(init=False)
    _left: set[Left] = field(init=False, default_factory=set)

    @property
    def left(self) -> list[Left]:
        """APIs of which calls ran as they are, and why, though another precision could change them."""
        return sorted(self._left)

    def find(self, bound: float | None) -> Culprit | None:
        """Return the first call that moves the number by more than ``bound``, None where all together do not.

        Without a bound it is that of `bound_for`. Raises CommandError where the command fails,
        gives no number or another one each time, or more runs are needed than are allowed; JournalError where what
        is in the journal is about another program.
        """
        listed = self._listed()
        self.plain, self.candidates = float(listed.number), listed.candidates
        total = len(self.candidates)
        self.raised = self._measure(Fixes(0, total))
        self.bound = bound_for(self.plain, self.raised) if bound is None else bound
        found = search(total, self.plain, self.raised, self._measure, self.bound)
        if found is None:
            return None
        place = found.place
        shared = sharing(self.candidates, place)
        is_asked = len(shared) > 1 and not found.moves_alone
        stack = self._known(Fixes(place, place + 1)).stack
        return Culprit(
            found,
            self.candidates[place],
            stack,
            [self.candidates[each].process for each in shared],
            self._measure(Fixes(shared.start, shared.stop)) if is_asked else None,
        )

    def _listed(self) -> Listed:
        """Return the calls and the number of the command as it is, which is the same in two runs."""
        known = self.journal.listed
        first = self._run("as it is", self.command.list_calls)
        self._left.update(first.left)
        listed = Listed(repr(first.number), candidates_of(first.reports))
        if known is not None:
            if listed != known:
                raise JournalError(
                    "the command that made it returned another number, or made other calls",
                    file=self.journal.path,
                    remedy="use another journal",
                )
            return known
        second = self._run("as it is, again", self.command.list_calls)
        again = Listed(repr(second.number), candidates_of(second.reports))
        if again != listed:
            raise CommandError(_difference(listed, again), remedy=_STEADY)
        self.journal.note(listed)
        return listed

    def _measure(self, fixes: Fixes) -> float:
        return float(self._known(fixes).number)

    def _known(self, fixes: Fixes) -> Measured:
        known = self.journal.measured(fixes)
        if known is None:
            total = len(self.candidates)
            chosen = [self.candidates[place] for place in fixes.places(total)]
            what = f"{fixes.describe(total)} in {self.command.to}"
            run = self._run(what, lambda: self.command.run_with(chosen, reports_stacks=len(chosen) == 1))
            stack = next(stacks_of(run.reports), []) if len(chosen) == 1 else []
            known = Measured(fixes, repr(run.number), stack, list(run.left))
            self.journal.note(known)
        self._left.update(known.left)
        return known

    def _run(self, what: str, run: Callable[[], Run]) -> Run:
        if self.runs == self.max_runs:
            raise CommandError(
                f"--max-runs {self.max_runs}: more runs are needed",
                remedy="pass a larger number; --journal FILE keeps the runs so far, and --resume FILE continues them",
            )
        self.runs += 1
        try:
            done = run()
        except CommandError as error:
            raise type(error)(f"run {self.runs}, {what}: {error}") from None
        self.report(f"run {self.runs}, {what}: {done.number:.9g}")
        return done


_STEADY = (
    "make it deterministic (seeds, such as by msprobe_hooks.seed_all; --metric for a number that is not a time; one "
    "process that prints it)"
)


def _difference(first: Listed, second: Listed) -> str:
    if first.number != second.number:
        return f"the command is not deterministic: two runs as it is gave {first.number} and {second.number}"
    counts = f"{len(first.candidates)} and {len(second.candidates)}"
    for left, right in zip(first.candidates, second.candidates, strict=False):
        if left != right:
            names = [left.call, right.call]
            if left.process != right.process:
                names = [f"{each.call} of {each.process}" for each in (left, right)]
            return f"the command is not deterministic: two runs made other calls, first {' and '.join(names)}"
    return f"the command is not deterministic: two runs made {counts} calls that can be raised"


def found_text(culprit: Culprit, bisection: Bisection) -> str:
    """Return which call was found, how far it moves the number, whether it is alone, its stack, and what was left."""
    return "\n".join(_lines(culprit, bisection))


def nothing_text(bisection: Bisection) -> str:
    """Return what is to be said where all calls together do not move the number beyond the bound."""
    total, to = len(bisection.candidates), bisection.command.to
    moved, bound = distance(bisection.raised, bisection.plain), bisection.bound
    calls, do, move = f"all {total} calls in {to} together", "do", "move"
    if total == 1:
        calls, do, move = f"the one call in {to}", "does", "moves"
    if moved:
        how = f"{move} the number by {moved:.3g}, no more than {bound:.3g}; --bound 0 finds calls that move it at all"
    else:
        how = f"{do} not move the number; {WIDER[to]}"
    lines = [f"nothing found: {calls} {how}"]
    if not moved:
        lines.append("Results keep their dtypes: errors of rounding to them are not found this way.")
    return "\n".join([*lines, *_left(bisection)])


def _lines(culprit: Culprit, bisection: Bisection) -> Iterator[str]:
    found, total, to = culprit.found, len(bisection.candidates), bisection.command.to
    where = f" of {culprit.candidate.process}" if len({each.process for each in bisection.candidates}) > 1 else ""
    yield f"{culprit.candidate.call}{where} moves the number by more than {found.bound:.3g}"
    yield f"  call {found.place + 1} of {total} that {to} changes; found in {bisection.runs} runs"
    yield ""
    numbers = {
        "as it is": found.plain,
        f"all calls in {to}": found.raised,
        "this call alone": found.alone,
        "all but this call": found.without,
    }
    if culprit.everywhere is not None:
        numbers["this call in every process"] = culprit.everywhere
    width = max(map(len, numbers))
    yield from (
        f"  {what:<{width}}  {number:<13.9g} moved by {distance(number, found.plain):.3g}"
        for what, number in numbers.items()
    )
    yield ""
    yield _others(culprit)
    if culprit.stack:
        yield ""
        yield "Called from (innermost last):"
        yield from (
            f"  {line.strip()}" for frame in reversed(outside_frameworks(culprit.stack)) for line in frame.splitlines()
        )
    yield from _left(bisection)


def _left(bisection: Bisection) -> list[str]:
    calls = [candidate.call for candidate in bisection.candidates]
    lines = left_text(bisection.left, calls, bisection.command.custom_op_namespaces)
    return ["", *lines] if lines else []


def _others(culprit: Culprit) -> str:
    found = culprit.found
    if not found.moves_alone:
        if culprit.moves_everywhere:
            return f"It needs the call in every process: {', '.join(culprit.processes)}."
        return (
            "It does not do so alone: it needs earlier calls as well, each of which moves the number by less. "
            "--bound sets the change that counts."
        )
    if found.has_others:
        return "It is the first of several: other calls move the number without it."
    return "No other call is needed, and no other call does so without it."
