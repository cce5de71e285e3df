"""Level compiled: the kernels that inductor's graphs call."""
