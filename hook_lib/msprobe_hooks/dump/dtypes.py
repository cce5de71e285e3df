"""How dtypes are spelled in dumps: one name for what PyTorch, MindSpore and numpy call by several."""

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


def plain_dtype(name: str) -> str:
    """Return torch's name of a recorded dtype without ``torch.``: ``bfloat16`` for BFloat16 and torch.bfloat16.

    A dtype that torch lacks is in small letters.
    """
    plain = name.rpartition(".")[2].lower()
    return _SPELLINGS.get(plain, plain)
