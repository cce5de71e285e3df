"""Rules that tell an anomaly in a series: one tensor's statistic, a value per recorded step.

A rule is a frozen struct of its limits. Its `Detector` takes values one by one, as a training process has them, and
tells what is wrong with each; `Rule.is_broken` answers for a whole series at once, by the same arithmetic, so that both
agree to the bit. docs/monitor.md says where the default limits come from.
"""

from msprobe_hooks.instruments.rules.named import RULES, make_rule
from msprobe_hooks.instruments.rules.rule import Detector, Rule, alarms
from msprobe_hooks.instruments.rules.single_values import DTYPES, NotFinite, Overflow, Underflow
from msprobe_hooks.instruments.rules.turbulence import Turbulence
from msprobe_hooks.instruments.rules.windows import Exploding, Stuck, Vanishing

__all__ = [
    "DTYPES",
    "RULES",
    "Detector",
    "Exploding",
    "NotFinite",
    "Overflow",
    "Rule",
    "Stuck",
    "Turbulence",
    "Underflow",
    "Vanishing",
    "alarms",
    "make_rule",
]
