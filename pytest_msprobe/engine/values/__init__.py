"""The values of calls: dtypes, strides, nesting, files, and what exceptions mean."""
