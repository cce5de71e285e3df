"""msprobe's free benchmark on any dump: each call is run again with perturbed inputs, and is its own reference."""
