"""A plugin of pytest that runs every n-th test, for machines on which all of them take hours: ``--every 10``."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every", type=int, default=1, metavar="N", help="run every N-th test")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    step = config.getoption("every")
    others = [item for place, item in enumerate(items) if place % step]
    config.hook.pytest_deselected(items=others)
    items[:] = items[::step]
