"""Real architectures with random weights: what ``benchmarks/models.py`` trains for a step, records and checks."""

import architectures.torchvision_operators  # noqa: F401  before anything imports torchvision
from architectures import decoders, diffusion, encoders, others, vision
from architectures.training import ARCHITECTURES

__all__ = ["ARCHITECTURES", "decoders", "diffusion", "encoders", "others", "vision"]
