"""The results of a remote device for the same inputs, in place of the CPU's."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from msprobe_standards import Standard
from pytest_msprobe.engine.replay.calls.arguments import TargetError
from pytest_msprobe.engine.replay.calls.remote_calls import LinkError
from pytest_msprobe.engine.replay.trials.baseline_protocol import Prepare
from pytest_msprobe.engine.values.pytree import tensors_with_paths
from pytest_msprobe.results.outcomes import Skip
from pytest_msprobe.results.result import OutputResult, as_missing_baseline


class RemoteBaseline:
    """The results of one direction of a call on a remote device; ``tree`` computes them when a verdict depends on them.

    Where they cannot be had, or have another dtype or shape, the verdict lacks its baseline.
    """

    problem = ""

    def __init__(self, tree: Callable[[], Any]) -> None:
        self._tree = tree
        self._targets: Mapping[str, torch.Tensor] = {}
        self._missing: dict[str, str] = {}

    def for_outputs(
        self, targets: Mapping[str, torch.Tensor], goldens: Mapping[str, torch.Tensor], prepare: Prepare
    ) -> RemoteBaseline:
        """Return these results for comparison with the target's; the tree is prepared as those were."""
        self._targets = targets
        return self

    def __call__(self, path: str, standard: Standard) -> torch.Tensor | None:
        """Return the output at a path; None where there is none that can be compared with the target's."""
        outputs = self._found
        if isinstance(outputs, str):
            self._missing[path] = outputs
            return None
        tensor, target = outputs.get(path), self._targets[path]
        if tensor is None or tensor.shape != target.shape or tensor.dtype != target.dtype:
            what = "nothing" if tensor is None else f"{tensor.dtype} {tuple(tensor.shape)}"
            self._missing[path] = f"it gave {what} for {path}"
            return None
        return tensor

    def without_missing(self, result: OutputResult) -> OutputResult:
        """Return a result where its baseline could not be had: a failure, or no verdict."""
        why = self._missing.get(result.path)
        return result if why is None else as_missing_baseline(result, f"judged by the same-dtype CPU result, as {why}")

    @functools.cached_property
    def _found(self) -> dict[str, torch.Tensor] | str:
        try:
            return dict(tensors_with_paths(self._tree()))
        except LinkError as error:
            return str(error)
        except Skip as skip:
            return f"the call could not be run on the remote device: {skip}"
        except (TargetError, MemoryError) as error:
            return f"the call failed on the remote device: {error}"
