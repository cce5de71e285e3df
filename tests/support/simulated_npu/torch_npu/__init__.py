"""A ``torch_npu`` for tests: cards that torch takes for Ascend's, in the memory of the host and computed by its CPU.

Importing it gives torch a device ``npu`` for good, so only processes of its own tests have it on their path. As with
the package that it stands in for, operators are in ``torch.ops.npu`` and in here, the runtime is ``torch.npu``.
"""

import torch

from torch_npu import kernels

kernels.load()
torch.utils.rename_privateuse1_backend("npu")

from torch_npu import ending, npu, operators  # noqa: E402

torch._register_device_module("npu", npu)
torch.utils.generate_methods_for_privateuse1_backend()
for _name in operators.NAMES:
    globals()[_name] = getattr(torch.ops.npu, _name)

if torch.distributed.is_available():
    from torch_npu import hccl

    hccl.register()

ending.wait_for_backward_passes()
