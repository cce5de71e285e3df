"""Golden definitions: routing of tokens to experts, and matrix products by groups."""
