"""Collective and point-to-point calls in dumps: ranks, partners and what they exchange."""
