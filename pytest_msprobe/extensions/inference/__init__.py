"""A training compared with an inference engine that serves the same model, token by token."""
