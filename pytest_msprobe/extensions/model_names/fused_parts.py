"""Rows of a fused parameter that belong to each part, under names of Hugging Face transformers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Literal

#: How parts lie in what is fused.
#: ``blocks``: one after another, each whole, as in ``qkv_proj`` of vLLM and SGLang.
#: ``groups``: for each key/value head its query heads, itself and its value head, as in Megatron's ``linear_qkv``.
#: ``experts``: one matrix for each expert along a first axis of its own, the parts of each as ``blocks``.
Arrangement = Literal["whole", "blocks", "groups", "experts"]

#: Which sizes of a model a part's rows are: see `fused_parts.row_counts`.
Rows = Literal["heads", "kv_heads", "half", "q_lora", "kv_lora", "all"]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of what is fused: its canonical name, with ``{expert}`` where each expert has one, and its rows."""

    name: str
    rows: Rows = "all"


@dataclass(frozen=True, slots=True)
class Canonical:
    """A module or parameter in the names of Hugging Face transformers, without wrappers and a leading ``model.``.

    Attributes:
        name: Its name, as ``layers.3.self_attn.q_proj.weight``; of something fused that transformers does not have,
            a name of its own, as ``layers.3.self_attn.qkv_proj.weight``.
        parts: The parts in their order; itself alone where it is not fused.
        arrangement: How the parts lie in it: along the rows of a weight (axis 0, the output features) or bias, and
            along the last axis of what the module returns.
        sharded: The axis of a weight along which tensor parallel ranks share it: 0 (output features, and the last
            axis of what the module returns), 1 (input features), None (each rank has all of it).
        layer: The number of its layer, None outside layers.
        expert: The number of its expert, None outside experts.
        is_known: Whether a pattern knows the name; otherwise the name is only without wrappers.
    """

    name: str
    parts: tuple[Part, ...]
    arrangement: Arrangement = "whole"
    sharded: int | None = None
    layer: int | None = None
    expert: int | None = None
    is_known: bool = False

    @property
    def is_fused(self) -> bool:
        """Return whether it has more than one part."""
        return self.arrangement != "whole"


# Under which names configurations have the sizes: those of transformers, then those of Megatron.
_SPELLINGS = {
    "heads": ("num_attention_heads",),
    "kv_heads": ("num_key_value_heads", "num_query_groups", "multi_query_group_num"),
    "head_dim": ("head_dim", "kv_channels"),
    "hidden": ("hidden_size",),
    "q_lora": ("q_lora_rank",),
    "kv_lora": ("kv_lora_rank",),
    "rope_head_dim": ("qk_rope_head_dim", "qk_pos_emb_head_dim"),
    "experts_per_token": (
        "num_experts_per_tok", "num_experts_per_token", "moe_router_topk", "moe_topk", "moe_k", "top_k_experts",
    ),
}  # fmt: skip


class UnknownSizesError(ValueError):
    """Sizes of the model do not say where parts lie; the message says which to give."""


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """Sizes of a model that say how large parts are; None where unknown."""

    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    hidden: int | None = None
    q_lora: int | None = None
    kv_lora: int | None = None
    rope_head_dim: int | None = None
    experts_per_token: int | None = None

    def completed(self, other: ModelSizes) -> ModelSizes:
        """Return these sizes, and those of ``other`` where these are unknown."""
        missing = {size.name: getattr(other, size.name) for size in fields(self) if getattr(self, size.name) is None}
        return replace(self, **missing)


@dataclass(frozen=True, slots=True)
class PartRows:
    """A part's name, and its rows in order: runs of rows of what is fused."""

    name: str
    rows: tuple[slice, ...]

    @property
    def count(self) -> int:
        """The number of its rows."""
        return sum(run.stop - run.start for run in self.rows)


def sizes_of_config(config: Mapping[str, object]) -> ModelSizes:
    """Return the sizes of a configuration of transformers (``config.json``) or Megatron (``args``)."""
    nested = config.get("text_config")
    sizes_by_name = {
        name: next((value for spelling in spellings if (value := config.get(spelling)) and _is_count(value)), None)
        for name, spellings in _SPELLINGS.items()
    }
    if config.get("group_query_attention") is False:
        # Megatron has a number of groups that it then does not use.
        sizes_by_name["kv_heads"] = sizes_by_name["heads"]
    sizes = ModelSizes(**sizes_by_name)  # type: ignore[arg-type]
    if sizes.head_dim is None and sizes.hidden and sizes.heads and sizes.hidden % sizes.heads == 0:
        sizes = replace(sizes, head_dim=sizes.hidden // sizes.heads)
    if sizes.kv_heads is None:
        sizes = replace(sizes, kv_heads=sizes.heads)
    return sizes.completed(sizes_of_config(nested)) if isinstance(nested, Mapping) else sizes


def part_rows(
    canonical: Canonical, length: int, sizes: ModelSizes, whole: Mapping[str, int] | None = None
) -> tuple[PartRows, ...]:
    """Return the rows of each part in something fused that has ``length`` rows.

    ``length`` is the size of axis 0 of a weight or bias, of axis 1 where ``experts`` lie along axis 0, and of the last
    axis of what a module returns. It may be a tensor parallel rank's share: how many ranks share is found by it. Where
    ``sizes`` do not know, ``whole`` may have the rows of each part by its name, as on the other side of a comparison.

    Raises:
        UnknownSizesError: Sizes that are needed are unknown, or do not fit.
    """
    names = [part.name for part in canonical.parts]
    kinds = [part.rows for part in canonical.parts]
    if kinds == ["all"]:
        return (PartRows(names[0], (slice(0, length),)),)
    if set(kinds) == {"half"}:
        return _blocks(names, [length // len(names)] * len(names), canonical, length)
    if "q_lora" in kinds:
        return _blocks(names, _latent(canonical, sizes, whole), canonical, length)
    if canonical.arrangement == "groups":
        return _groups(canonical, length, sizes, whole)
    return _blocks(names, _heads(canonical, length, sizes, whole), canonical, length)


def _blocks(names: list[str], counts: list[int], canonical: Canonical, length: int) -> tuple[PartRows, ...]:
    if sum(counts) != length:
        raise UnknownSizesError(f"{canonical.name} has {length} rows, its parts {' + '.join(map(str, counts))}")
    starts = [sum(counts[:place]) for place in range(len(counts))]
    return tuple(
        PartRows(name, (slice(start, start + count),)) for name, start, count in zip(names, starts, counts, strict=True)
    )


def _latent(canonical: Canonical, sizes: ModelSizes, whole: Mapping[str, int] | None) -> list[int]:
    rows = _whole(canonical, whole)
    if rows:
        return rows
    if sizes.q_lora and sizes.kv_lora and sizes.rope_head_dim:
        return [sizes.q_lora, sizes.kv_lora + sizes.rope_head_dim]
    raise UnknownSizesError(f"{canonical.name} needs q_lora_rank, kv_lora_rank and qk_rope_head_dim of the model")


def _heads(canonical: Canonical, length: int, sizes: ModelSizes, whole: Mapping[str, int] | None) -> list[int]:
    """Return the rows of query, key and value heads, where a rank has at least one key and one value head."""
    if sizes.heads and sizes.kv_heads and sizes.head_dim:
        for ranks in range(1, sizes.heads + 1):
            heads, kv_heads = sizes.heads // ranks, max(sizes.kv_heads // ranks, 1)
            if sizes.heads % ranks == 0 and (heads + 2 * kv_heads) * sizes.head_dim == length:
                return [heads * sizes.head_dim, kv_heads * sizes.head_dim, kv_heads * sizes.head_dim]
        raise UnknownSizesError(f"{canonical.name} has {length} rows, which {_in_words(sizes)} do not give")
    counts = _whole(canonical, whole)
    if counts and length and sum(counts) % length == 0:
        ranks = sum(counts) // length
        if all(count % ranks == 0 for count in counts):
            return [count // ranks for count in counts]
    raise UnknownSizesError(_needed(canonical))


def _groups(
    canonical: Canonical, length: int, sizes: ModelSizes, whole: Mapping[str, int] | None
) -> tuple[PartRows, ...]:
    counts = _whole(canonical, whole)
    if sizes.heads and sizes.kv_heads:
        queries, rest = divmod(sizes.heads, sizes.kv_heads)
    elif counts and counts[1]:
        queries, rest = divmod(counts[0], counts[1])
    else:
        raise UnknownSizesError(_needed(canonical))
    if not sizes.head_dim:
        raise UnknownSizesError(_needed(canonical))
    size = sizes.head_dim
    group = (queries + 2) * size
    if rest or length % group:
        raise UnknownSizesError(f"{canonical.name} has {length} rows, which {_in_words(sizes)} do not give")
    starts = range(0, length, group)
    widths = (queries * size, size, size)
    offsets = (0, queries * size, (queries + 1) * size)
    return tuple(
        PartRows(part.name, tuple(slice(start + offset, start + offset + width) for start in starts))
        for part, offset, width in zip(canonical.parts, offsets, widths, strict=True)
    )


def _whole(canonical: Canonical, whole: Mapping[str, int] | None) -> list[int]:
    """Return the rows of each part as the other side has them, none where it lacks one."""
    rows = [(whole or {}).get(part.name) for part in canonical.parts]
    return [count for count in rows if count is not None] if None not in rows else []


def _needed(canonical: Canonical) -> str:
    return f"{canonical.name} needs num_attention_heads, num_key_value_heads and head_dim of the model"


def _in_words(sizes: ModelSizes) -> str:
    return f"{sizes.heads} heads, {sizes.kv_heads} key/value heads and head_dim {sizes.head_dim}"


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31
