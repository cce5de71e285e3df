"""MindSpore: its functions as the target, torch's on the CPU as the golden definition."""
