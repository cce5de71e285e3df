from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Json = dict[str, Any]


@pytest.mark.parametrize("shape", [(2**20, 2**20), (2**31, 2**31)])
def test_a_record_too_large_for_the_memory_skips_with_its_size(
    write_dump: Callable[..., Path], records: Json, element: Any, forward: Any, check: Any, shape: tuple[int, int]
) -> None:
    name = "Torch.abs.0.forward"
    write_dump({name: forward(element(*shape)), **records})
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=sim")
    assert checked.outcomes == {name: "skipped"} | dict.fromkeys(records, "passed")
    assert "too large for the free memory: needs about " in checked.cases[name].text
    assert " GiB, " in checked.cases[name].text
    assert " GiB are free" in checked.cases[name].text
