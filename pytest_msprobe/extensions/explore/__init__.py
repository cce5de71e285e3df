"""Inputs beyond the recorded one: drawn by Hypothesis, judged like it, and shrunk where they fail."""
