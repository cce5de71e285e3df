"""The pre-check of MindSpore's calls on this CPU, against torch."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

import pytest

from msprobe_hooks.dump.reader import read_dump
from pytest_msprobe.devices.sim import SimDevice
from pytest_msprobe.engine.replay.call import read_call
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.results.outcomes import SkipReason
from pytest_msprobe.results.result import DirectionResult
from tests.mindspore.calls import every_call
from tests.mindspore.checking import check, setup_with
from tests.support.dumps.dump_files import write_dump

DATA = Path(__file__).parents[1] / "data"
DUMPS = sorted((DATA / "mindspore").glob("*/dump.json"))

# The methods that msprobe's own check accepts; it accepts everything of mint besides.
CHECKABLE_METHODS = """add_ add addmm_ all allclose any bool byte ceil clamp contiguous copy_ cos clone cumprod
    expand_as flatten float half int is_contiguous isnan item log log2 long masked_fill max mean min numel numpy repeat
    repeat_interleave reshape round select sin size split sqrt square sub swapaxes to t tolist topk transpose trunc type
    unsqueeze view view_as fill_ floor_ clamp_ type_as zero_""".split()

# MindSpore 2.10 has no kernels for these on a CPU.
WITHOUT_KERNEL = {
    *(f"Tensor.{name}.0.forward" for name in "fill_ zero_ floor_ clamp_ clone repeat addmm_".split()),
    "Functional.rms_norm.0.forward",
}
# MindSpore 2.10 on a CPU returns the sum and leaves the tensor as it was; and makes whole numbers of 1.5.
WRONG = {"Tensor.add_.0.forward", "Functional.full.0.forward"}


def test_the_quick_start_of_mindspores_manual_has_a_forward_verdict_and_no_backward_item() -> None:
    [result] = check(DATA / "dumps" / "mindspore-example" / "dump.json", setup_with())
    assert result.record == "Mint.where.0.forward"
    assert result.verdict.outcome == "pass"
    [output] = result.outputs
    assert (output.target_dtype, output.shape) == ("torch.int64", (1, 4096))


def not_passed(results: Iterable[DirectionResult]) -> dict[str, str]:
    """Return what did not pass, with the reason; not what MindSpore 2.9 has no kernel for on a CPU, unlike 2.10."""
    lacking = ("MintFunctional.softplus.", "MintFunctional.dropout.") if version("mindspore").startswith("2.9.") else ()
    return {
        result.record: result.verdict.reason
        for result in results
        if result.verdict.outcome != "pass"
        and not (result.skip is SkipReason.UNSUPPORTED and result.record.startswith(lacking))
    }


# Ten seeds together take far more than 5 s.
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 10))])
def test_no_record_of_msprobes_dumps_alarms_or_goes_unjudged(seed: int) -> None:
    results = [result for path in DUMPS for result in check(path, setup_with(seed=seed))]
    assert len(results) > 350
    assert not_passed(results) == {}


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> dict[str, DirectionResult]:
    path = write_dump(tmp_path_factory.mktemp("everything"), every_call(), framework="mindspore")
    return {result.record: result for result in check(path, setup_with())}


def test_every_call_that_this_cpu_computes_passes_forward_and_backward(everything: dict[str, DirectionResult]) -> None:
    no_kernel = {name for name in everything if name.rpartition(".")[0] + ".forward" in WITHOUT_KERNEL}
    others = {name: result for name, result in everything.items() if name not in no_kernel | WRONG}
    assert not_passed(others.values()) == {}
    assert sum(name.endswith(".backward") for name in others) > 150


def test_a_call_that_this_cpu_has_no_kernel_for_is_a_skip_that_says_so(everything: dict[str, DirectionResult]) -> None:
    for name in WITHOUT_KERNEL:
        result = everything[name]
        assert result.skip is SkipReason.UNSUPPORTED
        assert "kernel" in result.verdict.reason or "not supported on this device" in result.verdict.reason
        assert "C++" not in result.verdict.reason


def test_wrong_results_of_mindspore_itself_are_found(everything: dict[str, DirectionResult]) -> None:
    assert {name for name, result in everything.items() if result.verdict.outcome == "fail"} == WRONG


def test_every_checkable_name_is_among_the_calls(everything: dict[str, DirectionResult]) -> None:
    assert [name for name in CHECKABLE_METHODS if f"Tensor.{name}.0.forward" not in everything] == []


class Faulty(SimDevice):
    """Doubles one element of whatever a record of this name computes."""

    def __init__(self, record: str) -> None:
        self.record = record

    def call(self, func, args, kwargs, *, record):  # type: ignore[no-untyped-def]
        found = func(*args, **kwargs)
        if record == self.record:
            leaf = found[0] if isinstance(found, tuple) else found
            leaf.detach().flatten()[0] += 0.5
        return found


@pytest.mark.parametrize("record", ["Mint.matmul.0.forward", "Mint.matmul.0.backward", "MintFunctional.silu.0.forward"])
def test_a_fault_planted_in_a_simulated_device_is_found_and_costs_only_its_record(record: str) -> None:
    results = list(check(DATA / "mindspore" / "statistics" / "dump.json", setup_with(Faulty(record))))
    assert {result.record for result in results if result.verdict.outcome == "fail"} == {record}


def test_real_data_gives_the_recorded_values_to_both_sides() -> None:
    dump = read_dump(DATA / "mindspore" / "tensor" / "dump.json")
    replay = Replay(read_call(dump, "Mint.matmul.0.forward"), setup_with())
    assert replay.forward().verdict.outcome == "pass"
    recorded = dump.forward("Mint.matmul.0.forward").args[1]
    used = replay.trial.subject.arguments.args[1]
    assert abs(float(used.mean()) - recorded.mean) < 1e-6  # type: ignore[union-attr,operator]


def test_the_policy_of_msprobes_mindspore_check_judges() -> None:
    results = list(check(DATA / "mindspore" / "statistics" / "dump.json", setup_with(policy="mindspore-1.2")))
    assert {result.verdict.outcome for result in results} == {"pass"}
    assert {result.verdict.standard for result in results} >= {"mindspore_check"}
