"""msprobe as a tool: its own comparison, in a process of the environment that it is installed in."""

from __future__ import annotations

import io
import os
import pickle
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import torch

from benchmarks.tools.cases import SEED_OF_CPU, Case
from benchmarks.tools.tool import Answer, Tool
from pytest_msprobe.engine.replay.calls.arguments import DeviceArgument
from pytest_msprobe.engine.values.pytree import map_with_paths, tensors_with_paths

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = {"msprobe 1.2.2": ROOT / ".peer", "msprobe 26.2.0": ROOT / ".peer26"}
_SCRIPT = ROOT / "benchmarks" / "peer" / "judge_cases.py"
_LENGTH = struct.Struct("<Q")


class Peer:
    """A process that judges cases by the msprobe of its environment, started by the first one."""

    def __init__(self, environment: Path) -> None:
        self._python = environment / "bin" / "python"
        self._process: subprocess.Popen[bytes] | None = None

    def judge(self, case: Case) -> Answer:
        """Return its answer. Raises RuntimeError with its last output where it has ended."""
        message = io.BytesIO()
        try:
            torch.save(_message(case), message)
        except (TypeError, pickle.PicklingError):
            # No dump can hold such an argument, for any tool to read.
            return "-"
        try:
            self._send(message.getvalue())
            (length,) = _LENGTH.unpack(self._answers.read(_LENGTH.size))
            return cast("Answer", self._answers.read(length).decode())
        except (OSError, struct.error):
            self._log.seek(0)
            raise RuntimeError(f"{self._python}: {self._log.read()[-2000:].decode(errors='replace')}") from None

    def close(self) -> None:
        """End the process, where one was started."""
        if self._process is not None:
            self._cases.close()
            self._process.wait()
            self._answers.close()
            self._log.close()

    def _send(self, message: bytes) -> None:
        if self._process is None:
            self._start()
        self._cases.write(_LENGTH.pack(len(message)) + message)
        self._cases.flush()

    def _start(self) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        of_child, cases = os.pipe()
        answers, to_parent = os.pipe()
        self._process = subprocess.Popen(
            [self._python, _SCRIPT, str(of_child), str(to_parent)],
            pass_fds=(of_child, to_parent),
            cwd=tempfile.gettempdir(),
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        os.close(of_child)
        os.close(to_parent)
        self._cases, self._answers = os.fdopen(cases, "wb"), os.fdopen(answers, "rb")


def _message(case: Case) -> dict[str, Any]:
    """Return a case as plain values: the arguments as msprobe would read them, and the device's results.

    What it takes for the gradient of an argument that the call overwrites is that of its new value, which no case has:
    such calls have results alone.
    """
    arguments, result = case.trial.subject.arguments, case.result
    has_gradients = bool(result.gradients) and not result.gradients.keys() & result.arguments.keys()
    leaves = arguments.differentiable if has_gradients else frozenset()

    def plain(path: str, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.detach().clone().requires_grad_(path in leaves)
        return "cpu" if isinstance(leaf, DeviceArgument) else leaf

    paths = [path for path, _ in tensors_with_paths(arguments.args, "args")]
    return {
        "name": case.name,
        "seed": SEED_OF_CPU,
        "args": list(map_with_paths(plain, arguments.args, "args")),
        "kwargs": map_with_paths(plain, arguments.kwargs, "kwargs"),
        "dtype": str(result.outputs[0].dtype) if result.outputs else "",
        "outputs": result.outputs,
        "gradients": [result.gradients.get(path) for path in paths],
        "arriving": [*case.trial.grad_outputs.values()] if has_gradients else [],
    }


def missing() -> list[str]:
    """Return the versions of msprobe that have no environment here."""
    return [name for name, environment in ENVIRONMENTS.items() if not (environment / "bin" / "python").exists()]


def tools() -> Iterator[Tool]:
    """Yield the versions of msprobe that have an environment here."""
    for name, environment in ENVIRONMENTS.items():
        if name not in missing():
            yield Tool(
                name,
                "the device's one result and the inputs; it computes the CPU's result in a wider dtype itself",
                Peer(environment).judge,
            )
