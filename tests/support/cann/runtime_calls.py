"""What kernels computed by the host ask of the simulated runtime, which torch_npu has loaded by then."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL("libascendcl.so")
    library.simulated_keep_busy.argtypes = (ctypes.c_void_p, ctypes.c_double)
    library.simulated_hang.argtypes = (ctypes.c_void_p,)
    library.simulated_fail_later.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
    library.simulated_lose_card.argtypes = (ctypes.c_int,)
    return library


@cache
def _lost_cards() -> ctypes.c_uint32:
    return ctypes.c_uint32.in_dll(_library(), "simulated_lost_cards")


@cache
def _overflow_mode() -> ctypes.c_int:
    return ctypes.c_int.in_dll(_library(), "simulated_overflow_mode")


@cache
def _dump() -> Any:
    return (ctypes.c_char * 4096).in_dll(_library(), "simulated_dump")


def is_lost(card: int) -> bool:
    """Return whether a card was lost."""
    return bool(_lost_cards().value >> card & 1)


def saturates() -> bool:
    """Return whether what overflows becomes the largest number, and not infinity."""
    return _overflow_mode().value == 0


def dump_configuration() -> str:
    """Return the path of the configuration by which kernels are being dumped; empty where none are."""
    return bytes(_dump().value).decode()


def keep_busy(card: int, seconds: float) -> None:
    """Add work of this length to a card's current stream."""
    _library().simulated_keep_busy(_stream(card), seconds)


def hang(card: int) -> None:
    """Add work that never ends to a card's current stream."""
    _library().simulated_hang(_stream(card))


def fail_later(card: int, code: int, message: str) -> None:
    """Leave an error on a card's current stream, which comes out where it is waited for next."""
    _library().simulated_fail_later(_stream(card), code, message.encode())


def lose_card(card: int) -> None:
    """Have every call to a card fail from now on."""
    _library().simulated_lose_card(card)


def wait_for(card: int) -> None:
    """Wait for a card's current stream as torch_npu does, which raises what went wrong in it."""
    torch.npu.current_stream(card).synchronize()  # type: ignore[attr-defined,unused-ignore]


def _stream(card: int) -> int:
    return int(torch.npu.current_stream(card).npu_stream)  # type: ignore[attr-defined,unused-ignore]
