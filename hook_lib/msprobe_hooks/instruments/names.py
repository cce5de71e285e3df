"""The free benchmark's perturbations by name, for configurations: what they do is known only beside torch."""

from __future__ import annotations

from typing import Final

PERTURBATIONS: Final = ("improve_precision", "add_noise", "bit_noise", "change_value", "no_change", "to_cpu")
