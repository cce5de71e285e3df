"""Golden definitions of the fused operators that only an NPU has, one module per family.

A definition is a plain torch function with the argument names and defaults of the ``torch_npu`` schema, so
that recorded keywords find their place. It computes in the precision of the tensors it is given, rounds
nowhere in between, and returns outputs in the device's structure. Outputs that ``torch_npu`` does not
differentiate (statistics, indices) are detached. The operators' schemas and meaning are those of the
``op-plugin`` repository (``op_plugin_functions.yaml``, ``docs/context``) unless a docstring says otherwise.
"""
