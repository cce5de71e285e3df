"""With a share of the time, a fault in any API of a training is found, whenever it begins."""

from __future__ import annotations

import pytest

from tests.corpus.trainings import TRAININGS
from tests.support.dumps.faults_from_a_step import Costs, faulty_apis, found_after
from tests.support.nightly import nightly_but


def test_a_fault_that_begins_late_is_found_in_every_api_of_a_training() -> None:
    make = TRAININGS["conv_net"]
    planted = faulty_apis(make)
    assert {"Functional.conv2d backward", "Functional.batch_norm forward", "Tensor.mul_ forward"} <= planted
    # A step pays about three checks; there are 25 APIs and directions.
    found, checks = found_after(make, Costs(call=1e-3), begin=12, steps=36)
    assert planted - found.keys() == set()
    assert min(found.values()) >= 0
    assert checks.left_out.keys() == {"no time left (share)"}


@pytest.mark.slow
@pytest.mark.parametrize("name", nightly_but(TRAININGS, "conv_net"))
def test_a_fault_from_step_1000_is_found_within_500_steps_in_every_api(name: str) -> None:
    planted = faulty_apis(TRAININGS[name])
    found, _ = found_after(TRAININGS[name], Costs(call=30e-6), begin=1000, steps=1500)
    assert len(planted) >= 15
    assert planted - found.keys() == set()
