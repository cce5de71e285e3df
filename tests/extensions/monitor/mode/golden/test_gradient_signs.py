"""Two runs compared by the signs of their gradients, as gradient probes wrote them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_msprobe.extensions.monitor.judging import load_policy
from pytest_msprobe.extensions.monitor.series_names import MonitorSkip
from tests.support.dumps.probed import write_probe
from tests.support.dumps.watched import norm, write_norms
from tests.support.runs import check

Gradient = NDArray[np.float32]

STEPS = 8
_random = np.random.default_rng(3)
#: Gradients of a weight of 10 000 elements and of a bias of 300, step by step.
WEIGHTS = [_random.normal(size=(100, 100)).astype(np.float32) for _ in range(STEPS)]
BIASES = [_random.normal(size=300).astype(np.float32) for _ in range(STEPS)]


def flipped(gradient: Gradient, share: float) -> Gradient:
    """Return a gradient with the signs of so many of its elements changed."""
    changed = gradient.copy()
    changed.flat[: round(share * gradient.size)] *= -1
    return changed


def weights(shares: Sequence[float]) -> list[Gradient]:
    return [flipped(gradient, share) for gradient, share in zip(WEIGHTS, shares, strict=True)]


class Pair:
    """Two runs that were probed, judged by pytest."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self._pytester = pytester

    def write(self, run: str, name: str, gradients: Sequence[Gradient], **others: Sequence[Gradient]) -> None:
        """Write a run of one weight, and of what else there is by name."""
        named = {name: gradients, **others}
        steps = [{key: each[step] for key, each in named.items()} for step in range(len(gradients))]
        write_probe(self._pytester.path / run / "rank0", steps)

    def reported(self, *options: str) -> list[str]:
        """Return what is reported of sign similarities: the first and the count."""
        checked = check(
            self._pytester, "--msprobe-monitor", "a", "--msprobe-golden", "b", "-k", "sign_similarity", *options
        )
        lines = [line for line in checked.result.outlines if line.startswith(("first at", "  golden:", "no series"))]
        return [*lines, *(line for line in checked.result.outlines if re.search(r"\d series: ", line))]


@pytest.fixture
def pair(pytester: pytest.Pytester) -> Pair:
    return Pair(pytester)


def test_too_few_signs_at_the_first_step_fail(pair: Pair) -> None:
    pair.write("a", "fc.weight", weights([0.04] + [0.0] * 7))
    pair.write("b", "fc.weight", WEIGHTS)
    assert pair.reported()[:2] == [
        "first at step 0: grad_reduced/fc.weight/sign_similarity",
        "  golden: sign_similarity is 0.9600 at the first step, below limit 0.9700",
    ]


def test_a_drop_from_one_step_to_the_next_fails(pair: Pair) -> None:
    pair.write("a", "fc.weight", weights([0.0, 0.0002, 0.0004, 0.0002, 0.0, 0.05, 0.0, 0.0]))
    pair.write("b", "fc.weight", WEIGHTS)
    assert pair.reported()[:2] == [
        "first at step 5: grad_reduced/fc.weight/sign_similarity",
        "  golden: sign_similarity is 0.9500 after 1.0000 at the previous step, below limit 0.9700",
    ]


def test_runs_that_drift_apart_step_by_step_pass(pair: Pair) -> None:
    pair.write("a", "fc.weight", weights([0.0, 0.002, 0.02, 0.04, 0.06, 0.12, 0.1, 0.2]))
    pair.write("b", "fc.weight", WEIGHTS)
    assert pair.reported()[0] == "no series left the tolerance"


def test_the_policy_has_the_thresholds(pair: Pair, pytester: pytest.Pytester) -> None:
    pair.write("a", "fc.weight", weights([0.04, 0.02] + [0.0] * 6))
    pair.write("b", "fc.weight", WEIGHTS)
    own = pytester.path / "own.yaml"
    own.write_text("rules: [{rule: sign_similarity, limits: {first: 0.95, drop: 0.03}}]")
    assert pair.reported("--msprobe-policy", "own.yaml")[0] == "no series left the tolerance"
    own.write_text("rules: [{rule: sign_similarity, limits: {first: 0.99}, outcome: warn}]")
    assert pair.reported("--msprobe-policy", "own.yaml") == [
        "no series left the tolerance",
        "  golden: sign_similarity is 0.9600 at the first step, below limit 0.9900",
        "1 series: 1 warned",
    ]
    own.write_text("rules: [{rule: sign_similarity, names: [grad_reduced/head.*]}]")
    assert pair.reported("--msprobe-policy", "own.yaml") == ["no series left the tolerance", "1 series: 1 skipped"]


@pytest.mark.parametrize("name", ["default", "msprobe-1.2", "msprobe-26"])
def test_every_policy_of_ours_has_msprobes_thresholds(name: str) -> None:
    (entry,) = load_policy(name).sign_rules
    assert (entry.rule.first, entry.rule.drop, entry.outcome) == (0.97, 0.03, "fail")


@pytest.mark.parametrize(("flips", "first"), [(3, "no series"), (5, "first at step 4")])
def test_a_few_elements_of_a_small_gradient_may_pass_zero(pair: Pair, flips: int, first: str) -> None:
    small = [each[:4, :4] for each in WEIGHTS]
    pair.write("a", "fc.weight", [*small[:4], flipped(small[4], flips / 16), *small[5:]])
    pair.write("b", "fc.weight", small)
    assert pair.reported()[0].startswith(first)


def test_a_gradient_that_is_rounding_only_is_skipped_and_the_result_says_so(
    pair: Pair, pytester: pytest.Pytester
) -> None:
    for run in "ab":
        noise = [1e-7 * _random.normal(size=300).astype(np.float32) for _ in range(STEPS)]
        pair.write(run, "fc.weight", WEIGHTS, **{"key.bias": noise})
    assert pair.reported() == ["no series left the tolerance", "2 series: 1 passed, 1 skipped"]
    checked = check(pytester, "--msprobe-monitor", "a", "--msprobe-golden", "b", "-k", "key.bias and sign_similarity")
    checked.result.stdout.fnmatch_lines([f"1 skipped: {MonitorSkip.ROUNDING.value}"])


def test_keys_in_a_fused_bias_are_rounding_and_a_bias_of_other_signs_is_not(pair: Pair) -> None:
    def fused(gradients: Sequence[Gradient]) -> list[Gradient]:
        keys = [1e-7 * _random.normal(size=100).astype(np.float32) for _ in gradients]
        return [
            np.concatenate([each[:100], of_keys, each[200:]]) for each, of_keys in zip(gradients, keys, strict=True)
        ]

    for run in "ab":
        biases = [-each for each in BIASES] if run == "a" else BIASES
        pair.write(run, "fc.weight", WEIGHTS, **{"qkv.bias": fused(BIASES), "out.bias": biases})
    reported = pair.reported()
    assert reported[0] == "first at step 0: grad_reduced/out.bias/sign_similarity"
    assert reported[-1] == "3 series: 2 passed, 1 failed"


def test_what_golden_reruns_differ_by_is_honest(pair: Pair) -> None:
    pair.write("a", "fc.weight", weights([0.0] * 5 + [0.1] * 3))
    pair.write("b", "fc.weight", WEIGHTS)
    pair.write("c", "fc.weight", weights([0.0] * 4 + [0.01] * 4))
    assert pair.reported()[0] == "first at step 5: grad_reduced/fc.weight/sign_similarity"
    assert pair.reported("--msprobe-golden-rerun", "c")[0] == "no series left the tolerance"


def test_runs_that_begin_apart_may_differ_at_their_first_common_step(pair: Pair, pytester: pytest.Pytester) -> None:
    pair.write("a", "fc.weight", weights([0.0] * 3 + [0.1] * 5))
    write_probe(pytester.path / "b" / "rank0", [{"fc.weight": each} for each in WEIGHTS[3:]], first=3)
    assert pair.reported()[0] == "no series left the tolerance"


def test_a_watched_run_is_judged_with_the_probe_next_to_it(pair: Pair, pytester: pytest.Pytester) -> None:
    steady = {norm("fc.weight"): np.ones(STEPS), norm("fc.weight", "exp_avg"): np.ones(STEPS)}
    for run in "ab":
        write_norms(pytester.path / run / "Dec03_21-34-40-rank0-1d6d9d83", steady)
    pair.write("a", "fc.weight", weights([0.0, 0.0, 0.2] + [0.0] * 5))
    pair.write("b", "fc.weight", WEIGHTS)
    listed = pytester.runpytest_inprocess("--msprobe-monitor", "a", "--msprobe-golden", "b", "--collect-only", "-q")
    assert [line.partition("::")[2] for line in listed.outlines if "::" in line] == [
        "grad_reduced/fc.weight/norm",
        "grad_reduced/fc.weight/sign_similarity",
        "exp_avg/fc.weight/norm",
    ]
    assert pair.reported()[0] == "first at step 2: grad_reduced/fc.weight/sign_similarity"


def test_a_probe_without_sign_maps_is_compared_by_its_numbers(pytester: pytest.Pytester) -> None:
    for run, factor in (("a", 1.01), ("b", 1.0)):
        steps = [{"fc.weight": each * (factor if step > 4 else 1)} for step, each in enumerate(WEIGHTS)]
        write_probe(pytester.path / run / "rank0", steps, level="L0")
    checked = check(pytester, "--msprobe-monitor", "a", "--msprobe-golden", "b")
    checked.result.stdout.fnmatch_lines(["first at step 5: grad_reduced/fc.weight/norm", "3 series: 3 failed"])


def test_sign_maps_of_one_run_alone_are_reported(pair: Pair, pytester: pytest.Pytester) -> None:
    pair.write("a", "fc.weight", WEIGHTS)
    write_probe(pytester.path / "b" / "rank0", [{"fc.weight": each} for each in WEIGHTS], level="L0")
    checked = check(pytester, "--msprobe-monitor", "a", "--msprobe-golden", "b")
    checked.result.stdout.fnmatch_lines(["*sign similarities not compared: only this run has sign maps*"])


def test_a_map_of_another_shape_is_named(pair: Pair, pytester: pytest.Pytester) -> None:
    pair.write("a", "fc.weight", WEIGHTS)
    pair.write("b", "fc.weight", [each.reshape(50, 200) for each in WEIGHTS])
    checked = check(pytester, "--msprobe-monitor", "a", "--msprobe-golden", "b", "-k", "sign_similarity")
    checked.result.stdout.fnmatch_lines(["*fc.weight at step 0: shape (100, 100) in *rank0, (50, 200) in *rank0*"])


def test_norms_of_a_probe_alone_are_judged_by_rules(pytester: pytest.Pytester) -> None:
    gradients = [np.ones((2, 2)) * (1e6 if step == 25 else 1) for step in range(30)]
    write_probe(pytester.path / "a" / "rank3", [{"fc.weight": each} for each in gradients])
    checked = check(pytester, "--msprobe-monitor", "a")
    checked.result.stdout.fnmatch_lines(["msprobe: a/rank3: 3 series", "first at step 25: grad_reduced/fc.weight/norm"])
