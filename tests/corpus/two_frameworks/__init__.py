"""Eight networks written twice, in MindSpore and in PyTorch, with the same weights."""
