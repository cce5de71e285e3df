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

_ROUNDING, _MEMORY, _FORMULAS = "rounding, coarse functions", "memory, layouts, order", "formulas of operators"
_RANDOM, _GRADIENTS = "masks, random numbers", "gradients"
_KINDS = {
    faults_of_rounding: _ROUNDING,
    faults_of_estimates: _ROUNDING,
    faults_of_approximation: _ROUNDING,
    faults_of_memory: _MEMORY,
    faults_of_arguments: _MEMORY,
    faults_of_kernels: _FORMULAS,
    faults_of_layers: _FORMULAS,
    faults_of_dropout: _RANDOM,
    faults_of_gradients: _GRADIENTS,
    faults_of_linear_algebra: _FORMULAS,
    faults_of_order: _MEMORY,
    faults_of_lazy_bits: _MEMORY,
    faults_of_formulas: _FORMULAS,
    faults_of_backward_formulas: _GRADIENTS,
}

#: Each fault, and of which kind it is.
FAULTS_AND_KINDS: tuple[tuple[Variant, str], ...] = (
    *(
        (found, kind)
        for module, kind in _KINDS.items()
        for found in vars(module).values()
        if isinstance(found, Variant)
    ),
    *((fault, _ROUNDING) for fault in FAULTS_OF_MODES),
)
FAULTS: tuple[Variant, ...] = tuple(fault for fault, _ in FAULTS_AND_KINDS)
