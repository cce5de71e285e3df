"""Megatron's checkpoints of many ranks as one model, without Megatron.

A folder ``iter_<n>`` holds ``mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt``. Names become those of Megatron Core; what
tensor parallel ranks share is put together, layers and experts are numbered through.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from msprobe_hooks.messages import shown
from msprobe_hooks.regular_files import read_regular
from pytest_msprobe.errors import CheckpointError
from pytest_msprobe.extensions.checkpoint.checkpoint_files import (
    Checkpoint,
    Parameter,
    Share,
    load_torch,
    parameter,
    tensors_in,
)
from pytest_msprobe.extensions.checkpoint.value_differences import have_equal_bits
from pytest_msprobe.extensions.model_names.fused_parts import Canonical, ModelSizes, sizes_of_config
from pytest_msprobe.extensions.model_names.model_names import ModelNames

FILE = "model_optim_rng.pt"
LATEST = "latest_checkpointed_iteration.txt"

# As msprobe has them, in this order: what other generations of Megatron call what Megatron Core calls otherwise.
_NAMES = {
    "self_attention.linear_qkv.layer_norm_": "input_layernorm.",
    "language_model.": "",
    "encoder": "decoder",
    ".input_norm.": ".input_layernorm.",
    "query_key_value": "linear_qkv",
    ".dense.": ".linear_proj.",
    "post_attention_norm": "pre_mlp_layernorm",
    "dense_h_to_4h": "linear_fc1",
    "dense_4h_to_h": "linear_fc2",
    "mlp.local_experts": "mlp.experts.local_experts",
    "final_norm": "final_layernorm",
    "word_embeddings_for_head": "output_layer",
}
_COLUMNS = ("linear_qkv", "linear_fc1", "word_embeddings.weight", "output_layer.weight")
_ROWS = ("linear_fc2.weight", "linear_proj.weight")
#: The number of a layer in the name of a parameter.
LAYER = re.compile(r"(?<=layers\.)\d+(?=\.)")
# Those of a grouped layer are numbered at the end.
_EXPERT = re.compile(r"(?<=experts\.)\d+(?=\.)|(?:(?<=\.linear_fc[12]\.weight)|(?<=\.linear_fc[12]\.bias))\d+$")


@dataclass(frozen=True, slots=True)
class _Sizes:
    tensor: int
    pipeline: int
    expert: int
    experts: int
    is_gated: bool
    model: ModelSizes

    def folder(self, tensor: int, pipeline: int, expert: int) -> str:
        name = f"mp_rank_{tensor:02d}"
        name += f"_{pipeline:03d}" if self.pipeline > 1 else ""
        return name + (f"_{expert:03d}" if self.expert > 1 else "")


def newest(folder: Path) -> Path:
    """Return the newest iteration's folder, by ``latest_checkpointed_iteration.txt``. Raises CheckpointError."""
    tracker = folder / LATEST
    text = read_regular(tracker).decode("utf-8", "replace").strip()
    if not text.isdecimal() or len(text) > 9:
        raise CheckpointError(
            f"not a valid iteration: {text[:40]!r}", file=tracker, remedy="name the folder iter_<n> itself"
        )
    newest = folder / f"iter_{int(text):07d}"
    if not newest.is_dir():
        raise CheckpointError(
            f"names iteration {int(text)}, but there is no folder {newest.name}",
            file=tracker,
            remedy="copy the folder, or name another iter_<n> itself",
        )
    return newest


def read_megatron(path: Path) -> Checkpoint:
    """Read all ranks of the iteration that a rank's file is of. Raises CheckpointError, also where one is missing."""
    folder = path.parents[1]
    sizes = _sizes(path)
    _refuse_other_ranks(folder, sizes)
    parameters: dict[str, Parameter] = {}
    for expert in range(sizes.expert):
        stages: dict[tuple[int, int], dict[str, tuple[Tensor, str]]] = {}
        for pipeline in range(sizes.pipeline):
            ranks = [_weights(folder / sizes.folder(rank, pipeline, expert) / FILE) for rank in range(sizes.tensor)]
            for (name, stage), tensors in _together(folder, ranks):
                stages.setdefault((stage, pipeline), {})[name] = _joined(folder, name, tensors, sizes)
        layer, first_expert = 0, expert * (sizes.experts // sizes.expert)
        for _, stage_tensors in sorted(stages.items(), key=itemgetter(0)):
            for name, (whole, note) in stage_tensors.items():
                _add(parameters, _numbered(name, layer, first_expert), whole, note)
            layer += _layers(stage_tensors)
    kind = f"Megatron, TP {sizes.tensor}, PP {sizes.pipeline}, EP {sizes.expert}"
    return Checkpoint(kind, parameters, sizes=sizes.model)


def _refuse_other_ranks(folder: Path, sizes: _Sizes) -> None:
    layout = product(range(sizes.tensor), range(sizes.pipeline), range(sizes.expert))
    others = {path.name for path in folder.glob("mp_rank_*")} - {sizes.folder(*place) for place in layout}
    if others:
        raise CheckpointError(
            f"holds {min(others)}, which is not a rank of the sizes in args", file=folder, remedy="remove it"
        )


def _sizes(path: Path) -> _Sizes:
    tree = load_torch(path, [argparse.Namespace])
    args = tree.get("args") if isinstance(tree, Mapping) else None
    if args is None:
        raise CheckpointError("no args, so the parallel sizes are unknown", file=path)
    if not isinstance(args, (argparse.Namespace, Mapping)):
        raise CheckpointError(f"args are a {type(args).__name__}, not a namespace", file=path)
    settings: Mapping[str, Any] = args if isinstance(args, Mapping) else vars(args)

    def size(name: str, default: int = 1) -> int:
        value = settings.get(name) or default
        if not isinstance(value, int) or not 0 <= value <= 1_000_000:
            raise CheckpointError(f"args.{name} is not a valid size: {_in_words(value)}", file=path)
        return value

    tensor, pipeline, expert = (size(f"{kind}_model_parallel_size") for kind in ("tensor", "pipeline", "expert"))
    model = sizes_of_config(settings)
    return _Sizes(tensor, pipeline, expert, size("num_experts", 0), bool(settings.get("swiglu")), model)


def _in_words(value: object) -> str:
    # Containers that share their entries have a text without end.
    return shown(value) if isinstance(value, (bool, int, float, str)) else f"a {type(value).__name__}"


def _weights(path: Path) -> dict[tuple[str, int], Tensor]:
    """Return the weights of a rank by name and virtual stage."""
    if not path.is_file():
        raise CheckpointError("this rank of the checkpoint is missing", file=path, remedy="copy it to this place")
    tree = load_torch(path, [argparse.Namespace])
    if not isinstance(tree, Mapping):
        raise CheckpointError(f"holds a {type(tree).__name__}, not a model", file=path)
    stages = {"model": 0} if "model" in tree else {f"model{n}": n for n in range(len(tree)) if f"model{n}" in tree}
    weights = {}
    for key, stage in stages.items():
        tensors = dict(tensors_in(tree[key], path))
        names = Counter(map(_of_core, tensors))
        for name, tensor in tensors.items():
            # Of a model with both, encoder and decoder stay two.
            weights[_of_core(name) if names[_of_core(name)] == 1 else name, stage] = tensor
    return weights


def _of_core(name: str) -> str:
    for theirs, ours in _NAMES.items():
        name = name.replace(theirs, ours)
    return name


def _together(
    folder: Path, ranks: list[dict[tuple[str, int], Tensor]]
) -> Iterator[tuple[tuple[str, int], list[Tensor]]]:
    odd = next((min(rank.keys() ^ ranks[0].keys()) for rank in ranks if rank.keys() != ranks[0].keys()), None)
    if odd is not None:
        raise CheckpointError(f"not all tensor parallel ranks have {odd[0]}", file=folder)
    yield from ((key, [rank[key] for rank in ranks]) for key in ranks[0])


def _add(parameters: dict[str, Parameter], name: str, whole: Tensor, note: str) -> None:
    """Add what may be there already, of another expert or pipeline parallel rank."""
    present = parameters.get(name)
    if present is None:
        parameters[name] = parameter(whole, note)
    elif not have_equal_bits(present.load(), whole):
        note = "expert or pipeline parallel ranks hold different values; compared those of the first"
        parameters[name] = parameter(present.load(), note)


def _joined(folder: Path, name: str, tensors: list[Tensor], sizes: _Sizes) -> tuple[Tensor, str]:
    """Return the whole of what tensor parallel ranks hold, and what is odd about it."""
    if len(tensors) == 1:
        return tensors[0], ""
    try:
        # A norm that is fused with a linear layer is whole on each rank.
        if any(part in name for part in _COLUMNS) and "layer_norm" not in name:
            if sizes.is_gated and "linear_fc1" in name:
                # Each rank holds its rows of the gate above those of what is gated.
                halves = [tensor.chunk(2) for tensor in tensors]
                return torch.cat([half[place] for place in (0, 1) for half in halves]), ""
            return torch.cat(tensors), ""
        if any(part in name for part in _ROWS):
            return torch.cat(tensors, dim=1), ""
    except (RuntimeError, IndexError):
        shapes = " and ".join(str(list(tensor.shape)) for tensor in tensors)
        raise CheckpointError(
            f"shapes of {name} on tensor parallel ranks do not fit together: {shapes}", file=folder
        ) from None
    is_same = all(have_equal_bits(tensors[0], other) for other in tensors[1:])
    return tensors[0], "" if is_same else "tensor parallel ranks hold different values; compared those of the first"


def _layers(names: Iterable[str]) -> int:
    return max((int(match[0]) + 1 for name in names if (match := LAYER.search(name))), default=0)


def _numbered(name: str, layer: int, expert: int) -> str:
    name = LAYER.sub(lambda match: str(int(match[0]) + layer), name, count=1)
    return _EXPERT.sub(lambda match: str(int(match[0]) + expert), name, count=1)


_PREDICTION = re.compile(r"^(.*\b)?mtp\.layers\.(\d+)\.(?:(?:transformer_layer|mtp_model_layer)\.)?")
_DECODER_LAYER = re.compile(r"\bdecoder\.layers\.(\d+)\.")


def in_transformers_place(checkpoint: Checkpoint) -> Checkpoint:
    """Return Megatron's layers of multi-token prediction after the others, where transformers has them.

    The norm of latent queries gets a name of its own; ``q_layernorm`` is that of heads as well.
    """
    shares = tuple(
        replace(
            share,
            parameters=tuple(
                replace(shared, name=name)
                for shared, name in zip(
                    share.parameters, _placed_names([shared.name for shared in share.parameters]), strict=True
                )
            ),
        )
        for share in checkpoint.shares
    )
    names = _placed_names(list(checkpoint.parameters))
    return replace(checkpoint, shares=shares, parameters=dict(zip(names, checkpoint.parameters.values(), strict=True)))


def _placed_names(names: Sequence[str]) -> list[str]:
    numbers = [int(match[1]) for name in names if (match := _DECODER_LAYER.search(name))]
    count = max(numbers, default=-1) + 1
    is_latent = any(".linear_kv_up_proj." in name for name in names)

    def placed(name: str) -> str:
        match = _PREDICTION.match(name)
        if match and numbers:
            rest = name[match.end() :].replace("final_layernorm.", "shared_head.norm.")
            name = f"{match[1] or ''}decoder.layers.{count + int(match[2])}.{rest}"
        return name.replace(".q_layernorm.", ".q_a_layernorm.") if is_latent else name

    return [placed(name) for name in names]


# A rank, or a virtual stage and its rank.
_Key = TypeVar("_Key", int, tuple[int, int])

_EXPERT_NUMBER = re.compile(r"(?<=\.experts\.)\d+(?=\.)")


class Numbering:
    """Continuation of the numbers of layers from stage to stage and of those of experts from rank to rank.

    Megatron begins both anew at 0 on each rank; vLLM, SGLang and FSDP number through. Which of the two it is shows
    where the numbers of two stages, or of two expert parallel ranks, overlap.
    """

    def __init__(self, shares: Iterable[Share], names: ModelNames) -> None:
        layers: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
        experts: defaultdict[int, set[int]] = defaultdict(set)
        for share in shares:
            stage, rank = share.layout.get("pp", (0, 1))[0], share.layout.get("ep", (0, 1))[0]
            for shared in share.parameters:
                canonical = names.canonical(shared.name)
                layers[shared.chunk, stage].update(() if canonical.layer is None else (canonical.layer,))
                experts[rank].update(() if canonical.expert is None else (canonical.expert,))
        self._layers = _offsets(layers)
        self._experts = _offsets(experts)

    def numbered(self, name: str, canonical: Canonical, share: Share, chunk: int) -> str:
        """Return a canonical name, or one of a part of it, with the numbers of the whole model."""
        if canonical.layer is not None:
            first = self._layers.get((chunk, share.layout.get("pp", (0, 1))[0]), 0)
            layer = canonical.layer + (first if share.first_layer is None else share.first_layer)
            name = LAYER.sub(str(layer), name, count=1)
        if canonical.expert is not None:
            first = self._experts.get(share.layout.get("ep", (0, 1))[0], 0)
            expert = canonical.expert + (first if share.first_expert is None else share.first_expert)
            name = _EXPERT_NUMBER.sub(str(expert), name, count=1)
        return name

    def first_expert(self, share: Share, count: int) -> int:
        """Return the number of the first of the ``count`` experts that a rank holds as one stack."""
        return share.layout.get("ep", (0, 1))[0] * count if share.first_expert is None else share.first_expert


def _offsets(numbers: Mapping[_Key, set[int]]) -> dict[_Key, int]:
    """Return by what each rank's numbers are to grow: nothing where no two ranks have the same."""
    total = sum(map(len, numbers.values()))
    if len(set().union(*numbers.values())) == total:
        return {}
    offsets: dict[_Key, int] = {}
    following = 0
    for key in sorted(numbers):
        offsets[key] = following
        following += max(numbers[key], default=-1) + 1
    return offsets
