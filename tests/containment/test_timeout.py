from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

Write = Callable[..., Path]
Json = dict[str, Any]

HANGING = "Torch.index_select.0.forward"
# The limit of the record that hangs is that of the others too, which take long on a busy machine.
LIMITED = ("--msprobe-dump=dump.json", "--msprobe-device=faulty", "--msprobe-timeout=10")
SAID = "not finished after 10 s, the limit of --msprobe-timeout"


@pytest.mark.nightly
@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["alone", "two workers"])
def test_a_record_that_hangs_in_python_is_one_failure_and_the_run_goes_on(
    write_dump: Write, records: Json, check: Any, make_device: Callable[[str], None], workers: list[str]
) -> None:
    write_dump(records)
    make_device(f"while record == {HANGING!r}: pass")
    checked = check(*LIMITED, *workers, apart=True)
    assert checked.outcomes == dict.fromkeys(records, "passed") | {HANGING: "failed"}
    assert SAID in checked.cases[HANGING].text
    assert checked.cases[HANGING].properties["msprobe.breakdown"] == "timeout"


@pytest.mark.nightly
def test_code_that_catches_every_exception_is_interrupted_all_the_same(
    write_dump: Write, records: Json, check: Any, make_device: Callable[[str], None]
) -> None:
    write_dump(records)
    make_device(
        f"""
while record == {HANGING!r}:
    try:
        while True: pass
    except Exception:
        pass
"""
    )
    checked = check(*LIMITED, apart=True)
    assert checked.wrong == {HANGING}
    assert SAID in checked.cases[HANGING].text


@pytest.mark.nightly
def test_the_backward_of_a_forward_that_hangs_is_not_tried(
    write_dump: Write, records: Json, check: Any, make_device: Callable[[str], None]
) -> None:
    write_dump(records)
    make_device("while record == 'Functional.softmax.0.forward': pass")
    checked = check(*LIMITED, apart=True)
    assert checked.wrong == {"Functional.softmax.0.forward"}
    assert checked.outcomes["Functional.softmax.0.backward"] == "skipped"


def test_a_record_that_hangs_in_native_code_costs_its_worker_and_one_failure(
    write_dump: Write, records: Json, check: Any, make_device: Callable[[str], None]
) -> None:
    write_dump(records)
    # PyDLL holds the interpreter's lock; the loop goes on where the alarm ends a sleep early.
    make_device(
        f"""
if record == {HANGING!r}:
    import ctypes
    libc = ctypes.PyDLL(None)
    libc.sigprocmask(0, ctypes.byref(ctypes.c_ulong(1 << 13)), None)
    libc.sleep(60)
"""
    )
    checked = check(*LIMITED, "-n1", apart=True)
    checked.result.assert_outcomes(passed=len(records) - 1, failed=1)
    assert f"{HANGING} failed" in checked.output
    assert "hung in native code; its process was killed after 15 s" in checked.output
    assert "conftest.py" in checked.cases[HANGING].text
    assert "_pytest" not in checked.cases[HANGING].text


def test_a_device_that_hangs_after_an_item_has_a_limit_too(
    write_dump: Write, records: Json, check: Any, make_device: Callable[[str], None]
) -> None:
    write_dump(records)
    first = next(iter(records))
    make_device(
        f"import time\nif record == 'probe': time.sleep(60)\nif record == {first!r}: raise RuntimeError('gone')"
    )
    checked = check(*LIMITED, apart=True)
    assert checked.wrong == {first}
    assert "no longer works: DeadlineExceededError: not finished after 10 s" in checked.cases[first].text


def test_nothing_is_limited_unless_asked(
    write_dump: Write, records: Json, check: Any, make_device: Callable[[str], None]
) -> None:
    write_dump(records)
    make_device("import time; time.sleep(0.2)")
    assert check("--msprobe-dump=dump.json", "--msprobe-device=faulty").exit_code == 0
