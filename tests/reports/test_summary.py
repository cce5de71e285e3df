from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DUMPS = Path(__file__).parents[1] / "data" / "dumps"

Write = Callable[..., Path]
Json = dict[str, Any]


def closing_section(result: pytest.RunResult) -> list[str]:
    lines = iter(result.outlines)
    next(line for line in lines if line.strip("=") == " msprobe ")
    section = []
    for line in lines:
        if line.startswith(("=", "- generated")):
            break
        section.append(line)
    return section


def test_the_closing_section_counts_verdicts_and_skips_by_reason(
    write_dump: Write,
    records: Json,
    check: Any,
    make_device: Callable[[str], None],
    element: Any,
    forward: Any,
) -> None:
    unknown = {f"Torch.no_such_api.{i}.forward": forward(element(4)) for i in range(3)}
    collective = {"Distributed.all_reduce.0.forward": forward(element(4))}
    write_dump({**records, **unknown, **collective})
    make_device("if record == 'Torch.index_select.0.forward': result = result + 1")
    lines = closing_section(check("--msprobe-dump=dump.json", "--msprobe-device=faulty:1").result)
    assert lines[0] == "9 API records: 4 passed, 1 failed, 4 skipped"
    assert lines[1:3] == [
        "3 skipped: this torch has no such API",
        "1 skipped: collective communication needs its other ranks",
    ]
    assert lines[3] == "1 dump without memory layouts: inputs were contiguous"
    assert lines[4] == "error / allowed, largest first (above 1 fails):"
    share, worst, standard = lines[5].split()
    assert (share, worst, standard) == ("inf", "Torch.index_select.0.forward", "(binary_consistency)")
    # Of a verdict that passed without its baseline the share is an upper bound.
    shares = [float(line.replace("<=", "").split()[0]) for line in lines[5:]]
    assert any(line.startswith("  ") and "<= " in line for line in lines[5:])
    assert shares == sorted(shares, reverse=True)


def test_at_most_five_worst_apis_are_shown(write_dump: Write, records: Json, check: Any) -> None:
    body = records["Functional.softmax.0.forward"]
    write_dump({f"Functional.softmax.{i}.forward": body for i in range(20)})
    lines = closing_section(check("--msprobe-dump=dump.json", "--msprobe-device=sim").result)
    header = lines.index("error / allowed, largest first (above 1 fails):")
    assert 0 < len([line for line in lines[header + 1 :] if line]) <= 5


def test_modules_are_counted_in_header_and_summary(pytester: pytest.Pytester, check: Any) -> None:
    shutil.copy(DUMPS / "lstm-mix" / "dump.json", pytester.path)
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=sim", "-k", "embedding")
    assert (
        "msprobe: dump.json: 159 API records, 17 module records (pytorch, mix, statistics)" in checked.result.outlines
    )
    assert "17 module records are not API calls and were not checked" in closing_section(checked.result)


def test_the_header_names_dumps_policy_device_and_seed(
    pytester: pytest.Pytester, write_dump: Write, records: Json
) -> None:
    for rank in (0, 1):
        write_dump(records, f"run/rank{rank}")
    result = pytester.runpytest_inprocess(
        "--collect-only", "--msprobe-dump=run", "--msprobe-device=sim:0-2", "--msprobe-seed=3"
    )
    assert "msprobe: policy default, device sim:0,1,2, seed 3" in result.outlines
    dumps = "2 dumps, run/rank0/dump.json to run/rank1/dump.json"
    assert f"msprobe: {dumps}: 10 API records (pytorch, L1, statistics)" in result.outlines


def test_the_device_line_names_the_math_modes_and_is_there_once(write_dump: Write, records: Json, check: Any) -> None:
    write_dump(records)
    for options in ((), ("-q",), ("-n1",)):
        output = check("--msprobe-dump=dump.json", "--msprobe-device=cpu", *options).output
        (line,) = (line for line in output.splitlines() if "CPU, torch " in line)
        assert "float32 matmul precision highest" in line


def test_a_run_without_dumps_says_nothing_of_msprobe(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(): pass")
    result = pytester.runpytest_inprocess()
    assert not [line for line in result.outlines if "msprobe:" in line or line.strip("=") == " msprobe "]


def test_quiet_runs_still_end_with_the_section(write_dump: Write, records: Json, check: Any) -> None:
    write_dump(records)
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=sim", "-q")
    assert closing_section(checked.result)[0] == "5 API records: 5 passed"


def test_what_passed_with_weak_evidence_is_counted_with_the_reason(
    write_dump: Write, check: Any, element: Any, forward: Any
) -> None:
    never = forward(element(64, dtype="int64", low=0, high=10**9), {"type": "int", "value": 7})
    output = [element(64, dtype="bool", low=False, high=True)]
    write_dump({"Torch.eq.0.forward": never | {"output": output}, "Torch.relu.0.forward": forward(element(8))})
    checked = check("--msprobe-dump=dump.json")
    reason = "the results of the drawn inputs are one or two values, the recorded ones were more"
    assert f"1 passed with weak evidence: {reason} (names with -v)" in closing_section(checked.result)
    assert checked.cases["Torch.eq.0.forward"].properties["msprobe.little_judged"] == reason
    assert "msprobe.little_judged" not in checked.cases["Torch.relu.0.forward"].properties


def test_what_passed_with_weak_evidence_is_named_where_more_is_asked_for(
    write_dump: Write, check: Any, element: Any, forward: Any
) -> None:
    negative = forward(element(4, low=-2, high=-1))
    write_dump({f"Torch.log.{i}.forward": negative for i in range(11)} | {"Torch.relu.0.forward": forward(element(8))})
    section = closing_section(check("--msprobe-dump=dump.json", "-v").result)
    at = next(i for i, line in enumerate(section) if "passed with weak evidence" in line)
    assert section[at].startswith("11 passed with weak evidence: ")
    assert "names with -v" not in section[at]
    named = ", ".join(f"Torch.log.{i}.forward" for i in range(8))
    assert section[at + 1].strip() == f"{named} and 3 more"


def test_elements_that_differ_where_any_value_is_right_are_counted(
    write_dump: Write, check: Any, make_device: Callable[[str], None], element: Any, forward: Any
) -> None:
    cast = forward(element(64, low=1000, high=2000), {"type": "torch.dtype", "value": "torch.int8"})
    write_dump({f"Tensor.to.{i}.forward": cast | {"output": [element(64, dtype="int8")]} for i in range(2)})
    make_device("result = result.fill_(127)")
    section = closing_section(check("--msprobe-dump=dump.json", "--msprobe-device=faulty:1").result)
    assert section[0] == "2 API records: 2 passed"
    (line,) = (line for line in section if "any value is right: the cast" in line)
    assert re.fullmatch(r"2 with 1\d\d elements that differ where any value is right: the cast number is .*", line)
