"""Numbers of 4 and 8 bits by tables of all that there are, for independent definitions of quantizing operators."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

# name -> bits of the mantissa, bias of the exponent, and how many codes are finite
_LAYOUTS = {"e2m1": (1, 1, 8), "e1m2": (2, 1, 8), "e4m3": (3, 7, 127), "e5m2": (2, 15, 124)}
_TORCH = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
EMAX = {"e2m1": 2, "e1m2": 0, "e4m3": 8, "e5m2": 15}
LARGEST = {"int8": 127.0, "int4": 7.0, "hif8": 32768.0, "e2m1": 6.0, "e1m2": 1.75, "e4m3": 448.0, "e5m2": 57344.0}
_BY_NUMBER = {
    1: "int8", 12: "int8", 13: "uint8", 3: "int32", 16: "int4", 23: "e5m2", 24: "e4m3", 290: "hif8", 291: "e5m2",
    292: "e4m3", 296: "e2m1", 297: "e1m2",
}  # fmt: skip
_BY_DTYPE = {
    torch.int8: "int8", torch.qint8: "int8", torch.quint8: "uint8", torch.int32: "int32", torch.quint4x2: "int4",
    torch.float8_e5m2: "e5m2", torch.float8_e4m3fn: "e4m3",
}  # fmt: skip
_DTYPES = {5: torch.float16, 6: torch.float32, 15: torch.bfloat16}


def kind_of(dtype: Any, default: str = "int8") -> str:
    """Return the name of what a dtype argument asks for."""
    if dtype is None:
        return default
    return _BY_DTYPE[dtype] if isinstance(dtype, torch.dtype) else _BY_NUMBER[int(dtype)]


def dtype_of(dtype: Any, default: torch.dtype) -> torch.dtype:
    """Return the float dtype that an argument asks for."""
    return default if dtype is None else dtype if isinstance(dtype, torch.dtype) else _DTYPES[int(dtype)]


@cache
def table(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers that are not negative, ascending, and their codes."""
    if kind == "hif8":
        pairs = sorted((_hif8(code), code) for code in range(128) if code != 0x6F)
    else:
        mantissa_bits, bias, finite = _LAYOUTS[kind]
        pairs = [(_ieee(code, mantissa_bits, bias), code) for code in range(finite)]
    return np.array([value for value, _ in pairs]), np.array([code for _, code in pairs])


def _ieee(code: int, mantissa_bits: int, bias: int) -> float:
    exponent, mantissa = divmod(code, 1 << mantissa_bits)
    if exponent == 0:
        return float(mantissa * 2.0 ** (1 - bias - mantissa_bits))
    return float((2**mantissa_bits + mantissa) * 2.0 ** (exponent - bias - mantissa_bits))


def _hif8(code: int) -> float:
    """Read the seven bits as text, from the left."""
    text = f"{code:07b}"
    for prefix, width in (("11", 4), ("10", 3), ("01", 2), ("001", 1), ("0001", 0)):
        if text.startswith(prefix):
            rest = text[len(prefix) :]
            exponent, mantissa = rest[:width], rest[width:]
            size = int("1" + exponent[1:], 2) if width else 0
            power = -size if exponent.startswith("1") else size
            return float(int("1" + mantissa, 2) * 2.0 ** (power - len(mantissa)))
    return 2.0 ** (code - 23) if code else 0.0


def quantize(values: np.ndarray, kind: str, mode: str = "rint") -> np.ndarray:
    """Return the nearest numbers: half to the even code, half away from zero (``round``, and HiFloat8), or below."""
    if kind.startswith(("int", "uint")):
        low, high = {"int8": (-128, 127), "uint8": (0, 255), "int4": (-8, 7), "int32": (-(2**31), 2**31 - 1)}[kind]
        whole = {"rint": np.rint, "floor": np.floor, "round": lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5)}[mode]
        return np.clip(whole(values), low, high)
    numbers, _ = table(kind)
    sizes = np.minimum(np.abs(values), numbers[-1])
    below = np.clip(np.searchsorted(numbers, sizes, side="right") - 1, 0, len(numbers) - 1)
    above = np.minimum(below + 1, len(numbers) - 1)
    down, up = sizes - numbers[below], numbers[above] - sizes
    is_exact = down == 0
    if kind == "hif8" or mode == "round":
        take_above = up <= down
    elif mode == "floor":
        take_above = np.signbit(values)
    else:
        take_above = (up < down) | ((up == down) & (below % 2 == 1))
    places = np.where(take_above & ~is_exact, above, below)
    return np.copysign(numbers[places], values)


def stored(values: np.ndarray, kind: str, mode: str = "rint") -> Tensor:
    """Quantize and return what lies in memory."""
    numbers = quantize(np.asarray(values, dtype=np.float64), kind, mode)
    if kind == "int4":
        codes = numbers.astype(np.int64).reshape(*numbers.shape[:-1], -1, 8) % 16
        packed = sum(codes[..., place] * 16**place for place in range(8))
        return torch.from_numpy(packed.astype(np.uint32).view(np.int32))
    if kind.startswith(("int", "uint")):
        return torch.from_numpy(numbers.astype(kind))
    sorted_numbers, codes = table(kind)
    found = codes[np.searchsorted(sorted_numbers, np.abs(numbers))].astype(np.uint8)
    is_negative = np.signbit(numbers) & ((numbers != 0) | (kind != "hif8"))
    if kind in ("e2m1", "e1m2"):
        nibbles = (found + 8 * is_negative).reshape(*numbers.shape[:-1], -1, 2).astype(np.uint8)
        return torch.from_numpy(nibbles[..., 0] | nibbles[..., 1] << 4)
    raw = torch.from_numpy((found + 128 * is_negative).astype(np.uint8))
    return raw.view(_TORCH[kind]) if kind in _TORCH else raw


def loaded(tensor: Tensor, kind: str) -> np.ndarray:
    """Return the numbers that lie in memory, one an element."""
    if kind == "int4":
        bits = tensor.numpy().view(np.uint32)
        codes = np.stack([bits >> 4 * place & 15 for place in range(8)], -1).reshape(*tensor.shape[:-1], -1)
        return np.where(codes > 7, codes.astype(np.int64) - 16, codes.astype(np.int64)).astype(np.float64)
    if kind in ("e2m1", "e1m2"):
        raw = tensor.view(torch.uint8).numpy()
        codes = np.stack([raw & 15, raw >> 4], -1).reshape(*tensor.shape[:-1], -1)
        return table(kind)[0][codes & 7] * np.where(codes > 7, -1.0, 1.0)
    if kind == "hif8":
        codes = tensor.view(torch.uint8).numpy()
        by_code = np.array([_hif8(code) for code in range(128)])
        return by_code[codes & 127] * np.where(codes > 127, -1.0, 1.0)
    return tensor.double().numpy()
