"""The weights of a running model, written to be compared with those of another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.weights.weight_layout import checked_layout, model_sizes, process_rank, running_layout
from msprobe_hooks.record import Framework, require_framework

if TYPE_CHECKING:
    from msprobe_hooks.extensions.weights.mindspore_weights import MindSporeWeight
    from msprobe_hooks.extensions.weights.torch_weights import TorchWeight

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
    from msprobe_hooks.extensions.weights.weights_file import FORMAT, VERSION, RankWeights, WeightsWriter

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
    found = _weights(weights, framework)
    writer = WeightsWriter(Path(folder), head)
    for weight in found:
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
        from msprobe_hooks.extensions.weights.mindspore_weights import mindspore_weights

        return mindspore_weights(weights)
    from msprobe_hooks.extensions.weights.torch_weights import torch_weights

    return torch_weights(weights)


def _with(written: Any, **values: Any) -> Any:
    from msgspec.structs import replace

    return replace(written, **values)
