"""Constraints on drawn arguments, beyond their recorded ranges."""
