"""How the margins of runs move over time, from their journals: as text, table and page."""
