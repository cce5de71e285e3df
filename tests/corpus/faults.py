"""The planted faults, each of which a policy should find."""

from __future__ import annotations

from tests.corpus import (
    faults_of_approximation,
    faults_of_arguments,
    faults_of_backward_formulas,
    faults_of_dropout,
    faults_of_estimates,
    faults_of_formulas,
    faults_of_gradients,
    faults_of_kernels,
    faults_of_layers,
    faults_of_lazy_bits,
    faults_of_linear_algebra,
    faults_of_memory,
    faults_of_order,
    faults_of_rounding,
)
from tests.corpus.fault import Variant
from tests.corpus.faults_of_modes import FAULTS_OF_MODES

_MODULES = (
    faults_of_rounding,
    faults_of_estimates,
    faults_of_approximation,
    faults_of_memory,
    faults_of_arguments,
    faults_of_kernels,
    faults_of_layers,
    faults_of_dropout,
    faults_of_gradients,
    faults_of_linear_algebra,
    faults_of_order,
    faults_of_lazy_bits,
    faults_of_formulas,
    faults_of_backward_formulas,
)

FAULTS: tuple[Variant, ...] = (
    *(found for module in _MODULES for found in vars(module).values() if isinstance(found, Variant)),
    *FAULTS_OF_MODES,
)
