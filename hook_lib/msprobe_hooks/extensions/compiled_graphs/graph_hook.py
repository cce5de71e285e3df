"""Hook on the graphs that inductor compiles, and what runs and records their kernels while a recording is on.

Graphs are compiled anew. Inductor's caches of whole graphs are off, as code comes from them without its operators; CUDA
graphs and the C++ wrapper are off, as they run kernels past Python. Compiled kernels are cached as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx
from torch._guards import TracingContext

from msprobe_hooks.extensions.compiled_graphs.generated_code import (
    HOOK,
    KernelCall,
    Written,
    generated_code,
    require_torch,
    short_name,
)
from msprobe_hooks.extensions.compiled_graphs.graph_operators import (
    CompiledOperators,
    DrawsRandomNumbersError,
    compiled_operators,
    fused,
    golden_value,
    source_lines,
)
from msprobe_hooks.extensions.compiled_graphs.traced_operators import (
    GraphOperators,
    OperatorTrace,
    OperatorValues,
    OuterMode,
    has_values,
    inside,
)
from msprobe_hooks.recording.call_records import CallRecord
from msprobe_hooks.recording.config import Settings
from msprobe_hooks.recording.session import Model
from msprobe_hooks.recording.summary import Summary
from msprobe_hooks.torch.recorder import TorchRecorder
from msprobe_hooks.torch.session import Operators, TorchSession

_SETTINGS = {"fx_graph_cache": False, "fx_graph_remote_cache": False, "cpp_wrapper": False, "triton.cudagraphs": False}
_SETTINGS_OF_AUTOGRAD = {"enable_autograd_cache": False, "enable_remote_autograd_cache": False}

_LIMIT = "exceeds_recompile_limit"


class GraphHook:
    """Has the kernels of every graph recorded that inductor compiles from the first ``begin`` on.

    Graphs go on existing after ``end``, and then record nothing until the next ``begin``; ``close`` drops them.
    """

    def __init__(self, recorders: _Recorders, trace: OperatorTrace | None = None) -> None:
        self._recorders = recorders
        self._trace = trace
        self._stack = ExitStack()
        self._numbers: dict[Any, int] = {}
        self._is_first = True

    def begin(self) -> None:
        """Record graphs that are compiled from now on; the first time, what was compiled before is dropped."""
        import torch._functorch.config
        import torch._inductor.config
        from torch._dynamo import convert_frame
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

        self._replace(GraphLowering, "compile_to_module", compile_to_module)
        exceeds: Callable[..., Any] = vars(convert_frame)[_LIMIT]

        def exceeds_recompile_limit(*args: Any, **kwargs: Any) -> Any:
            result = exceeds(*args, **kwargs)
            if result[0]:
                self._recorders.note(f"code that torch no longer compiles, as of {result[1]}, is not recorded")
            return result

        self._replace(convert_frame, _LIMIT, exceeds_recompile_limit)
        if self._trace is not None:
            self._trace.begin()
            self._stack.callback(self._trace.end)

    def _replace(self, owner: Any, name: str, function: Callable[..., Any]) -> None:
        self._stack.callback(setattr, owner, name, getattr(owner, name))
        setattr(owner, name, function)

    def end(self) -> None:
        """Look into no further graphs."""
        self._stack.close()

    def close(self) -> None:
        """Drop the graphs that have the hook."""
        if not self._is_first:
            torch.compiler.reset()

    def _instrument(self, graph: Any, module: Any) -> None:
        code = generated_code(Path(module.__file__).read_text(encoding="utf-8"))
        calls = _GraphCalls(self._name(graph), code.calls, compiled_operators(graph, code), self._recorders)
        if self._trace is not None:
            calls.program = GraphOperators(self._trace, graph.module.graph, is_backward=bool(graph.is_backward))
            # Unless autograd compiles it, nothing is saved.
            metadata = getattr(TracingContext.try_get(), "fw_metadata", None)
            calls.results = None if metadata is None or graph.is_backward else metadata.num_forward
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
    """Level compiled, and level aten inside of compiled code; a second recording has golden values.

    Raises ConfigError where torch is too old.
    """

    def __init__(self, settings: Settings, model: Model | None = None) -> None:
        require_torch(torch.__version__)
        super().__init__(settings, model)
        self.recorder.summary.awaited = "compiled graph"
        path = settings.golden_path
        self._golden = None if path is None else TorchRecorder(replace(settings, dump_path=path))
        self._recorders = _Recorders(self.recorder, self._golden)
        trace = OperatorTrace() if settings.level == "aten" else None
        self._hook = GraphHook(self._recorders, trace)
        if trace is not None:
            outer = Operators(self.recorder, OuterMode)
            self._observers = [outer if isinstance(one, Operators) else one for one in self._observers]
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
        if summary.records:
            summary.unmatched += [f"{text} ({count})" for text, count in self._recorders.notes.items()]
        else:
            summary.errors.update(self._recorders.notes)
        return summary


@dataclass(frozen=True, slots=True)
class _Recorders:
    """Recorders of kernels, and of what their operators compute uncompiled; ``notes`` are counts by reason."""

    compiled: TorchRecorder
    golden: TorchRecorder | None
    notes: dict[str, int] = field(default_factory=dict)

    def both(self) -> list[TorchRecorder]:
        """Return the recorders that there are."""
        return [one for one in (self.compiled, self.golden) if one is not None]

    def forget(self) -> None:
        """Measure everything anew: generated code has run, which writes past the version counters of tensors."""
        for one in self.both():
            one.forget()

    def note(self, text: str) -> None:
        """Count something that is not judged."""
        self.notes[text] = self.notes.get(text, 0) + 1


class KernelRecord(CallRecord):
    """The record of one call of a kernel."""

    __slots__ = ("_lines",)

    count = "calls"
    count_backward = "backwards"

    def begin(self, args: Any, kwargs: Mapping[str, Any], lines: tuple[str, ...]) -> None:
        """Take what the kernel reads, before it runs; ``lines`` are those of the program that it was made from."""
        self._lines = lines
        recorder = self._recorder
        if recorder.directions.forward and recorder.filter.admits(self.name):
            with recorder.quiet():
                self._take_inputs(args, kwargs)

    def end(self, outputs: list[Any]) -> None:
        """Take what the kernel wrote."""
        with self._recorder.quiet():
            self._take_output(tuple(outputs), None)

    def _emit(self) -> None:
        assert self._record is not None
        self._recorder.emit_of_lines(self.name, self._record, self._parent, self.count, self._lines)


class _GraphCalls:
    """The kernel calls of one compiled graph; ``name`` is the graph's in the names of records."""

    def __init__(
        self, name: str, calls: tuple[KernelCall, ...], operators: CompiledOperators, recorders: _Recorders
    ) -> None:
        self._name = name
        self._calls = calls
        self._operators = operators
        self._recorders = recorders
        self._known: dict[fx.Node, Any] = {}
        self._lines = self._lines_of_calls()
        #: What the program calls in the graph, where that is recorded in place of kernels.
        self.program: GraphOperators | None = None
        #: How many of a forward graph's results the program gets; autograd saves the others.
        self.results: int | None = None

    def enclosing(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function that runs the graph, knowing its arguments while it runs."""

        def call(runner: Any, args: list[Any]) -> Any:
            recorders = self._recorders
            if recorders.golden is not None and recorders.compiled.is_recording:
                with recorders.compiled.net(f"the arguments of {self._name}"), recorders.compiled.quiet():
                    self._known = dict(zip(self._operators.arguments, map(_kept, args), strict=True))
            try:
                if self.program is None or not recorders.compiled.is_recording:
                    return run(runner, args)
                with inside(recorders.compiled):
                    result = run(runner, args)
                    with recorders.compiled.net(self._name), recorders.compiled.quiet(), torch.no_grad():
                        saved = () if self.results is None else result[self.results :]
                        self._record_operators(self.program, [one for one in saved if isinstance(one, Tensor)])
                return result
            finally:
                self._known = {}

        return call

    def _record_operators(self, program: GraphOperators, saved: Sequence[Tensor]) -> None:
        recorders = self._recorders
        if not program.operators:
            recorders.note(f"not judged: {self._name}, in which nothing is left of what the program calls")
        values = OperatorValues(program, self._known, program.take_left(self._known))
        for operator in program.operators:
            name = f"{operator.name}.{recorders.compiled.number(operator.name)}.forward"
            if not has_values(operator):
                continue
            try:
                sides = values.both_sides(operator)
            except DrawsRandomNumbersError:
                recorders.note("operators that hang on random numbers drawn in their kernel are not judged")
            except Exception as error:
                recorders.note(f"not judged: {name}, as {_in_a_line(error)}")
            else:
                for recorder, (args, kwargs, results) in zip(recorders.both(), sides, strict=True):
                    record = KernelRecord(recorder, name, None)
                    record.begin(args, kwargs, program.lines_of(operator))
                    record.end(results)
        program.leave(values, saved)

    def make(self, number: int, kernel: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Make a call of the generated code, recorded while the recording is on."""
        recorders = self._recorders
        if not recorders.compiled.is_recording:
            return kernel(*args, **kwargs)
        records: list[KernelRecord] = []
        call = self._calls[number]
        if self.program is not None:
            result = kernel(*args, **kwargs)
            recorders.forget()
            with recorders.compiled.net(call.kernel), recorders.compiled.quiet():
                self._keep(self._written(call, args, kwargs, result))
            return result
        with recorders.compiled.net(call.kernel):
            records = self._begun(number, call, args, kwargs)
        result = kernel(*args, **kwargs)
        recorders.forget()
        with recorders.compiled.net(call.kernel):
            self._end(call, records, args, kwargs, result)
        return result

    def _begun(self, number: int, call: KernelCall, args: Any, kwargs: Any) -> list[KernelRecord]:
        both = self._recorders.both()
        qualified = f"Inductor.{self._name}.{short_name(call.kernel)}"
        name = f"{qualified}.{both[0].number(qualified)}.forward"
        positional = [args[place] for place, named in call.read.items() if isinstance(place, int) and not named]
        named = {
            word: args[place] if isinstance(place, int) else kwargs[place] for place, word in call.read.items() if word
        }
        records = [KernelRecord(recorder, name, None) for recorder in both]
        for record in records:
            record.begin(positional, named, self._lines[number])
        return records

    def _end(self, call: KernelCall, records: list[KernelRecord], args: Any, kwargs: Any, result: Any) -> None:
        nodes = self._written(call, args, kwargs, result)
        outputs = [value for _, value in nodes] or [_value(one, args, kwargs, result) for one in call.written]
        records[0].end(outputs)
        for record in records[1:]:
            with self._recorders.compiled.quiet(), torch.no_grad():
                golden = self._golden(call, nodes)
                if golden:
                    record.end(golden)
                self._keep(nodes)

    def _written(self, call: KernelCall, args: Any, kwargs: Any, result: Any) -> list[tuple[fx.Node, Tensor]]:
        """Return the operators whose values a call has written, with the values."""
        written = ((self._node(one), _value(one, args, kwargs, result)) for one in call.written)
        return [(node, value) for node, value in written if node is not None and isinstance(value, Tensor)]

    def _keep(self, values: list[tuple[fx.Node, Tensor]]) -> None:
        self._known |= {node: _kept(value) for node, value in values if node not in self._known}

    def _golden(self, call: KernelCall, outputs: list[tuple[fx.Node, Tensor]]) -> list[Tensor]:
        """Return what the operators compute uncompiled; nothing where that cannot be said."""
        golden = []
        drawn: dict[fx.Node, Any] = {}
        for node, actual in outputs:
            try:
                value = golden_value(node, self._known | drawn, actual)
                golden.append(value.detach().requires_grad_(actual.requires_grad))
            except DrawsRandomNumbersError:
                drawn[node] = actual
                golden.append(actual)
                self._recorders.note("values that hang on random numbers drawn in their kernel are taken as drawn")
            except Exception as error:
                self._recorders.note(f"not judged: {node.name} of {call.kernel}, as {_in_a_line(error)}")
                return []
        if not golden:
            self._recorders.note(f"not judged alone: {call.kernel} writes values inside of operators only")
        return golden

    def _node(self, written: Written) -> fx.Node | None:
        return self._operators.node_of(written.variable)

    def _lines_of_calls(self) -> list[tuple[str, ...]]:
        computed = set(self._operators.arguments)
        lines = []
        for call in self._calls:
            nodes = [node for one in call.written if (node := self._node(one))]
            parts = fused(nodes, computed - set(nodes))
            if not parts:
                parts = [node for one in call.written for node in self._operators.origins.get(one.variable, ())]
            computed |= set(nodes)
            lines.append(source_lines(parts))
        return lines


def _in_a_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _value(written: Written, args: Any, kwargs: Any, result: Any) -> Any:
    match written.place:
        case int(place):
            return args[place]
        case str(name):
            return kwargs[name]
        case _:
            return result if written.item is None else result[written.item]


def _kept(value: Any) -> Any:
    """Return a value as it is now; its memory may be written to again."""
    return value.detach().clone() if isinstance(value, Tensor) else value
