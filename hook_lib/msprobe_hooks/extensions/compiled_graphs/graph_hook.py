"""Hook on the graphs that inductor compiles, and the session that records their calls.

Graphs are compiled anew. Inductor's caches of whole graphs are off, as code comes from them without its operators; CUDA
graphs and the C++ wrapper are off, as they run kernels past Python. Compiled kernels are cached as ever.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.compiled_graphs.generated_code import HOOK, generated_code
from msprobe_hooks.extensions.compiled_graphs.kernel_recorder import GraphCalls, Recorders
from msprobe_hooks.extensions.compiled_graphs.operators import compiled_operators
from msprobe_hooks.recording.config import Settings
from msprobe_hooks.recording.session import Model
from msprobe_hooks.recording.summary import Summary
from msprobe_hooks.torch.recorder import TorchRecorder
from msprobe_hooks.torch.session import TorchSession

LEAST_TORCH: Final = (2, 10)

_SETTINGS = {"fx_graph_cache": False, "fx_graph_remote_cache": False, "cpp_wrapper": False, "triton.cudagraphs": False}
_SETTINGS_OF_AUTOGRAD = {"enable_autograd_cache": False, "enable_remote_autograd_cache": False}


def require_torch(version: str = torch.__version__) -> None:
    """Raise ConfigError where this torch is older than what was tried."""
    numbers = tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit())
    if numbers < LEAST_TORCH:
        needed = ".".join(map(str, LEAST_TORCH))
        raise ConfigError(
            "level",
            "compiled",
            f"torch >= {needed}",
            problem=f"level 'compiled' needs torch >= {needed}, this is {version}",
        )


class GraphHook:
    """Has the kernels of every graph recorded that inductor compiles from the first ``begin`` on.

    Graphs go on existing after ``end``, and then record nothing until the next ``begin``; ``close`` drops them.
    """

    def __init__(self, recorders: Recorders) -> None:
        self._recorders = recorders
        self._stack = ExitStack()
        self._numbers: dict[Any, int] = {}
        self._is_first = True

    def begin(self) -> None:
        """Record graphs that are compiled from now on; the first time, what was compiled before is dropped."""
        import torch._functorch.config
        import torch._inductor.config
        from torch._inductor.graph import GraphLowering

        if self._is_first:
            self._is_first = False
            torch.compiler.reset()
        self._stack.enter_context(torch._inductor.config.patch(_SETTINGS))
        self._stack.enter_context(torch._functorch.config.patch(_SETTINGS_OF_AUTOGRAD))
        original = GraphLowering.compile_to_module

        def compile_to_module(graph: Any) -> Any:
            module = original(graph)
            with self._recorders.compiled.net("a graph that was compiled"):
                self._instrument(graph, module)
            return module

        setattr(GraphLowering, "compile_to_module", compile_to_module)  # noqa: B010
        self._stack.callback(setattr, GraphLowering, "compile_to_module", original)

    def end(self) -> None:
        """Look into no further graphs."""
        self._stack.close()

    def close(self) -> None:
        """Drop the graphs that have the hook."""
        if not self._is_first:
            torch.compiler.reset()

    def _instrument(self, graph: Any, module: Any) -> None:
        code = generated_code(Path(module.__file__).read_text(encoding="utf-8"))
        calls = GraphCalls(self._name(graph), code.calls, compiled_operators(graph, code), self._recorders)
        names = module.__dict__
        names[HOOK] = calls.make
        # The module itself was just run from the same file.
        exec(compile(code.tree, module.__file__, "exec"), names)
        runner = type(names["runner"])
        runner.call = calls.enclosing(runner.call)
        names["call"] = names["runner"].call

    def _name(self, graph: Any) -> str:
        """Return ``graph<N>_forward`` or ``graph<N>_backward``, numbered by their compilation in this recording."""
        number = self._numbers.setdefault(graph.graph_id, len(self._numbers))
        return f"graph{number}_{'backward' if graph.is_backward else 'forward'}"


class CompiledSession(TorchSession):
    """Level compiled. With ``golden_path``, a second recording has the golden values.

    Raises ConfigError where torch is too old.
    """

    def __init__(self, settings: Settings, model: Model | None = None) -> None:
        require_torch()
        super().__init__(settings, model)
        self.recorder.summary.awaited = "compiled graph"
        path = settings.golden_path
        self._golden = None if path is None else TorchRecorder(replace(settings, dump_path=path))
        self._recorders = Recorders(self.recorder, self._golden)
        self._hook = GraphHook(self._recorders)
        self._observers.append(self._hook)

    def _start(self, model: Model | None, rank: int | None) -> None:
        # The golden one first: while this one records, it does too.
        if self._golden is not None and not self._is_on:
            own_rank = self._given_rank if rank is None else rank
            self._golden.start(self.rank() if own_rank is None else own_rank)
        super()._start(model, rank)

    def stop(self) -> None:
        """Pause; the files of both recordings are complete, tensors included."""
        super().stop()
        if self._golden is not None:
            self._golden.stop()

    def step(self) -> None:
        """End a step of both recordings."""
        was_wanted = self._is_wanted
        self.stop()
        for recorder in filter(None, (self.recorder, self._golden)):
            recorder.next_step()
        if was_wanted:
            self.start()

    def close(self) -> Summary:
        """Finish both recordings, drop the graphs that were compiled for them and return what was recorded."""
        summary = super().close()
        with self.recorder.net("the end of a recording"):
            self._hook.close()
        if self._golden is not None:
            golden = self._golden.close()
            summary.errors.update(golden.errors)
            summary.unmatched.append(
                f"{golden.calls} of them with golden values, into {self._golden.settings.dump_path}"
            )
        summary.unmatched += [f"{text} ({count})" for text, count in self._recorders.notes.items()]
        return summary
