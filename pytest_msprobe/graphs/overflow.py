"""How grave a record's overflow is, for the colour of its node."""

from __future__ import annotations

from msprobe_hooks.dump.anomalies.anomaly import Level, find_scene, is_judgeable, read_traffic
from msprobe_hooks.dump.anomalies.ignore_rules import BUILT_IN, IgnoreRules, is_ignored
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.errors import RecordError


def overflow_level(dump: Dump, record: str, rules: IgnoreRules = BUILT_IN) -> Level | None:
    """Return the level of what a record shows; None where nothing is wrong or a rule ignores it.

    A record that is malformed, has no direction or is not there has none.
    """
    if record not in dump.records or not is_judgeable(record):
        return None
    try:
        finding = find_scene(read_traffic(dump, record))
    except RecordError:
        return None
    return None if finding is None or is_ignored(finding, record, rules) else finding.scene.level
