"""Calls that run again after their verdict: repeated, on parts of their batch, or with perturbed inputs."""
