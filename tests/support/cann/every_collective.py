"""What each collective gives a rank on a card, compared with what follows from the inputs of all ranks.

Run as a program by each rank, as `checked_ranks.main` describes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import Tensor

from tests.support.cann.checked_ranks import Pair, main, on_card

_REDUCED: dict[str, Callable[[Tensor], Tensor]] = {
    "SUM": lambda each: each.sum(0),
    "PRODUCT": lambda each: each.prod(0),
    "MAX": lambda each: each.amax(0),
    "MIN": lambda each: each.amin(0),
    "AVG": lambda each: each.sum(0) / len(each),
}
_TYPES = "float32 float16 bfloat16 int8 int16 int32 int64 uint8".split()


class Ranks:
    """The ranks of a group: what each gives, and which this one is."""

    def __init__(self, rank: int, count: int) -> None:
        self.rank, self.count = rank, count
        self.next, self.last = (rank + 1) % count, (rank - 1) % count

    def given(self, rank: int, size: int = 4, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return what a rank gives, on the host."""
        return (torch.arange(size) % 5 + rank + 1).to(dtype)

    def all_given(self, size: int = 4, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return what all ranks give, one a row."""
        return torch.stack([self.given(rank, size, dtype) for rank in range(self.count)])

    def mine(self, size: int = 4, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return what this rank gives, on its card."""
        return on_card(self.given(self.rank, size, dtype))


def _empty(*sizes: int) -> Tensor:
    return on_card(torch.full(sizes, -1.0))


def _all_reduce(ranks: Ranks, dtype: str, operation: str) -> Iterator[Pair]:
    of_type = getattr(torch, dtype)
    reduced = ranks.mine(dtype=of_type)
    dist.all_reduce(reduced, getattr(dist.ReduceOp, operation))
    yield reduced, _REDUCED[operation](ranks.all_given(dtype=of_type)).to(of_type)


def _all_reduce_of_bool(ranks: Ranks) -> Iterator[Pair]:
    reduced = on_card(torch.tensor([ranks.rank == 0, False]))
    dist.all_reduce(reduced)
    yield reduced, torch.tensor([True, False])


def _reduce(ranks: Ranks) -> Iterator[Pair]:
    reduced = ranks.mine()
    dist.reduce(reduced, 1)
    if ranks.rank == 1:
        yield reduced, ranks.all_given().sum(0)


def _broadcast(ranks: Ranks) -> Iterator[Pair]:
    sent = ranks.mine()
    dist.broadcast(sent, ranks.count - 1)
    yield sent, ranks.given(ranks.count - 1)


def _all_gather(ranks: Ranks) -> Iterator[Pair]:
    gathered = [_empty(4) for _ in range(ranks.count)]
    dist.all_gather(gathered, ranks.mine())
    yield torch.stack(gathered), ranks.all_given()


def _all_gather_of_unequal_sizes(ranks: Ranks) -> Iterator[Pair]:
    gathered = [_empty(rank + 2) for rank in range(ranks.count)]
    dist.all_gather(gathered, ranks.mine(ranks.rank + 2))
    yield torch.cat(gathered), torch.cat([ranks.given(rank, rank + 2) for rank in range(ranks.count)])


def _all_gather_into_tensor(ranks: Ranks) -> Iterator[Pair]:
    gathered = _empty(ranks.count, 4)
    dist.all_gather_into_tensor(gathered, ranks.mine())
    yield gathered, ranks.all_given()


def _parts(ranks: Ranks, rank: int) -> list[Tensor]:
    return [ranks.given(rank + 10 * to) for to in range(ranks.count)]


def _reduce_scatter(ranks: Ranks) -> Iterator[Pair]:
    reduced = _empty(4)
    dist.reduce_scatter(reduced, [on_card(part) for part in _parts(ranks, ranks.rank)])
    yield reduced, torch.stack([_parts(ranks, rank)[ranks.rank] for rank in range(ranks.count)]).sum(0)


def _reduce_scatter_tensor(ranks: Ranks) -> Iterator[Pair]:
    reduced = _empty(4)
    given = on_card(torch.cat(_parts(ranks, ranks.rank)))
    dist.reduce_scatter_tensor(reduced, given, dist.ReduceOp.MAX)
    yield reduced, torch.stack([_parts(ranks, rank)[ranks.rank] for rank in range(ranks.count)]).amax(0)


def _scatter(ranks: Ranks) -> Iterator[Pair]:
    taken = _empty(4)
    given = [on_card(ranks.given(9 * to)) for to in range(ranks.count)]
    dist.scatter(taken, given if ranks.rank == 0 else None, 0)
    yield taken, ranks.given(9 * ranks.rank)


def _gather(ranks: Ranks) -> Iterator[Pair]:
    gathered = [_empty(4) for _ in range(ranks.count)] if ranks.rank == 1 else None
    dist.gather(ranks.mine(), gathered, 1)
    if gathered is not None:
        yield torch.stack(gathered), ranks.all_given()


def _all_to_all_single(ranks: Ranks) -> Iterator[Pair]:
    """Give rank i i + 1 rows."""
    give, start = [to + 1 for to in range(ranks.count)], sum(range(1, ranks.rank + 1))
    taken = _empty(ranks.count * (ranks.rank + 1))
    given = ranks.mine(sum(give))
    dist.all_to_all_single(taken, given, [ranks.rank + 1] * ranks.count, give)
    rows = ranks.all_given(sum(give))[:, start : start + ranks.rank + 1]
    yield taken, rows.reshape(-1)


def _all_to_all(ranks: Ranks) -> Iterator[Pair]:
    taken = [_empty(rank + 1, ranks.rank + 1) for rank in range(ranks.count)]
    dist.all_to_all(taken, [on_card(_exchanged(ranks.rank, to)) for to in range(ranks.count)])
    yield from zip(taken, (_exchanged(rank, ranks.rank) for rank in range(ranks.count)), strict=True)


def _exchanged(rank: int, to: int) -> Tensor:
    return torch.full((rank + 1, to + 1), 10.0 * rank + to)


def _send_and_recv(ranks: Ranks) -> Iterator[Pair]:
    if ranks.rank == 0:
        dist.send(ranks.mine(), 1)
    if ranks.rank == 1:
        received = _empty(4)
        dist.recv(received, 0)
        yield received, ranks.given(0)


def _all_send_first(ranks: Ranks) -> Iterator[Pair]:
    received = _empty(1000)
    dist.send(ranks.mine(1000), ranks.next)
    dist.recv(received, ranks.last)
    yield received, ranks.given(ranks.last, 1000)


def _messages_of_one_batch(ranks: Ranks) -> Iterator[Pair]:
    received = _empty(4)
    receives = dist.P2POp(dist.irecv, received, ranks.last)
    for work in dist.batch_isend_irecv([receives, dist.P2POp(dist.isend, ranks.mine(), ranks.next)]):
        work.wait()
    yield received, ranks.given(ranks.last)


def _objects(ranks: Ranks) -> Iterator[Pair]:
    gathered: list[object] = [None] * ranks.count
    dist.all_gather_object(gathered, {"rank": ranks.rank})
    yield torch.tensor(gathered == [{"rank": rank} for rank in range(ranks.count)]), torch.tensor(True)


def _sub_groups(ranks: Ranks) -> Iterator[Pair]:
    """Add within the even and the odd ranks, and within the first and the last."""
    members = [list(range(0, ranks.count, 2)), list(range(1, ranks.count, 2)), [0, ranks.count - 1]]
    for group, of in [(dist.new_group(each), each) for each in members]:
        if ranks.rank in of:
            reduced = ranks.mine()
            dist.all_reduce(reduced, group=group)
            yield reduced, ranks.all_given()[of].sum(0)


def _asynchronous_calls(ranks: Ranks) -> Iterator[Pair]:
    """Begin three calls, use none before it was waited for."""
    tensors = [ranks.mine() * factor for factor in (1, 2, 3)]
    works = [dist.all_reduce(each, async_op=True) for each in tensors]
    for factor, (each, work) in enumerate(zip(tensors, works, strict=True), 1):
        work.wait()
        yield each + 1, ranks.all_given().sum(0) * factor + 1


def _coalesced_calls(ranks: Ranks) -> Iterator[Pair]:
    one, two = ranks.mine(), ranks.mine() * 2
    with dist._coalescing_manager(device=one.device, async_ops=True) as calls:
        dist.all_reduce(one)
        dist.all_reduce(two)
    calls.wait()
    yield one, ranks.all_given().sum(0)
    yield two, ranks.all_given().sum(0) * 2


def _functional_collectives(ranks: Ranks) -> Iterator[Pair]:
    group = list(range(ranks.count))
    yield functional.all_reduce(ranks.mine(), "sum", group) + 0, ranks.all_given().sum(0)
    gathered = functional.all_gather_tensor(ranks.mine(), 0, group)
    yield gathered + 0, ranks.all_given().reshape(-1)
    scattered = functional.reduce_scatter_tensor(ranks.mine(ranks.count), "avg", 0, group)
    yield scattered + 0, ranks.all_given(ranks.count).mean(0)[ranks.rank : ranks.rank + 1]


def _a_large_tensor(ranks: Ranks) -> Iterator[Pair]:
    reduced = ranks.mine(3_000_000)
    dist.all_reduce(reduced)
    yield reduced, ranks.all_given(3_000_000).sum(0)


def _barrier(ranks: Ranks) -> Iterator[Pair]:
    dist.barrier()
    yield torch.tensor(0), torch.tensor(0)


CHECKS: dict[str, Callable[[Ranks], Iterator[Pair]]] = {
    **{
        f"all_reduce-{dtype}-{operation}": lambda ranks, dtype=dtype, operation=operation: _all_reduce(
            ranks, dtype, operation
        )
        for dtype in _TYPES
        for operation in _REDUCED
        # torch_npu divides the sum in place, which integers refuse.
        if operation != "AVG" or "float" in dtype
    },
    "all_reduce-bool": _all_reduce_of_bool,
    **{
        each.__name__.removeprefix("_"): each
        for each in (
            _reduce,
            _broadcast,
            _all_gather,
            _all_gather_of_unequal_sizes,
            _all_gather_into_tensor,
            _reduce_scatter,
            _reduce_scatter_tensor,
            _scatter,
            _gather,
            _all_to_all_single,
            _all_to_all,
            _send_and_recv,
            _all_send_first,
            _messages_of_one_batch,
            _objects,
            _sub_groups,
            _asynchronous_calls,
            _coalesced_calls,
            _functional_collectives,
            _a_large_tensor,
            _barrier,
        )
    },
}


if __name__ == "__main__":
    main(
        {
            name: lambda rank, count, check=check: check(Ranks(rank, count))  # type: ignore[misc]
            for name, check in CHECKS.items()
        }
    )
