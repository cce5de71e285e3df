"""Collective and point-to-point calls in dumps: ranks, partners and what they exchange.

Importing its modules loads msgspec.
"""
