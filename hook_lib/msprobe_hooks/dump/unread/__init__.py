"""Values of a record that say nothing: memory that a call overwrites, and memory that it leaves undefined."""
