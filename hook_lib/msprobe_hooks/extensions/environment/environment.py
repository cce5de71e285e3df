"""The training environment, written by one line at the top of a training script; scripts, without secrets."""

from __future__ import annotations

import os
import platform
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.environment.start_file import Started, rank_file, write_started
from msprobe_hooks.record import Framework, require_framework
from msprobe_hooks.regular_files import read_regular

if TYPE_CHECKING:
    from msprobe_hooks.extensions.environment.recorder import Start, Training
    from msprobe_hooks.recording.session import Model

SUFFIXES = (".sh", ".yaml", ".yml")
HIDDEN = "(hidden)"

# A choice: bytes of one script. What is larger is data.
_LARGEST = 1 << 20
# A secret's name ends in such a word; ``tokenizer``, ``max_tokens`` and ``pad_token`` are none.
_NAME = (
    r"(?:(?:[\w.-]*[_.-])?(?:(?:api|access|private)[_-]?keys?|secrets?(?:[_-]?key)?|passwords?|passwd|passphrase"
    r"|credentials?|(?:access|api|auth|hf|hub|wandb|bearer|git(?:hub|lab)?|hugging[_-]?face|session|security|refresh"
    r"|login|tracking)[_-]?token)"
    # Words outside of a model's vocabulary.
    r"|(?-i:(?!(?:PAD|EOS|BOS|UNK|MASK|SEP|CLS|IMAGE|VIDEO|AUDIO|MAX|MIN|NUM|PER)_TOKEN)[A-Z0-9][A-Z0-9_]*_TOKEN)"
    r"|\w+[_-]pwd)"
)
# A list, or what a shell joins of quoted and other parts to one word; behind a comma another setting may follow.
_VALUE = r"""(?:\[[^\]\n]*\]|(?:"(?:\\.|[^"\\\n])*"|'[^'\n]*'|[^\s,;}\]]|,(?![\s"']|[\w.-]+[:=]|$))+)"""
_SECRET = re.compile(
    rf"(?P<before>(?<![\w.-])(?:(?:--)?{_NAME}[\"']?(?:\s*[:=]\s*|\s+)|--token(?:\s*=\s*|\s+)|token[\"']?\s*[:=]\s*))"
    rf"{_VALUE}",
    re.IGNORECASE | re.MULTILINE,
)
_SECRET_KEY = re.compile(rf"(?:--)?(?:{_NAME}|token)", re.IGNORECASE)
# What is a secret whatever it is called: keys, what follows a login, and the tokens of some services.
_SHAPES = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)|(?<=\blogin )[\w-]{20,}"
    r"|(?<=\b[Bb]earer )[^\s\"']+|\b(?:hf_\w{30,}|gh[pousr]_\w{30,}|github_pat_\w{30,}|glpat-[\w-]{20,}|sk-[\w-]{32,})",
    re.DOTALL,
)
_CREDENTIALS = re.compile(r"(?<=://)[^/\s@\"']+@")
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
_USER = re.compile(r"(?<=://)[^/\s@]+@")

_SEPARATORS = re.compile(r"[-_.]+")


def read_texts(paths: Iterable[str | Path]) -> dict[str, str]:
    """Return the texts of launch scripts (``.sh``) and YAML files, by file name. Raises ConfigError."""
    texts: dict[str, str] = {}
    for path in map(Path, paths):
        if path.suffix not in SUFFIXES:
            raise ConfigError("files", str(path), f"names ending in {', '.join(SUFFIXES)}")
        try:
            content = read_regular(path)
        except OSError as error:
            problem = f"files: {path} cannot be read: {error.strerror}"
            raise ConfigError("files", str(path), "files that can be read", problem=problem) from None
        if len(content) > _LARGEST:
            raise ConfigError("files", str(path), "files of at most 1 MiB")
        name = path.name
        while name in texts:
            name = f"{name}'"
        texts[name] = without_secrets(content.decode("utf-8", "backslashreplace"))
    return texts


def without_secrets(text: str) -> str:
    """Return a text with ``(hidden)`` for the values of what is called like a secret, and addresses without users."""
    return _CREDENTIALS.sub("", _SECRET.sub(rf"\g<before>{HIDDEN}", _SHAPES.sub(HIDDEN, text)))


def arguments_without_secrets(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings, nested or not, likewise; what is neither text nor number as its text."""
    return {str(key): HIDDEN if _SECRET_KEY.fullmatch(str(key)) else _plain(value) for key, value in arguments.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return arguments_without_secrets(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in (sorted(value, key=str) if isinstance(value, (set, frozenset)) else value)]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    text = value if isinstance(value, str) else str(value)
    # An object without a text of its own is printed with its address, which differs at each start.
    return without_secrets(re.sub(r" at 0x[0-9a-f]+", "", text))


#: The name of the command line among the launch scripts.
COMMAND_LINE = "command line"


def write_environment(
    path: str | Path,
    model: Model | None = None,
    *,
    files: Sequence[str | Path] = (),
    settings: Any = None,
    steps: int = 2,
    variables: Sequence[str] = (),
    framework: Framework = "pytorch",
) -> Start:
    """Write the environment of this training of PyTorch or MindSpore to ``rank<n>.json`` in a folder.

    Called at the top of the script, it counts random calls until the first forward pass, and notes batch, parameters
    and buffers at each of the first ``steps`` calls of the model. Secrets are left out. Nothing is raised into the
    training: a file that cannot be written is a RuntimeWarning.

    Args:
        path: The folder of the file.
        model: The model, by default the first module or cell with parameters that is called.
        files: Launch scripts and YAML settings, whose text is kept.
        settings: Hyperparameters, as a mapping or a namespace.
        steps: The number of the model's calls that are noted.
        variables: Patterns of environment variables to keep, added to those that docs/environment.md lists.
        framework: ``pytorch`` or ``mindspore``.

    Returns:
        The recorder; its ``follow`` names a model that is made later.

    Raises:
        ConfigError: An argument is wrong.
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ConfigError("steps", steps, "an integer >= 1")
    require_framework(framework)
    started = without_training(files, settings, variables)
    # The arguments alone: the path of the script is another on another machine.
    started.texts = {**(started.texts or {}), COMMAND_LINE: without_secrets(shlex.join(sys.argv[1:]))}
    from msprobe_hooks.extensions.environment.recorder import Start

    start = Start(Path(path), started, steps, _training(framework))
    start.begin()
    if model is not None:
        start.follow(model)
    return start


def _training(framework: Framework) -> Training:
    if framework == "mindspore":
        from msprobe_hooks.extensions.environment.mindspore_training import MindSporeTraining

        return MindSporeTraining()
    from msprobe_hooks.extensions.environment.torch_training import TorchTraining

    return TorchTraining()


def without_training(files: Sequence[str | Path], settings: Any, variables: Sequence[str]) -> Started:
    """Return the facts that need no training: variables, packages, scripts. Raises ConfigError."""
    return Started(
        variables=allowed_variables(variables),
        packages=installed_packages(),
        texts=read_texts(files) if files else None,
        arguments=None if settings is None else arguments_without_secrets(_mapping(settings)),
    )


def pack(folder: Path, files: Sequence[str | Path]) -> Path:
    """Write the facts that need no training and return the file. Raises ConfigError, StartError."""
    path = rank_file(folder, int(os.environ["RANK"]) if os.environ.get("RANK", "").isdecimal() else 0)
    write_started(path, without_training(files, None, ()))
    return path


def _mapping(settings: Any) -> Mapping[str, Any]:
    if isinstance(settings, Mapping):
        return settings
    try:
        attributes: dict[str, Any] = vars(settings)
    except TypeError:
        raise ConfigError("settings", settings, "a mapping or a namespace") from None
    return attributes


def allowed_variables(more: Sequence[str] = (), *, within: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables, of this process or of others, that are allowed by this list or by ``more`` patterns.

    What is called like a secret never is, and of an address the user and the password are left out.
    """
    patterns = (*ALLOWED, *more)
    return {
        name: _USER.sub("", value)
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
    versions: dict[str, str] = {}
    for one in distributions():
        # A folder that a removal left behind has no name.
        name = one.metadata["Name"]
        if name:
            versions.setdefault(normalized(name), one.version)
    return {"python": platform.python_version(), **dict(sorted(versions.items()))}


def normalized(name: str) -> str:
    """Return the one spelling of a package's name."""
    return _SEPARATORS.sub("-", name).lower()
