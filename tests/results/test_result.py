from __future__ import annotations

import msgspec
import pytest

from pytest_msprobe.results.result import as_utf8


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (
            {"count": 2**70, "least": [-(2**63), -(2**63) - 1]},
            {"count": str(2**70), "least": [-(2**63), str(-(2**63) - 1)]},
        ),
        (["a\udcff", 2**64 - 1], ["a\\udcff", 2**64 - 1]),
    ],
    ids=["numbers of more than 64 bits", "texts that are no UTF-8"],
)
def test_what_other_processes_cannot_take_becomes_text(tree: object, expected: object) -> None:
    assert as_utf8(tree) == expected
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(as_utf8(tree))) == expected
