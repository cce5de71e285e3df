"""Weights of a running model, written as digests from which those of shards, parts and wholes follow.

`write_weights` is called where weights are sent from a training to an inference, on both sides.
Public name: ``write_weights``. It adds no key to ``config.json``.
Files: ``step<n>/rank<n>/weights.json`` and ``digests.bin``, and tensors where they are asked for.
Command: that of `pytest_msprobe.extensions.checkpoint`, which compares the two sides.
Without it ``msprobe_hooks`` has no ``write_weights``.
Take it out by deleting this folder, pytest_msprobe/extensions/checkpoint and tests/extensions/checkpoint.

Importing its modules loads mindspore, msgspec and torch.
"""

from __future__ import annotations

EXPORTS = {"write_weights": "weight_sync"}
