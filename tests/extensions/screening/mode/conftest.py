from __future__ import annotations

from tests.conftest import check

__all__ = ["check"]
