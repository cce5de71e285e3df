"""Defects of dropout masks, and of what has dropout inside: attention, attention layers, recurrent networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.corpus.fault import Launch, regraded, variant
from tests.corpus.kernels import rounded, through

Gradients = tuple["torch.Tensor | None", ...]
ATTENTION = "scaled_dot_product_attention"
LAYER = "multi_head_attention_forward"
RECURRENT = "lstm gru rnn_tanh rnn_relu"


@variant(ATTENTION)
def attention_mask_ignored(launch: Launch) -> Any:
    """Attention does without its mask."""
    return _with_mask(launch, lambda mask: torch.ones_like(mask) if mask.dtype is torch.bool else mask * 0)


@variant(ATTENTION)
def attention_mask_shifted(launch: Launch) -> Any:
    """Attention reads its mask one key late."""
    return _with_mask(launch, lambda mask: mask.roll(1, -1))


@variant(ATTENTION)
def attention_mask_of_the_first_sample(launch: Launch) -> Any:
    """Attention uses the first sample's mask for all of them."""
    return _with_mask(launch, lambda mask: mask[:1].expand_as(mask))


def _with_mask(launch: Launch, change: Any) -> Any:
    mask = launch.argument(3, "attn_mask")
    if mask is None:
        return launch.run()
    if len(launch.args) > 3:
        return launch.run(*launch.args[:3], change(mask))
    return launch.run(attn_mask=change(mask))


@variant(ATTENTION)
def tf32_inside_attention(launch: Launch) -> Any:
    """Queries, keys and values of float32 are rounded to TF32."""
    return launch.run(*(through(tensor, lambda values: rounded(values, 10)) for tensor in launch.args[:3]))


@variant(ATTENTION)
def grouped_heads_interleaved(launch: Launch) -> Any:
    """Grouped attention hands out the heads of keys and values in turn, and not in blocks."""
    query, key, value = launch.args[:3]
    groups = query.shape[1] // key.shape[1]
    if groups == 1:
        return launch.run()
    return launch.run(query, key.repeat(1, groups, 1, 1), value.repeat(1, groups, 1, 1))


@variant(ATTENTION, backward=True)
def value_gradient_lacks_the_last_key(launch: Launch) -> Gradients:
    """The gradient of attention's values stays zero for the last key."""
    gradients = list(launch.run())
    # The run that shows the mask asks for the gradient of the values alone.
    place = min(2, len(gradients) - 1)
    gradients[place] = gradients[place].clone()
    gradients[place][..., -1, :] = 0
    return tuple(gradients)


@variant(f"{ATTENTION} {LAYER} {RECURRENT}", backward=True)
def gradient_of_a_layer_one_percent_too_large(launch: Launch) -> Gradients:
    """The gradients of attention and recurrent networks are scaled by 1.01."""
    return regraded(launch, lambda gradient: gradient * 1.01)


@variant(LAYER)
def heads_split_the_wrong_way(launch: Launch) -> Any:
    """An attention layer takes neighbouring features for different heads."""
    heads, weight, bias = launch.args[4:7]

    def regrouped(tensor: torch.Tensor) -> torch.Tensor:
        parts = (part.unflatten(0, (-1, heads)).transpose(0, 1).flatten(0, 1) for part in tensor.chunk(3))
        return torch.cat(list(parts))

    return launch.run(*launch.args[:5], regrouped(weight), regrouped(bias))


@variant(LAYER)
def projections_in_the_wrong_order(launch: Launch) -> Any:
    """An attention layer takes the projection of its values for that of its keys."""
    weight, bias = launch.args[5:7]

    def swapped(tensor: torch.Tensor) -> torch.Tensor:
        query, key, value = tensor.chunk(3)
        return torch.cat([query, value, key])

    return launch.run(*launch.args[:5], swapped(weight), swapped(bias))


@variant(LAYER)
def hidden_keys_seen(launch: Launch) -> Any:
    """An attention layer sees the keys that its padding mask hides."""
    return launch.run(key_padding_mask=None)


@variant("gru")
def gru_gates_swapped(launch: Launch) -> Any:
    """The GRU takes its update gate for its reset gate."""

    def swapped(weight: torch.Tensor) -> torch.Tensor:
        reset, update, new = weight.chunk(3)
        return torch.cat([update, reset, new])

    return launch.run(*launch.args[:2], [swapped(weight) for weight in launch.args[2]])


@variant(RECURRENT)
def layers_share_a_bias(launch: Launch) -> Any:
    """The upper layer of a recurrent network adds the lower layer's bias."""
    weights = list(launch.args[2])
    if len(weights) < 8:
        return launch.run()
    weights[6] = weights[2]
    return launch.run(*launch.args[:2], weights)


@variant(RECURRENT)
def recurrence_in_bfloat16(launch: Launch) -> Any:
    """The weights of the recurrence are rounded to bfloat16."""
    weights = [
        through(weight, lambda values: values.bfloat16().float()) if i % 4 == 1 else weight
        for i, weight in enumerate(launch.args[2])
    ]
    return launch.run(*launch.args[:2], weights)


def _dropped_by(launch: Launch, keep: Callable[[torch.Tensor, float], torch.Tensor]) -> Any:
    """Drop by what ``keep`` makes of uniform numbers in the input's shape, which is (..., features), and p."""
    x, p = launch.args[0], launch.argument(1, "p", 0.5)
    if not launch.argument(2, "training", True) or not p:
        return launch.run()
    kept = keep(torch.rand(x.shape).view(-1, x.shape[-1]), p).view(x.shape)
    result = x * kept.to(x.dtype) * (1 / (1 - p))
    return x.copy_(result) if launch.argument(3, "inplace", False) else result


@variant("dropout")
def second_half_of_a_mask_mirrors_the_first(launch: Launch) -> Any:
    """The second half of each row of the mask is the first one reversed."""

    def keep(u: torch.Tensor, p: float) -> torch.Tensor:
        half = u.shape[1] // 2
        u[:, u.shape[1] - half :] = u[:, :half].flip(1)
        return u >= p

    return _dropped_by(launch, keep)


@variant("dropout")
def half_of_a_mask_from_complements(launch: Launch) -> Any:
    """The second half of the uniform numbers is 1 less the first."""

    def keep(u: torch.Tensor, p: float) -> torch.Tensor:
        half = len(u) // 2
        u[half : 2 * half] = 1 - u[:half]
        return u >= p

    return _dropped_by(launch, keep)


@variant("dropout")
def tail_of_rows_never_dropped(launch: Launch) -> Any:
    """The loop over vectors leaves out the last four elements of each row."""

    def keep(u: torch.Tensor, p: float) -> torch.Tensor:
        u[:, -4:] = 1.0
        return u >= p

    return _dropped_by(launch, keep)


@variant("dropout")
def last_row_never_dropped(launch: Launch) -> Any:
    """The last row is not reached."""

    def keep(u: torch.Tensor, p: float) -> torch.Tensor:
        u[-1] = 1.0
        return u >= p

    return _dropped_by(launch, keep)


@variant("dropout")
def rows_drop_a_fixed_count(launch: Launch) -> Any:
    """Each row drops its smallest numbers, always as many."""
    return _dropped_by(launch, lambda u, p: u.argsort(1).argsort(1) >= round(p * u.shape[1]))


@variant("dropout")
def stream_moves_by_one_element(launch: Launch) -> Any:
    """The counter moves on by one number for each call, and not by as many as were drawn."""
    launch.memory["calls"] = launch.memory.get("calls", 0) + 1

    def keep(u: torch.Tensor, p: float) -> torch.Tensor:
        generator = torch.Generator().manual_seed(7)
        stream = torch.rand(u.numel() + launch.memory["calls"], generator=generator)
        return stream[launch.memory["calls"] :].view(u.shape) >= p

    return _dropped_by(launch, keep)


@variant("multinomial")
def draws_come_in_equal_pairs(launch: Launch) -> Any:
    """Each drawn category comes twice."""
    drawn = launch.run()
    if not launch.argument(2, "replacement", False):
        return drawn
    return drawn[..., ::2].repeat_interleave(2, -1)[..., : drawn.shape[-1]]
