"""What came of a record, as data."""
