"""The private names of pytest that the fast path needs. Where pytest lacks one, the fast path is off."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

#: Each as ``module:name`` or ``module:class.attribute``; only instances may have the attribute.
PRIVATE_NAMES = (
    "_pytest.logging:LoggingPlugin.formatter",
    "_pytest.main:FSHookProxy.remove_mods",
    "_pytest.mark.structures:NodeKeywords._markers",
    "_pytest.runner:call_and_report",
    "_pytest.skipping:pytest_runtest_call",
    "_pytest.terminal:TerminalReporter.pytest_collectreport",
)
#: What pytest's own plugins are registered as. A user may turn any of them off.
PLUGIN_NAMES = ("logging-plugin", "terminalreporter")


def missing_names(names: Iterable[str]) -> list[str]:
    """Return those of the names that the installed pytest lacks."""
    return [name for name in names if not _exists(name)]


def _exists(name: str) -> bool:
    module, _, path = name.partition(":")
    owner, _, attribute = path.partition(".")
    try:
        owned = getattr(import_module(module), owner)
    except (ImportError, AttributeError):
        return False
    return not attribute or hasattr(owned, attribute) or attribute in owned.__init__.__code__.co_names
