"""Constraints on drawn numbers of the gradients of routed tokens: places that are taken once, experts that exist."""

from __future__ import annotations

import torch

from pytest_msprobe.engine.replay.inputs.constraints.drawn import Constraint, DrawnArguments
from pytest_msprobe.engine.replay.inputs.constraints.indices import wrap
from pytest_msprobe.engine.replay.inputs.constraints.moe_routing import follow_map


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
    norm, chosen = drawn.tensor(0, "x_norm"), drawn.tensor(2, "expertIdx")
    if norm is not None and chosen is not None and chosen.dim() == 2:
        order = torch.rand(norm.shape, generator=drawn.generator).argsort(-1)
        chosen.copy_(order[:, : chosen.shape[1]])


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
