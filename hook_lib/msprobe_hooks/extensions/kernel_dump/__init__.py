"""Level L2: the kernels that one call runs, dumped by the card's own library."""
