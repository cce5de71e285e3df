"""Constraints on drawn numbers that route tokens: places that are taken once, groups that share out the rows."""

from __future__ import annotations

import torch

from pytest_msprobe.engine.replay.inputs.constraints.drawn import Constraint, DrawnArguments, split_evenly
from pytest_msprobe.engine.replay.inputs.constraints.indices import wrap


def token_unpermute(drawn: DrawnArguments) -> None:
    """Assign each copy of a token a place of its own."""
    places = drawn.tensor(1, "sorted_indices")
    if places is not None:
        places.copy_(torch.randperm(places.numel(), generator=drawn.generator).view_as(places))


def as_many_experts_each(routing_map: torch.Tensor | None, experts: int, generator: torch.Generator) -> None:
    """Send every token to that many experts, drawn anew."""
    if routing_map is not None and routing_map.dim() == 2:
        ranks = torch.rand(routing_map.shape, generator=generator).argsort(-1)
        routing_map.copy_(ranks < experts)


def routing_map(drawn: DrawnArguments) -> None:
    """Send every token to as many experts as ``num_out_tokens`` says."""
    tokens, tokens_out = drawn.tensor(0, "tokens"), drawn.kwargs.get("num_out_tokens")
    if tokens is not None and len(tokens) and not drawn.kwargs.get("drop_and_pad"):
        experts = 1 if tokens_out is None else tokens_out // len(tokens)
        as_many_experts_each(drawn.tensor(1, "routing_map"), experts, drawn.generator)


def routed_back(drawn: DrawnArguments) -> None:
    """Assign each copy of a token a place of its own, and every token as many copies, as a map says where there is one.

    Where the experts are filled up, the places are tokens that exist.
    """
    tokens, shape = drawn.tensor(0, "permuted_tokens"), drawn.get(2, "restore_shape")
    places = drawn.tensor(1, "sorted_indices")
    if tokens is None or not shape or not shape[0]:
        return
    if drawn.kwargs.get("drop_and_pad"):
        wrap(places, shape[0])
        return
    token_unpermute(drawn)
    follow_map(places, drawn.kwargs.get("routing_map"), len(tokens) // shape[0], drawn.generator)


def follow_map(places: torch.Tensor | None, routing_map: object, experts: int, generator: torch.Generator) -> None:
    """Send every token to that many experts, drawn anew, and give its copies their places in the order of experts."""
    if isinstance(routing_map, torch.Tensor) and routing_map.dim() == 2:
        as_many_experts_each(routing_map, experts, generator)
        order = routing_map.bool().T.nonzero()[:, 1].argsort(stable=True)
        if places is not None and places.numel() == order.numel():
            places.copy_(order.view_as(places))


def init_routing(drawn: DrawnArguments) -> None:
    """Count the copies of the tokens column by column, as the gating does."""
    copies = drawn.tensor(1, "row_idx")
    if copies is not None and copies.dim() == 2:
        copies.copy_(torch.arange(copies.numel()).view(copies.shape[1], -1).T)


def finalize_routing(drawn: DrawnArguments) -> None:
    """Map places into the rows that there are, and experts into those that have a bias."""
    rows, bias = drawn.tensor(0, "expanded_permuted_rows"), drawn.tensor(3, "bias")
    if rows is not None:
        wrap(drawn.tensor(5, "expanded_src_to_dst_row"), rows.shape[0])
    if bias is not None:
        wrap(drawn.tensor(6, "export_for_source_row"), bias.shape[0])


def expert_tokens(drawn: DrawnArguments) -> None:
    """Sort the experts that rows belong to."""
    experts = drawn.tensor(0, "sorted_expert_for_source_row")
    if experts is not None:
        experts.copy_(experts.sort().values)


def copies_of_experts(drawn: DrawnArguments) -> None:
    """Assign each expert one copy at least and as many at most as its row of the table has places for."""
    experts, table = drawn.tensor(0, "expert_ids"), drawn.tensor(1, "eplb_table")
    if table is not None and table.dim() == 2 and table.shape[1] > 1:
        wrap(experts, table.shape[0])
        table[:, 0] = (table[:, 0] - 1) % (table.shape[1] - 1) + 1


def re_routing(drawn: DrawnArguments) -> None:
    """Share out the tokens among the ranks and experts."""
    tokens, counts = drawn.tensor(0, "tokens"), drawn.tensor(1, "expert_token_num_per_rank")
    if tokens is not None and counts is not None and counts.numel():
        split_evenly(tokens.shape[0], counts)


def groups_of_rows(
    name: str, kind: str = "", *, all_rows: bool = True, at: int = 2, are_sizes: bool = False
) -> Constraint:
    """Share out the rows of the first argument among the groups that an argument of that name, or ``at``, holds.

    They are the groups' ends, unless ``are_sizes`` or the keyword ``kind`` is 1: then their sizes. With ``all_rows``
    false, ends that were drawn leave as many rows to no group as the recorded ones did.
    """

    def constraint(drawn: DrawnArguments) -> None:
        source = drawn.get(0, "x", "input")
        rows = source[0] if isinstance(source, (list, tuple)) and source else source
        # by keyword, except in npu_group_quant(x, scale, group_index) and the like
        groups = drawn.kwargs.get(name, drawn.get(at))
        if isinstance(rows, torch.Tensor) and isinstance(groups, torch.Tensor) and groups.dim() == 1 and groups.numel():
            total, last = rows.shape[:-1].numel(), int(groups.max())
            are_ends = not are_sizes and drawn.kwargs.get(kind) != 1
            split_evenly(last if not all_rows and are_ends and 0 < last < total else total, groups)
            if are_ends:
                groups.copy_(groups.cumsum(0))

    return constraint


def scatter_nd(drawn: DrawnArguments) -> None:
    """Name a place at most once: which of two writers wins is not defined."""
    target, places = drawn.tensor(0, "self", "input"), drawn.tensor(1, "indices")
    if target is None or places is None or not places.shape[-1]:
        return
    sizes = target.shape[: places.shape[-1]]
    count = places.shape[:-1].numel()
    if sizes.numel() < count:
        return
    left = torch.randperm(sizes.numel(), generator=drawn.generator)[:count]
    for axis in reversed(range(len(sizes))):
        places[..., axis] = (left % sizes[axis]).view(places.shape[:-1])
        left = left // sizes[axis]


def scatter_update(drawn: DrawnArguments) -> None:
    """Leave room behind each index for what is written there."""
    target, starts = drawn.tensor(0, "self", "data"), drawn.tensor(1, "indices")
    updates, axis = drawn.tensor(2, "updates"), drawn.get(3, "axis")
    if target is not None and updates is not None and isinstance(axis, int):
        wrap(starts, target.shape[axis] - updates.shape[axis] + 1)


def quant_scatter(drawn: DrawnArguments) -> None:
    """Leave room behind each index for what is written there, and name each row once."""
    target, starts = drawn.tensor(0, "self", "input"), drawn.tensor(1, "indices")
    updates, axis = drawn.tensor(2, "updates"), drawn.get(5, "axis")
    if target is None or starts is None or updates is None:
        return
    along = axis if isinstance(axis, int) else -2
    room = target.shape[along] - updates.shape[along] + 1
    if starts.dim() == 2 and starts.shape[0] <= target.shape[0]:
        rows = torch.randperm(target.shape[0], generator=drawn.generator)[: starts.shape[0]]
        starts[:, 0] = rows.to(starts.dtype)
        starts[:, 1] = starts[:, 1].remainder(room)
    else:
        wrap(starts, room)


def rows_of(position: int, name: str, index_at: int, index_name: str) -> Constraint:
    """Map an index into the rows of the argument at a position or under a name."""

    def constraint(drawn: DrawnArguments) -> None:
        source = drawn.tensor(position, name)
        if source is not None:
            wrap(drawn.tensor(index_at, index_name), source.shape[0])

    return constraint


def _take_turns(places: torch.Tensor | None, generator: torch.Generator) -> None:
    """Name every place once, in any order."""
    if places is not None:
        places.copy_(torch.randperm(places.numel(), generator=generator).view_as(places))


def places_at(position: int) -> Constraint:
    """Assign each copy of a token a place of its own, in the argument ``sorted_indices`` at that position."""

    def constraint(drawn: DrawnArguments) -> None:
        _take_turns(drawn.tensor(position, "sorted_indices"), drawn.generator)

    return constraint


def gating(drawn: DrawnArguments) -> None:
    """Choose different experts for each row."""
    norm, experts = drawn.tensor(0, "x_norm"), drawn.tensor(2, "expertIdx")
    if norm is not None and experts is not None and experts.dim() == 2:
        order = torch.rand(norm.shape, generator=drawn.generator).argsort(-1)
        experts.copy_(order[:, : experts.shape[1]])


def permuted_by_map(drawn: DrawnArguments) -> None:
    """Assign each copy of a token a place, or, where the experts are filled up, name tokens that exist."""
    places, tokens = drawn.tensor(2, "sorted_indices"), drawn.get(5, "tokens_num")
    if places is None or not isinstance(tokens, int) or not tokens:
        return
    if drawn.get(6, "drop_and_pad"):
        wrap(places, tokens)
        return
    _take_turns(places, drawn.generator)
    follow_map(places, drawn.tensor(3, "routing_map"), len(places) // tokens, drawn.generator)


def unpermuted_by_map(drawn: DrawnArguments) -> None:
    """Assign each copy of a token a place, and the tokens as many copies, or, where experts are filled up, some tokens.

    Who does not fill them up may give the places twice, in memory that both share.
    """
    grad, rows = drawn.tensor(0, "unpermuted_tokens_grad"), drawn.tensor(1, "out_index")
    owners = drawn.tensor(2, "permuted_token_id")
    if grad is None or rows is None or owners is None or not len(grad):
        return
    _take_turns(rows, drawn.generator)
    if drawn.get(6, "drop_and_pad"):
        wrap(owners, len(grad))
        return
    copies = len(rows) // len(grad)
    follow_map(rows, drawn.tensor(3, "routing_map"), copies, drawn.generator)
    is_given_twice = bool((owners >= len(grad)).any())
    of_tokens = torch.arange(len(grad)).repeat_interleave(copies)
    if is_given_twice or of_tokens.numel() == owners.numel():
        owners.copy_(rows if is_given_twice else of_tokens)
