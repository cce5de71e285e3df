"""What a compiler made of a call: whether it or the kernel is wrong, and what it did not compile."""
