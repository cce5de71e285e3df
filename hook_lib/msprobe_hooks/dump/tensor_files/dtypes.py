"""Spelling of dtypes in dumps: one name for what PyTorch, MindSpore and numpy call by several."""

from __future__ import annotations

# MindSpore's names are torch's with capitals, but for these, which also lose an underscore.
_SPELLINGS = {
    "float8e4m3fn": "float8_e4m3fn",
    "float8e5m2": "float8_e5m2",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2fnuz": "float8_e5m2fnuz",
    "float8e8m0fnu": "float8_e8m0fnu",
    "bool_": "bool",
}


# What has another capital than its first letter in MindSpore.
_CAPITALS = {"bfloat16": "BFloat16", "uint8": "UInt8", "uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64"}


def mindspore_dtype_name(name: str) -> str:
    """Return MindSpore's name of a dtype of torch: ``BFloat16`` for torch.bfloat16, ``Float8E4M3FN``."""
    plain = name.removeprefix("torch.")
    if plain.startswith("float8_"):
        return "Float8" + plain.removeprefix("float8_").upper()
    return _CAPITALS.get(plain, plain.capitalize())


def plain_dtype(name: str) -> str:
    """Return torch's name of a recorded dtype without ``torch.``: ``bfloat16`` for BFloat16 and torch.bfloat16.

    A dtype that torch lacks is in small letters.
    """
    plain = name.rpartition(".")[2].lower()
    return _SPELLINGS.get(plain, plain)
