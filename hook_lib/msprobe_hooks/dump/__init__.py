"""A dump as data: names, records, files; what its neighbours say of scopes, ranks and steps."""
