"""MindTorch (MSAdapter before): torch's functions, computed by MindSpore."""
