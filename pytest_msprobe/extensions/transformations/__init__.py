"""Transformations that turn one side of a comparison before it is compared: rotated, dequantised, in another order."""
