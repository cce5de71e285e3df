"""Screening: large matrix products, convolutions and attention are judged by residuals and sampled elements.

What is cleared is not computed again on the CPU; all else goes on to the exact check. It is on for products of more
than ten billion operations: ``--msprobe-screening GFLOP`` says from where on, and ``--msprobe-screening=off`` turns it
off. It writes no file; results and JUnit hold what was seen (``screened``).

Take it out by deleting this folder and tests/extensions/screening; every product is computed again then.

Importing its modules loads msgspec, pytest, torch and yaml.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_msprobe.engine.replay.strategies import StrategyRegistry
    from pytest_msprobe.modes.check.features import CheckFeatures


def pytest_msprobe_register_check_features(registry: CheckFeatures) -> None:
    """Add the options and the summary's line."""
    from pytest_msprobe.extensions.screening.options import ScreeningFeature

    registry.add(ScreeningFeature())


def pytest_msprobe_register_strategies(registry: StrategyRegistry) -> None:
    """Add screening as the first way to a verdict."""
    from pytest_msprobe.extensions.screening.screen_trial import is_product, judge_by_screening

    registry.add(judge_by_screening, is_accepted=is_product)
