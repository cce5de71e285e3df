"""The marks that items carry, for ``-m``."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

import pytest

from msprobe_hooks.dump.names import parse_api_name, plain_dtype

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump

_DTYPE = re.compile(rb'"dtype": ?"(?:torch\.)?(\w+)"')

_OF_DTYPES = "a dtype among a record's tensors"
_MARKS = {
    "the framework of a record's dump": "pytorch mindspore mindtorch",
    "the type of a record's API": """Functional Tensor Torch NPU Aten VF Distributed MindSpeed Triton
        Mint MintFunctional MintDistributed Primitive Jit""",
    "the direction of a record": "forward backward",
    _OF_DTYPES: """bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16
        float32 float64 complex32 complex64 complex128 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz
        float8_e8m0fnu float4_e2m1fn_x2 int4 qint8 quint8 qint32 hifloat8 HiFloat8Tensor""",
}


def register(config: pytest.Config) -> None:
    """Describe the marks, so that ``pytest --markers`` lists them and ``--strict-markers`` knows them.

    They have everyday names such as ``forward``, and are no business of a run without any record.
    """
    for meaning, names in _MARKS.items():
        for name in names.split():
            config.addinivalue_line("markers", f"{name}: {meaning}")


@cache
def known() -> frozenset[str]:
    """Return the names of the marks that records carry."""
    return frozenset(name for names in _MARKS.values() for name in names.split())


@cache
def of_dtypes() -> frozenset[str]:
    """Return the names of the marks that neither a record's name nor its dump's framework gives."""
    return frozenset(_MARKS[_OF_DTYPES].split())


def of_record(dump: Dump, record: str) -> list[str]:
    """Return the names of the marks that a record carries.

    Other types and dtypes, such as the type of a library's own operators, are no marks: pytest would warn of each, and
    ``--strict-markers`` refuse it.
    """
    try:
        name = parse_api_name(record)
    except ValueError:
        return [dump.framework]
    dtypes = dict.fromkeys(_dtype_mark(match.decode()) for match in _DTYPE.findall(bytes(dump.records[record])))
    names = [dump.framework, name.type, name.direction, *dtypes]
    return [mark for mark in names if mark in known()]


def _dtype_mark(name: str) -> str:
    """Return the mark for a recorded dtype, whatever its spelling."""
    return name if name in known() else plain_dtype(name)
