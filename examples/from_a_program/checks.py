"""Check a dump and compare two runs, without pytest."""

from __future__ import annotations

from collections import Counter

import pytest_msprobe

for record in pytest_msprobe.check_dump("examples/check_a_dump/dump.json", device="cpu", only="softmax,Torch.mat*"):
    largest = record.result.verdict.margin
    print(f"{record.name}: {record.outcome}, {largest:.3f} of the limit")

calls = list(pytest_msprobe.compare_dumps("examples/compare_runs/target", "examples/compare_runs/golden"))
print(Counter(each.outcome for each in calls))
first = next(each for each in calls if each.call is not None and each.call.cause == "culprit")
print(f"the difference begins in {first.name}: {first.result.reason}")
