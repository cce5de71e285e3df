"""Weights of a running model, written as digests from which those of shards, parts and wholes follow.

``write_weights`` writes them, one file a rank, in a training or an inference engine; pytest-msprobe's extension of the
same name compares them with each other and with checkpoints. It has no option of the debugger's configuration.
Take it out by deleting this folder, its counterpart in pytest-msprobe and tests/extensions/checkpoint.
"""
