"""Environment variables that may move numbers, by a list of what is allowed, and installed packages."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from importlib.metadata import distributions

# Addresses and ids of a start (MASTER_PORT, TORCHELASTIC_RUN_ID) are left out: they differ between equal starts.
ALLOWED = (
    *("PYTHONHASHSEED", "PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    *("OMP_*", "MKL_*", "KMP_*", "OPENBLAS_*", "DNNL_*", "ONEDNN_*", "ATEN_*", "GLOO_*", "UCX_*", "NCCL_*", "RCCL_*"),
    *("CUDA_*", "CUBLAS_*", "CUBLASLT_*", "CUDNN_*", "NVIDIA_*", "NVTE_*", "ROCM_*", "HIP_*", "MIOPEN_*"),
    *("ASCEND_*", "HCCL_*", "ACL_*", "ACLNN_*", "LCCL_*", "TASK_QUEUE_ENABLE", "COMBINED_ENABLE", "CPU_AFFINITY_CONF"),
    *("INF_NAN_MODE_ENABLE", "INF_NAN_MODE_FORCE_DISABLE", "MULTI_STREAM_MEMORY_REUSE", "CLOSE_MATMUL_K_SHIFT"),
    *("TORCH_*", "PYTORCH_*", "TORCHINDUCTOR_*", "TORCHDYNAMO_*", "TRITON_*", "XLA_*", "MS_*", "MINDSPORE_*"),
    *(
        "MEGATRON_*",
        "MINDSPEED_*",
        "DS_*",
        "DEEPSPEED_*",
        "ACCELERATE_*",
        "FLASH_ATTENTION_*",
        "TOKENIZERS_PARALLELISM",
    ),
)
_SECRET_NAME = re.compile(
    r"(?:^|[_.-])(?:TOKENS?|SECRETS?|PASSW(?:OR)?DS?|PWD|CREDENTIALS?|AUTH|APIKEY|KEYS?|COOKIES?)(?:$|[_.-])",
    re.IGNORECASE,
)
_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]+@")

_SEPARATORS = re.compile(r"[-_.]+")


def allowed_variables(more: Sequence[str] = (), *, within: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables, of this process or of others, that are allowed by this list or by ``more`` patterns.

    What is called like a secret never is, and of an address the user and the password are left out.
    """
    patterns = (*ALLOWED, *more)
    return {
        name: _CREDENTIALS.sub("", value)
        for name, value in sorted(within.items())
        if any(fnmatchcase(name, pattern) for pattern in patterns) and not is_secret(name)
    }


def is_secret(name: str) -> bool:
    """Return whether a variable is named like something that is not for others to read."""
    return _SECRET_NAME.search(name) is not None


def installed_packages() -> dict[str, str]:
    """Return the versions of Python and of the installed packages, under their normalized names.

    Of a package that is installed twice, the one counts that is imported.
    """
    found: dict[str, str] = {}
    for one in distributions():
        # A folder that a removal left behind has no name.
        name = one.metadata["Name"]
        if name:
            found.setdefault(normalized(name), one.version)
    return {"python": platform.python_version(), **dict(sorted(found.items()))}


def normalized(name: str) -> str:
    """Return the one spelling of a package's name."""
    return _SEPARATORS.sub("-", name).lower()
