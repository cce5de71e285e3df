"""Two checkpoints compared: each parameter is an item. Needs the extension model_names.

Reads files of torch, safetensors, DCP, Megatron and MindSpore, and digests of the weights of a running model, which the
hook library's extension of the same name writes (``write_weights``). Parameters of other frameworks and of other splits
over ranks find each other by the names and the fused parts of a model.

Mode: ``--msprobe-checkpoint PATH --msprobe-golden PATH``, with the settings ``msprobe_checkpoint_limit`` and
``msprobe_checkpoint_earlier``, ``--msprobe-json``, ``--msprobe-model-config`` and the key ``model_names`` of
``--msprobe-mapping``.
It writes the JSON file in msprobe's format, and a page by ``--msprobe-html``. Take it out by deleting this folder, its
counterpart and tests/extensions/checkpoint.

Importing its modules loads msgspec, pytest, torch and yaml.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.run.mode import ModeRegistry


def pytest_msprobe_register_modes(registry: ModeRegistry) -> None:
    """Add the mode."""
    from pytest_msprobe.extensions.checkpoint.mode import CHECKPOINT

    registry.add(CHECKPOINT)
