"""What a module or parameter is in the names of Hugging Face transformers."""

from __future__ import annotations

from dataclasses import dataclass
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
        """Whether it has more than one part."""
        return self.arrangement != "whole"
