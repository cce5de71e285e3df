"""Messages to a remote device, and the remote process that runs them."""
