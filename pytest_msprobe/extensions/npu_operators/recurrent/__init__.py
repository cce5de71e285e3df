"""Golden definitions of what goes through a sequence step by step, and of hyper-connections between layers."""
