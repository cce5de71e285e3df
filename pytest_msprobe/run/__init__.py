"""Run: collection, options, processes and reports that every mode shares."""
