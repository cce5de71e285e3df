"""Messages to a remote device, and the remote process that runs them.

Importing its modules loads msgspec, torch and yaml.
"""
