"""Origins of inf and nan: records judged by their statistics, over all ranks, and replayed."""
