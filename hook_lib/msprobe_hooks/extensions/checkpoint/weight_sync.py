"""The weights of a running model, written to be compared with those of another, and a rank's share of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.record import Framework, require_framework

if TYPE_CHECKING:
    from msprobe_hooks.extensions.checkpoint.mindspore_weights import MindSporeWeight
    from msprobe_hooks.extensions.checkpoint.torch_weights import TorchWeight

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
    layout: dict[str, tuple[int, int]] = {}
    megatron = sys.modules.get("megatron.core.parallel_state")
    if megatron is not None and _call(megatron, "model_parallel_is_initialized"):
        for kind, name in (
            ("tp", "tensor_model_parallel"),
            ("pp", "pipeline_model_parallel"),
            ("ep", "expert_model_parallel"),
            ("etp", "expert_tensor_parallel"),
            ("dp", "data_parallel"),
        ):
            _note(layout, kind, _call(megatron, f"get_{name}_rank"), _call(megatron, f"get_{name}_world_size"))
    for name in ("vllm.distributed.parallel_state", "sglang.srt.distributed.parallel_state"):
        engine = sys.modules.get(name)
        for kind in ("tp", "pp") if engine is not None else ():
            group = _call(engine, f"get_{kind}_group")
            _note(layout, kind, getattr(group, "rank_in_group", None), getattr(group, "world_size", None))
    for module in modules:
        # A layer of experts of vLLM or SGLang knows how its experts are shared.
        for prefix in ("", "moe_"):
            rank, size = getattr(module, f"{prefix}ep_rank", None), getattr(module, f"{prefix}ep_size", None)
            if hasattr(module, "w13_weight") and _note(layout, "ep", rank, size):
                tp = getattr(module, f"{prefix}tp_rank", None), getattr(module, f"{prefix}tp_size", None)
                _note(layout, "etp", *tp)
                return layout
    return layout


def model_sizes(config: Any) -> dict[str, int]:
    """Return the sizes that a configuration has, also those of its part for text."""
    text = _value(config, "text_config")
    sizes = {} if text is None else model_sizes(text)
    return sizes | {name: value for name in _SIZES if _is_number(value := _value(config, name)) and value}


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


def _note(layout: dict[str, tuple[int, int]], kind: str, rank: Any, size: Any) -> bool:
    if _is_number(rank) and _is_number(size) and rank < size:
        layout[kind] = (rank, size)
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


What = Literal["digest", "statistics", "tensors"]


def write_weights(
    weights: Any,
    folder: str | Path,
    what: What = "digest",
    *,
    step: int = 0,
    rank: int | None = None,
    layout: Mapping[str, Any] | None = None,
    config: Any = None,
    framework: Framework = "pytorch",
) -> Path:
    """Write the weights that this rank holds to ``step<n>/rank<n>`` in a folder, one parameter at a time.

    Two folders, as of a trainer and of an engine that samples, are compared by
    ``pytest --msprobe-checkpoint=A --msprobe-golden=B``, whatever the layout and the names of each. Digests are
    computed on the device where it has float64, else on the host; a parameter is read once, one in float32 twice.

    Args:
        weights: A module or cell, a list of a rank's pipeline chunks, a state dict, or pairs of names and tensors as
            engines hand them over. Parts of DTensors know where they lie.
        folder: The folder of all ranks and steps.
        what: ``digest`` writes 8 bytes for each row and each column; ``statistics`` adds max, min, mean and norm of
            each parameter, ``tensors`` these and all values.
        step: The number of the step whose weights these are, the same on both sides.
        rank: The number of this rank, by default that of torch.distributed or of the launcher.
        layout: Rank and size of each kind of parallelism, as ``{"tp": (0, 2), "pp": (1, 4), "ep": (0, 8)}``; ``etp``
            is how tensor parallel ranks share an expert. ``first_layer`` and ``first_expert`` are the numbers of the
            first ones here, where names begin anew at 0. By default what Megatron, vLLM or SGLang know.
        config: The model's configuration, whose sizes say where parts of fused weights lie; by default
            ``weights.config``.
        framework: ``pytorch`` or ``mindspore``.

    Returns:
        The folder of this rank.

    Raises:
        ConfigError: An argument is wrong.
        RecordingError: A file cannot be written.
    """
    require_framework(framework)
    if what not in get_args(What):
        raise ConfigError("what", what, ", ".join(get_args(What)), known=get_args(What))
    for key, value in (("step", step), ("rank", rank if rank is not None else 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ConfigError(key, value, "an integer >= 0")
    from msprobe_hooks.extensions.checkpoint.weights_file import FORMAT, VERSION, RankWeights, WeightsWriter

    ranks, firsts = checked_layout(layout or {})
    first = weights[0] if isinstance(weights, (list, tuple)) and weights else weights
    modules = first.modules() if framework == "pytorch" and hasattr(first, "modules") else iter(())
    head = RankWeights(
        FORMAT,
        VERSION,
        what,
        framework,
        step,
        process_rank() if rank is None else rank,
        running_layout(modules) | ranks,
        sizes=model_sizes(getattr(first, "config", None) if config is None else config),
        first_layer=firsts.get("first_layer"),
        first_expert=firsts.get("first_expert"),
    )
    written_weights = _weights(weights, framework)
    writer = WeightsWriter(Path(folder), head)
    for weight in written_weights:
        if isinstance(weight, str):
            head.skipped.append(weight)
            continue
        written = weight.written
        if what != "digest":
            written = _with(written, **weight.statistics())
        if what == "tensors":
            written = _with(written, file=writer.save(weight.bits()))
        writer.add(written, weight.digests(), weight.rounded())
    writer.close()
    return writer.folder


def _weights(weights: Any, framework: Framework) -> Iterator[TorchWeight | MindSporeWeight | str]:
    if framework == "mindspore":
        from msprobe_hooks.extensions.checkpoint.mindspore_weights import mindspore_weights

        return mindspore_weights(weights)
    from msprobe_hooks.extensions.checkpoint.torch_weights import torch_weights

    return torch_weights(weights)


def _with(written: Any, **values: Any) -> Any:
    from msgspec.structs import replace

    return replace(written, **values)
