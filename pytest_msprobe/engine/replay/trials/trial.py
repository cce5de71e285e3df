"""One function run three times on the same inputs: as target on the device, as golden and as baseline on the CPU."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NoReturn, TypeVar

import torch

from msprobe_hooks.dump.names import Direction, api_record
from pytest_msprobe.devices.device import Device, hardware
from pytest_msprobe.engine.replay.calls.arguments import Arguments, CheckError, Subject, TargetError
from pytest_msprobe.engine.replay.calls.golden import baseline_side, golden_side
from pytest_msprobe.engine.replay.calls.remote_calls import LinkError, RemoteCall, RemoteCallDevice
from pytest_msprobe.engine.replay.calls.side import Gradients, Run, Side, run_backward, run_forward
from pytest_msprobe.engine.replay.inputs.large_tensors import LARGE
from pytest_msprobe.engine.replay.ops.canonical_factors import turned
from pytest_msprobe.engine.replay.ops.op_info import op_info, random_property
from pytest_msprobe.engine.replay.partition import cuts_of
from pytest_msprobe.engine.replay.random_apis.random_property import RandomProperty
from pytest_msprobe.engine.replay.trials.input_perturbation import DRAWS, fits_perturbed_runs, perturbed_side
from pytest_msprobe.engine.replay.trials.zero_copy_inputs import placement_for
from pytest_msprobe.engine.values.error_kinds import REFUSALS, is_out_of_memory, is_unsupported
from pytest_msprobe.engine.values.pytree import map_tensors, tensors_with_paths
from pytest_msprobe.engine.values.strides import is_lazy
from pytest_msprobe.errors import UserError
from pytest_msprobe.results.outcomes import Skip, SkipReason, describe_error

_Result = TypeVar("_Result")

# Their gradients are screened by what they returned.
_READ_AGAIN = frozenset({"scaled_dot_product_attention"})

# What is kept of a trial's golden runs.
_OF_GOLDEN = ("golden", "golden_gradients", "moved", "moved_gradients")

# Inputs of so many bytes are worth being drawn again, where that is needed, for the memory that they take meanwhile.
_LET_GO_BYTES = 2**27


class Trial:
    """The runs of one subject. Each is made when first asked for and kept until the trial is dropped.

    By side and direction::

                    side         dtype            forward           backward
        target      the device   the recorded     ``target``        ``target_gradients``
        golden      the CPU      raised           ``golden``        ``golden_gradients``
        baseline    the CPU      the recorded     ``baseline``      ``baseline_gradients``
        moved       the CPU      raised           ``moved``         ``moved_gradients``    inputs moved by a rounding
        remote      another host the recorded     ``remote_run``    ``remote_gradients``   shows the usual error

    All have the same inputs; gradients arrive for ``grad_outputs``, the same on all sides.
    """

    def __init__(self, subject: Subject, device: Device, baseline: RemoteCallDevice | None = None) -> None:
        self.subject = subject
        self.device = device
        self._baseline = baseline
        self._golden_side = golden_side(subject.operation, subject.arguments)
        self._target_side = Side(
            placement_for(device, subject),
            lambda dtype: dtype,
            device.location(),
            device.call,
            subject.autocast,
            keeps_layout=True,
        )
        is_on_cpu = self._target_side.location.type == hardware(device) == "cpu"
        is_narrow = op_info(subject.operation).narrow_inside and not is_on_cpu
        self._baseline_side = baseline_side(None if is_narrow else subject.autocast)
        self._failed: dict[Direction, Callable[[], Exception]] = {}
        self._let_go: list[str] = []
        self._lower_side: Side | None = None

    @property
    def has_released_inputs(self) -> bool:
        """Return whether an input is gone, which reads as NaN."""
        return bool(self._let_go)

    def release_input(self, path: str) -> None:
        """Release the memory of a large drawn input that nothing which is left to be judged reads."""
        tensor = dict(self.subject.arguments.tensors())[path]
        if self._drawn_again is not None and tensor.nbytes >= _LET_GO_BYTES:
            tensor.data = tensor.new_full((), math.nan).expand(tensor.shape)
            self._let_go.append(path)

    def redraw_inputs(self) -> None:
        """Draw the inputs again that were let go of."""
        if not self._let_go or self._drawn_again is None:
            return
        tensors, again = dict(self.subject.arguments.tensors()), dict(self._drawn_again().tensors())
        for path in self._let_go:
            tensors[path].data = again[path]
        self._let_go = []

    @property
    def _drawn_again(self) -> Callable[[], Arguments] | None:
        origin = self.subject.origin
        return None if origin is None else origin.drawn_again

    def raise_golden(self) -> bool:
        """Compute golden anew in float64 from now on, where it was computed in float32; return whether it was."""
        wider = self._golden_side_in_float64()
        if self._golden_side.dtype(torch.float32) is torch.float64 or wider.dtype(torch.float32) is torch.float32:
            return False
        self._lower_side = self._golden_side
        self._compute_golden_on(wider)
        return True

    @property
    def has_raised_golden(self) -> bool:
        """Return whether golden is computed in float64 though its arguments ask for float32."""
        return self._lower_side is not None

    def lower_golden(self) -> None:
        """Compute golden anew as before `raise_golden`."""
        if self._lower_side is not None:
            self._compute_golden_on(self._lower_side)
            self._lower_side = None

    def _golden_side_in_float64(self) -> Side:
        return golden_side(self.subject.operation, self.subject.arguments, torch.float64)

    def _compute_golden_on(self, side: Side) -> None:
        self._golden_side = side
        for name in _OF_GOLDEN:
            vars(self).pop(name, None)

    @property
    def golden_side(self) -> Side:
        """The side that golden is computed on."""
        return self._golden_side

    @property
    def differentiates(self) -> bool:
        """Return whether there are gradients to compare."""
        return self.subject.grad_outputs is not None and bool(self.subject.arguments.differentiable)

    @property
    def laid_out_side(self) -> Side:
        """The side of the baseline with the layouts of the target."""
        return replace(self._baseline_side, keeps_layout=True)

    def has_layouts(self, direction: Direction) -> bool:
        """Return whether the target has a tensor that is not contiguous, of arriving gradients too for ``backward``."""
        if self.subject.arguments.layouts:
            return True
        arriving = self.grad_outputs.values() if direction == "backward" else ()
        return any(not gradient.is_contiguous() or is_lazy(gradient) for gradient in arriving)

    @functools.cached_property
    def randomness(self) -> RandomProperty | None:
        """Return what the results must be like where they are drawn; None where they are not."""
        arguments = self.subject.arguments
        try:
            return random_property(self.subject.api, arguments.args, arguments.kwargs)
        except TypeError:
            # Arguments that do not fit the API are refused by its golden run, with torch's own words.
            return None

    @functools.cached_property
    def switched_off(self) -> Trial | None:
        """The trial of the same call with its randomness switched off; None where it has none, or no such switch."""
        subject = self.subject
        switch_of = op_info(subject.api).switch
        if switch_of is None or subject.changed or self.randomness is None:
            return None
        switch = switch_of(subject.arguments.args, subject.arguments.kwargs)
        args, kwargs = switch.applied(subject.arguments.args, subject.arguments.kwargs)
        arguments = replace(subject.arguments, args=args, kwargs=kwargs)
        return Trial(replace(subject, arguments=arguments, changed=str(switch)), self.device, self._baseline)

    @functools.cached_property
    def golden(self) -> Run:
        """The run in raised precision. Raises Skip where the CPU cannot make it, CheckError in a check of a test."""
        try:
            return self._forward(self.subject.golden, self._golden_side)
        except Exception as error:
            self._raise_without_golden(error, "golden raised on the CPU", self._blame)

    def _raise_without_golden(self, error: Exception, what: str, reason: Callable[[Exception], SkipReason]) -> NoReturn:
        _pass_on_out_of_memory(error)
        if self.subject.is_given:
            raise CheckError(f"{what}: {describe_error(error)}") from error
        if not isinstance(error, REFUSALS):
            raise error
        raise Skip(reason(error), describe_error(error)) from error

    def _blame(self, error: Exception) -> SkipReason:
        """Return whether the CPU cannot do this, or no device could with these inputs."""
        return SkipReason.NO_GOLDEN if is_unsupported(error) or self.baseline else SkipReason.REJECTED_INPUTS

    @functools.cached_property
    def target(self) -> Run:
        """The run on the device. Raises Skip where the device has no kernel, TargetError where it fails."""
        remote = self._remote_target
        if remote is not None:
            return self._on_target("forward", lambda: remote.forward(self.subject))
        return self._on_target("forward", lambda: self._forward(self.subject.target, self._target_side))

    @property
    def draws_anew(self) -> bool:
        """Return whether a further call on the device draws from torch's generator where the call before it ended."""
        return self.subject.draws_from_generator and self._remote_target is None

    def run_target_again(self) -> Run:
        """Return a further run on the device of this process. Raises as ``target`` does."""
        return on_target(lambda: self._forward(self.subject.target, self._target_side))

    @functools.cached_property
    def _remote_target(self) -> RemoteCall | None:
        return self.device.remote_call() if isinstance(self.device, RemoteCallDevice) else None

    @functools.cached_property
    def baseline(self) -> Run | None:
        """The run in the target's own dtypes on the CPU; None where the CPU cannot make it."""
        return self.forward_on(self._baseline_side)

    def forward_on(self, side: Side) -> Run | None:
        """Return the golden function's run on another side of the CPU; None where the CPU cannot make it."""
        try:
            return self._forward(self.subject.golden, side)
        except REFUSALS as error:
            _pass_on_out_of_memory(error)
            return None

    @functools.cached_property
    def grad_outputs(self) -> Mapping[str, torch.Tensor]:
        """The gradients of the outputs. Raises Skip where there is nothing to differentiate, or none can be judged."""
        if self.subject.grad_outputs is None or not self.differentiates:
            raise Skip(SkipReason.NO_GRADIENT, "no recorded input requires a gradient")
        try:
            results = self.target.results
        except TargetError as error:
            # The forward record fails for it; one fault is one failure.
            raise Skip(SkipReason.FORWARD_FAILED, str(error)) from error
        arriving = self.subject.grad_outputs(results)
        # Of compressed ones, such as CSR, torch has neither strides nor the reductions that a verdict takes.
        for compressed in {tensor.layout for tensor in arriving.values()} - {torch.strided, torch.sparse_coo}:
            raise Skip(SkipReason.NO_GOLDEN, f"gradients arrive as {compressed}")
        return arriving

    @functools.cached_property
    def golden_gradients(self) -> Gradients:
        """The gradients of the golden run. Raises as ``golden`` where the CPU cannot compute them."""
        try:
            return self._backward(self.golden, self._golden_side)
        except (Skip, CheckError, TargetError):
            # Not golden's backward raised, but what comes before it.
            raise
        except Exception as error:
            self._raise_without_golden(error, "golden's backward raised on the CPU", lambda _: SkipReason.NO_GOLDEN)

    @functools.cached_property
    def target_gradients(self) -> Gradients:
        """The gradients of the target's run. Raises as ``target`` does."""
        remote = self._remote_target
        if remote is not None:
            return self._on_target("backward", lambda: remote.backward(self.subject, self.target, self.grad_outputs))
        return self._on_target("backward", lambda: self._backward(self.target, self._target_side))

    @functools.cached_property
    def baseline_gradients(self) -> Gradients | None:
        """The gradients of the baseline's run; None where the CPU cannot compute them."""
        return self.gradients_on(self._baseline_side, self.baseline)

    def gradients_on(self, side: Side, run: Run | None) -> Gradients | None:
        """Return the gradients of a side's run; None where there is none or the CPU cannot compute them."""
        try:
            return None if run is None else self._backward(run, side)
        except REFUSALS as error:
            _pass_on_out_of_memory(error)
            return None

    @functools.cached_property
    def elsewhere(self) -> RemoteCall | None:
        """The side of another machine that is to show how much error is normal; None where there is none."""
        return None if self._baseline is None else self._baseline.remote_call()

    @functools.cached_property
    def remote_run(self) -> Run:
        """The run on another machine. Raises what `RemoteCall` does."""
        assert self.elsewhere is not None
        return self.elsewhere.forward(self.subject)

    @functools.cached_property
    def remote_gradients(self) -> Gradients:
        """The gradients of the run on another machine. Raises what `RemoteCall` does."""
        assert self.elsewhere is not None
        return self.elsewhere.backward(self.subject, self.remote_run, self._arriving(self.remote_run))

    @functools.cached_property
    def moved(self) -> list[tuple[Run, Side]]:
        """The golden run with inputs moved by one rounding unit, once per draw, and its side; none where one fails."""
        if not fits_perturbed_runs(self.subject.arguments, self.golden):
            return []
        sides = [perturbed_side(self._golden_side, self.subject.seed, self.subject.key, draw) for draw in range(DRAWS)]
        try:
            return [(self._forward(self.subject.golden, side), side) for side in sides]
        except (*REFUSALS, MemoryError):
            return []

    @functools.cached_property
    def moved_gradients(self) -> list[Gradients]:
        """The gradients of the moved runs for arriving gradients that are moved too; none where one cannot be had."""
        try:
            return [self._backward(run, side) for run, side in self.moved]
        except (*REFUSALS, MemoryError):
            return []

    def _on_target(self, direction: Direction, run: Callable[[], _Result]) -> _Result:
        """Return the result of a run on the device, as `on_target` does.

        One that failed is reported again and not made again: it has used up the graph, and would fail for that.
        """
        if direction in self._failed:
            raise self._failed[direction]()
        try:
            return on_target(run)
        except TargetError as error:
            self._failed[direction] = functools.partial(TargetError, str(error))
            raise
        except Skip as skip:
            self._failed[direction] = functools.partial(Skip, skip.reason, skip.detail)
            raise

    def _forward(self, function: Callable[..., Any], side: Side) -> Run:
        subject = self.subject
        return run_forward(
            function,
            subject.arguments,
            side,
            operation=subject.operation,
            record=api_record(subject.key, "forward"),
            differentiate=self.differentiates,
        )

    def _backward(self, run: Run, side: Side) -> Gradients:
        record = api_record(self.subject.key, "backward")
        return run_backward(run, self._arriving(run), side, record=record, keeps_output=self._keeps_output(run))

    def _keeps_output(self, run: Run) -> bool:
        """Return whether what a run returned is still read once gradients have arrived for it.

        Of what can be cut into blocks no gradient is judged by the values of a result, but for attention's; those of
        the other sides say whether the inputs show anything.
        """
        if run is not vars(self).get("target") or self.randomness is not None or self.subject.operation in _READ_AGAIN:
            return True
        is_any_large = any(tensor.numel() >= LARGE for _, tensor in tensors_with_paths(as_sequence(run.output)))
        return not is_any_large or not cuts_of(self.subject.operation, self.subject.arguments)

    def _arriving(self, run: Run) -> Mapping[str, torch.Tensor]:
        """Return the gradients that arrive for a run's results, for factors in the form that the run gave them."""
        alignment = op_info(self.subject.operation).alignment
        if alignment is None or run is self.target:
            return self.grad_outputs
        outputs = map_tensors(self.device.get, as_sequence(self.target.output))
        return turned(alignment, self.grad_outputs, outputs, as_sequence(run.output))


def as_sequence(output: Any) -> Any:
    """Return a run's output as the sequence or mapping that it is, a single one as the only item of a list."""
    return output if isinstance(output, (list, tuple, dict)) and not isinstance(output, torch.Size) else [output]


def on_target(run: Callable[[], _Result]) -> _Result:
    """Return the result of a run on a device. Raises Skip where it has no kernel, TargetError where it fails."""
    try:
        return run()
    except (Skip, TargetError, CheckError, LinkError, UserError):
        raise
    except Exception as error:
        # A device may raise anything; whatever it is, it is this record's result.
        _pass_on_out_of_memory(error)
        if is_unsupported(error):
            raise Skip(SkipReason.UNSUPPORTED, describe_error(error)) from error
        raise TargetError(describe_error(error)) from error


def _pass_on_out_of_memory(error: Exception) -> None:
    # Of memory that ran out nothing follows for the API.
    if is_out_of_memory(error):
        raise error
