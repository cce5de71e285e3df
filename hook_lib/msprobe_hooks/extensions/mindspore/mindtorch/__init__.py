"""Recording MindTorch (MSAdapter before): torch's functions and modules, computed by MindSpore on its tensors."""
