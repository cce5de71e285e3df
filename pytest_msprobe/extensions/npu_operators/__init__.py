"""Npu operators."""
