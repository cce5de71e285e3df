"""Communications as items: each is one of the first rank that took part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pytest_msprobe.extensions.communication.judging import judge_exchange, judge_unmatched
from pytest_msprobe.extensions.communication.messages import between
from pytest_msprobe.run import marks
from pytest_msprobe.run.item import JudgedItem

if TYPE_CHECKING:
    import pytest

    from msprobe_hooks.dump.communication.calls import Call
    from msprobe_hooks.dump.communication.exchanges import Exchange
    from msprobe_standards.verdict import Verdict
    from pytest_msprobe.extensions.communication.steps import StepCommunication
    from pytest_msprobe.results.result import DirectionResult


class CommunicationItem(JudgedItem):
    """One communication over all ranks of a step; ``exchange`` is None where a call does not say with whom it is."""

    # Nothing here runs on a device.
    is_isolated = False

    def __init__(self, *, call: Call, exchange: Exchange | None, step: StepCommunication, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._call = call
        self._exchange = exchange
        self._step = step

    def judge(self) -> DirectionResult:
        """Judge the communication."""
        if self._exchange is None:
            return judge_unmatched(self.name)
        return judge_exchange(self.name, self._exchange, self._step)

    def mark_names(self) -> list[str]:
        """Return the marks of the first rank's record."""
        dump = self._step.dump(self._call)
        return marks.of_record(dump, self._call.name) if self._call.is_recorded else [dump.framework]

    def may_be_marked(self, name: str) -> bool:
        """Return whether it is a mark of records."""
        return name in marks.known()

    def warning(self, verdict: Verdict) -> str:
        """Return why it warns: what holds of many communications is one warning."""
        return f"communication: {verdict.reason}"


def communication_items(file: pytest.File, rank: int, step: StepCommunication) -> Iterator[CommunicationItem]:
    """Yield an item for each communication of which a rank is the first that took part, in their order."""
    for name, call, exchange in named_exchanges(rank, step):
        yield CommunicationItem.from_parent(file, name=name, call=call, exchange=exchange, step=step)


def named_exchanges(rank: int, step: StepCommunication) -> Iterator[tuple[str, Call, Exchange | None]]:
    """Yield the name of each item of a rank, with its call, and its communication where the call says with whom."""
    names = Counter[str]()
    for exchange in step.exchanges:
        if exchange.lead.rank == rank:
            name = _name(exchange)
            names[name] += 1
            unique = name if names[name] == 1 else f"{name.removesuffix(']')} #{names[name]}]"
            yield unique, exchange.lead, exchange
    for call in step.ranks[rank].calls:
        if not call.ends:
            yield call.name, call, None


def _name(exchange: Exchange) -> str:
    """Return the name of the first rank's record; of one of several messages of a batch with its ends."""
    lead = exchange.lead
    return lead.name if len(lead.ends) == 1 else f"{lead.name}[{between(exchange)}]"
