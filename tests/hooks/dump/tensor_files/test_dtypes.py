from __future__ import annotations

import pytest

from msprobe_hooks.dump.names import mindspore_dtype_name, plain_dtype


@pytest.mark.parametrize(
    ("recorded", "plain"),
    [
        ("torch.float16", "float16"),
        ("Float16", "float16"),
        ("mindspore.float16", "float16"),
        ("BFloat16", "bfloat16"),
        ("float32", "float32"),
        ("Bool", "bool"),
        ("bool_", "bool"),
        ("Complex64", "complex64"),
        ("torch.float8_e4m3fn", "float8_e4m3fn"),
        ("Float8E4M3FN", "float8_e4m3fn"),
        ("Float8E5M2", "float8_e5m2"),
        ("torch.float8_e5m2fnuz", "float8_e5m2fnuz"),
        ("HiFloat8", "hifloat8"),
    ],
)
def test_a_dtype_has_one_name_whatever_its_spelling(recorded: str, plain: str) -> None:
    assert plain_dtype(recorded) == plain


@pytest.mark.parametrize("name", ["Float8E4M3FN", "torch.float8_e5m2", "Int4", "something.Else"])
def test_a_plain_name_is_its_own(name: str) -> None:
    assert plain_dtype(plain_dtype(name)) == plain_dtype(name)


@pytest.mark.parametrize("name", ["Bool", "UInt8", "Int64", "Float16", "BFloat16", "Complex64", "Float8E4M3FN"])
def test_mindspores_name_of_a_dtype_is_what_it_records(name: str) -> None:
    assert mindspore_dtype_name(f"torch.{plain_dtype(name)}") == name
