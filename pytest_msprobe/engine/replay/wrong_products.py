"""The failures of what a call's factors of matrices multiply to, where the factors themselves pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msprobe_standards import Standard
from pytest_msprobe.engine.replay.factor_products import in_precision_of, relative_to_whole
from pytest_msprobe.engine.replay.judged_outputs import Beside, judge_outputs
from pytest_msprobe.engine.replay.traits import traits_of
from pytest_msprobe.engine.replay.trial import Trial, several
from pytest_msprobe.engine.values.tree import map_tensors
from pytest_msprobe.results.result import OutputResult


def wrong_products(
    trial: Trial, target: dict[str, Any], golden: dict[str, Any], beside: Beside, select: Callable[[Any], Standard]
) -> list[OutputResult]:
    """Return the failures of what factors multiply to.

    It is only to be asked where the baseline was: factors within a few roundings of golden's multiply to the same.
    """
    products = traits_of(trial.subject.api).products
    if products is None:
        return []

    def of(tree: dict[str, Any]) -> dict[str, Any]:
        return {"product": relative_to_whole(products, tree["output"], golden["output"], several(trial.golden.output))}

    def of_baseline() -> Any:
        found = beside.baseline()
        return found and of(found)

    ours = map_tensors(lambda product: in_precision_of(target["output"][0], product), of(target))
    of_products = Beside(of_baseline, lambda: list(map(of, beside.moved())), batch=beside.batch)
    results = judge_outputs(ours, of(golden), of_products, select)
    return [result for result in results if result.verdict.outcome == "fail"]
