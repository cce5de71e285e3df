"""Launch scripts and settings as they were, without secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.regular_files import read_regular

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
        return [_plain(each) for each in (sorted(value, key=str) if isinstance(value, (set, frozenset)) else value)]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    text = value if isinstance(value, str) else str(value)
    # An object without a text of its own is printed with its address, which differs at each start.
    return without_secrets(re.sub(r" at 0x[0-9a-f]+", "", text))
