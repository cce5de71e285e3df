"""Results of records, as data."""
