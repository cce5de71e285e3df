"""Where inf and nan come from: records judged by their statistics, over all ranks, and replayed."""
