"""Trend of the margins of runs over time, from their journals: as text, table and page."""
