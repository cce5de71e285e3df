"""A remote device: a Python process that ssh starts on its host runs whole records and sends the results back."""
