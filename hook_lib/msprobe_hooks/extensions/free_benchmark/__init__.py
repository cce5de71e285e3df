"""Task ``free_benchmark``: each call is made once more with perturbed inputs, while the training runs."""
