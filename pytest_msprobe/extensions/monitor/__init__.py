"""Monitored runs as test items: each series judged by rules, or compared with its golden twin."""
