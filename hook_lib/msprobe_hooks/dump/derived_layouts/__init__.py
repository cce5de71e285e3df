"""Memory layouts of tensors, concluded from the calls of a dump that does not record them.

What is not certain is left out: a tensor's layout is known where the calls before it show it, from one whose result is
contiguous whatever it was given, through views.

Importing its modules loads msgspec.
"""

from msprobe_hooks.dump.derived_layouts.derivation import DerivedLayouts

__all__ = ["DerivedLayouts"]
