"""A training step of each of nine small networks, recorded and checked, or checked while it runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import mindspore
import numpy as np
import pytest

from pytest_msprobe import live
from tests.corpus.mindspore_networks import NETWORKS, record_network
from tests.mindspore.checking import check, setup_with

SEEDS = 10


@pytest.mark.slow
def test_nearly_all_records_of_small_networks_are_judged_and_none_alarms(tmp_path: Path) -> None:
    outcomes: Counter[str] = Counter()
    for name in NETWORKS:
        dump = record_network(name, tmp_path / name)
        for seed in range(SEEDS):
            results = list(check(dump, setup_with(seed=seed)))
            outcomes.update(result.verdict.outcome for result in results)
            assert [result.record for result in results if result.verdict.outcome == "fail"] == []
    assert outcomes["pass"] >= 0.97 * outcomes.total()


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_a_live_check_judges_what_a_network_computes_with(name: str) -> None:
    mindspore.set_seed(0)
    np.random.seed(0)
    network = NETWORKS[name]()
    differentiate = mindspore.value_and_grad(network.model, None, network.model.trainable_params())
    with live(framework="mindspore", model=network.model, per_api=None, on_failure="fail") as checks:
        differentiate(*network.inputs)
    counts = checks.counts
    assert counts["pass"] >= 0.9 * sum(counts.values())


def test_running_statistics_are_judged_in_a_live_check() -> None:
    network = NETWORKS["lenet"]()
    network.model.set_train()
    with live(framework="mindspore", model=network.model, apis=["BatchNorm"], on_failure="fail") as checks:
        mindspore.value_and_grad(network.model, None, network.model.trainable_params())(*network.inputs)
    assert checks.counts == {"pass": 2}
