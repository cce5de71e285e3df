"""Matrix factorizations, whose factors are right up to signs, phases or order."""
