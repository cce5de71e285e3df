"""Reasons for which calls of MindSpore are not judged."""

from __future__ import annotations

from pytest_msprobe.results.skip_reasons import BaseSkipReason


class MindSporeSkip(BaseSkipReason):
    """Why a call of MindSpore is not judged."""

    MISSING_API = "this MindSpore has no such API"
    NO_COUNTERPART = "torch has no counterpart that could compute the golden result"
    COMPILED = "a function that the program compiled: it is not in the recording"
    COMPILED_ELSEWHERE = "no loaded module has this compiled function: load it by -p, or import it in conftest.py"
    NO_SETTINGS = "the recording does not say what the primitive was made with, and the shapes leave it open"
    DRAWS = "the compiled function returns different results when run twice, as one that draws random numbers"
