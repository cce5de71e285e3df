"""The policy `default` on planted faults and on correct devices; docs/verdict-quality.md has it at full length."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from msprobe_standards import Policy
from tests.corpus.correct_devices import CORRECT_DEVICES
from tests.corpus.fault import Launch, Variant, VariantDevice, variant
from tests.corpus.faults import FAULTS
from tests.corpus.trials import Bench, Tally, read_calls
from tests.support.dumps.archives import unpack

DATA = Path(__file__).parents[2] / "data"
CALLS_PER_API = 3


def by_name(variants: tuple[Variant, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("each", variants, ids=lambda each: each.name.replace(" ", "_"))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    threads = torch.get_num_threads()
    # The calls are small, and the time that threads take to wait for each other is most of it.
    torch.set_num_threads(1)
    own = tmp_path_factory.mktemp("verdict_quality") / "dumps"
    shutil.copytree(DATA / "verdict_quality", own)
    unpack(own / "ill_conditioned" / "dump_tensor_data.tar.xz", own / "ill_conditioned")
    dumps = [*sorted((DATA / "dumps").rglob("dump.json")), *sorted(own.rglob("dump.json"))]
    made = Bench(read_calls(dumps, CALLS_PER_API), Policy.load("default"))
    assert made.run(None).failed == {}
    yield made
    torch.set_num_threads(threads)


@by_name(FAULTS)
def test_a_fault_is_found(bench: Bench, each: Variant) -> None:
    tally = bench.run(each, until_found=True)
    assert tally.touched, "no recorded call shows this fault"
    assert tally.found


@pytest.mark.slow
@by_name(CORRECT_DEVICES)
def test_a_correct_device_raises_no_alarm(bench: Bench, each: Variant) -> None:
    assert bench.run(each).failed == {}


def test_there_are_as_many_faults_and_correct_devices_as_promised() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 40
    assert len({device.name for device in CORRECT_DEVICES}) == len(CORRECT_DEVICES) >= 10


def test_a_record_is_touched_only_where_results_change(bench: Bench) -> None:
    def tally(kernel: Callable[[Launch], object]) -> Tally:
        return bench.run(variant("relu")(kernel))

    assert not tally(lambda launch: launch.run()).touched
    assert tally(lambda launch: launch.run() + 1).touched


def test_a_variant_that_raises_is_no_found_fault(bench: Bench) -> None:
    def broken(launch: Launch) -> object:
        raise ValueError("no kernel")

    with pytest.raises(RuntimeError, match=r"'broken' cannot run .*relu"):
        bench.run(variant("relu")(broken))


def test_a_device_without_variant_computes_what_the_cpu_does() -> None:
    x = torch.randn(5)
    assert torch.equal(VariantDevice().call(torch.exp, [x], {}, record="Torch.exp.0.forward"), x.exp())
