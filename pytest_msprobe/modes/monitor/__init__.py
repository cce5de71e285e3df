"""Watched training as test items: each series judged by rules, or beside its golden twin."""
