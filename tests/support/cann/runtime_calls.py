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
    library.simulated_wait_for_host_calls.argtypes = (ctypes.c_void_p,)
    library.simulated_hang.argtypes = (ctypes.c_void_p,)
    library.simulated_fail_later.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
    library.simulated_lose_card.argtypes = (ctypes.c_int,)
    return library


@cache
def _lost_cards() -> ctypes.c_uint32:
    return ctypes.c_uint32.in_dll(_library(), "simulated_lost_cards")


@cache
def _host_calls() -> ctypes.c_uint32:
    return ctypes.c_uint32.in_dll(_library(), "simulated_host_calls")


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


def wait_for_host_calls(card: int) -> None:
    """Wait for what a card's current stream has the host do, such as a collective, before a kernel computes on it."""
    if _host_calls().value:
        _library().simulated_wait_for_host_calls(_stream(card))


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
    _current_stream(card).synchronize()


def _stream(card: int) -> int:
    return int(_current_stream(card).npu_stream)


def _current_stream(card: int) -> Any:
    # A card's streams are there once it was the current one.
    with torch.npu.device(card):  # type: ignore[attr-defined,unused-ignore]
        return torch.npu.current_stream(card)  # type: ignore[attr-defined,unused-ignore]
