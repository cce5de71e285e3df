"""Random APIs, judged by properties that random results must have.

Two runs of such an API differ, so there is no golden result. What can be judged is certain (a kept element is
the input scaled, an index is in range) or a matter of probability (how many elements were dropped). The latter
is judged by bounds that hold at every size, such that a healthy generator fails a check with a probability below
1e-9; how small a fault is found depends on the number of elements alone.

Importing its modules loads torch.
"""
