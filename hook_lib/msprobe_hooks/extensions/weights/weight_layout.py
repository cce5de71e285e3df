"""Which share of a model a rank holds, as given or as the frameworks that it runs in know."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from msprobe_hooks.errors import ConfigError

#: Tensor, pipeline, expert, expert tensor, and data parallelism.
KINDS = ("tp", "pp", "ep", "etp", "dp")
FIRSTS = ("first_layer", "first_expert")
_MOST = 2**20

# The sizes of a model that say where parts lie in what is fused, as transformers and Megatron call them.
_SIZES = (
    "num_attention_heads", "num_key_value_heads", "num_query_groups", "multi_query_group_num", "head_dim",
    "kv_channels", "hidden_size", "q_lora_rank", "kv_lora_rank", "qk_rope_head_dim", "qk_pos_emb_head_dim",
)  # fmt: skip


def checked_layout(layout: Mapping[str, Any]) -> tuple[dict[str, tuple[int, int]], dict[str, int]]:
    """Return the ranks and sizes of a given layout, and the numbers of its first layer and expert.

    Raises ConfigError.
    """
    ranks, firsts = {}, {}
    for key, value in layout.items():
        if key in FIRSTS:
            if not _is_number(value):
                raise ConfigError(f"layout[{key!r}]", value, "an integer >= 0")
            firsts[key] = value
        elif key in KINDS:
            pair = tuple(value) if isinstance(value, (tuple, list)) else ()
            if len(pair) != 2 or not all(map(_is_number, pair)) or pair[0] >= pair[1]:
                raise ConfigError(f"layout[{key!r}]", value, "(rank, size), such as (0, 2)")
            ranks[key] = pair
        else:
            raise ConfigError("layout", key, ", ".join((*KINDS, *FIRSTS)), known=(*KINDS, *FIRSTS))
    return ranks, firsts


def running_layout(modules: Iterator[Any]) -> dict[str, tuple[int, int]]:
    """Return the layout that Megatron, vLLM or SGLang know in this process, or a layer of experts among ``modules``."""
    found: dict[str, tuple[int, int]] = {}
    megatron = sys.modules.get("megatron.core.parallel_state")
    if megatron is not None and _call(megatron, "model_parallel_is_initialized"):
        for kind, name in (
            ("tp", "tensor_model_parallel"),
            ("pp", "pipeline_model_parallel"),
            ("ep", "expert_model_parallel"),
            ("etp", "expert_tensor_parallel"),
            ("dp", "data_parallel"),
        ):
            _note(found, kind, _call(megatron, f"get_{name}_rank"), _call(megatron, f"get_{name}_world_size"))
    for name in ("vllm.distributed.parallel_state", "sglang.srt.distributed.parallel_state"):
        engine = sys.modules.get(name)
        for kind in ("tp", "pp") if engine is not None else ():
            group = _call(engine, f"get_{kind}_group")
            _note(found, kind, getattr(group, "rank_in_group", None), getattr(group, "world_size", None))
    for module in modules:
        # A layer of experts of vLLM or SGLang knows how its experts are shared.
        for prefix in ("", "moe_"):
            rank, size = getattr(module, f"{prefix}ep_rank", None), getattr(module, f"{prefix}ep_size", None)
            if hasattr(module, "w13_weight") and _note(found, "ep", rank, size):
                tp = getattr(module, f"{prefix}tp_rank", None), getattr(module, f"{prefix}tp_size", None)
                _note(found, "etp", *tp)
                return found
    return found


def model_sizes(config: Any) -> dict[str, int]:
    """Return the sizes that a configuration has, also those of its part for text."""
    text = _value(config, "text_config")
    found = {} if text is None else model_sizes(text)
    return found | {name: value for name in _SIZES if _is_number(value := _value(config, name)) and value}


def process_rank() -> int:
    """Return this process's rank: that of torch.distributed, of the launcher's RANK or RANK_ID, or 0."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    text = os.environ.get("RANK") or os.environ.get("RANK_ID") or ""
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def _value(config: Any, name: str) -> Any:
    if isinstance(config, Mapping):
        return config.get(name)
    with suppress(Exception):
        return getattr(config, name, None)
    return None


def _note(found: dict[str, tuple[int, int]], kind: str, rank: Any, size: Any) -> bool:
    if _is_number(rank) and _is_number(size) and rank < size:
        found[kind] = (rank, size)
        return True
    return False


def _call(module: Any, name: str) -> Any:
    function: Callable[[], Any] | None = getattr(module, name, None)
    # Groups that were not made raise errors of many kinds.
    with suppress(Exception):
        return None if function is None else function()
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST
