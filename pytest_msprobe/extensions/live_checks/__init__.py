"""A training's own calls judged while it runs, with nothing dumped in between."""

from __future__ import annotations

pytest_plugins = ["pytest_msprobe.extensions.live_checks.fixture"]
