"""Whole runs over dumps whose records are nearly right: each record ends in a result, and all counts agree."""

from __future__ import annotations

import re

import pytest
from hypothesis import given

from pytest_msprobe.commands.main import main
from tests.robustness.budget import RECORDS_PER_DUMP, budget, tried
from tests.robustness.guard import nothing_leaves
from tests.robustness.mutation import Pick, as_text, damaged, mutated, picks, random_picks
from tests.support.counts import failure_counts
from tests.support.dumps.dump_files import SOFTMAX, Json, forward, tensor, three_calls, value

SEEDS = {
    **three_calls(),
    **SOFTMAX,
    "Torch.add.0.forward": forward(tensor(2, 3), value(2), alpha=value(0.5)),
    "Tensor.__getitem__.0.forward": forward(tensor(4, 3), [value(1), {"type": "slice", "value": [None, 2, None]}]),
    "Tensor.__setitem__.0.forward": forward(tensor(4), tensor(2, dtype="int64", low=0, high=3), tensor(2)),
    "Torch.cat.0.forward": forward([tensor(2), tensor(2)], output=[tensor(4)], dim=value(0)),
    "Torch.gather.0.forward": forward(tensor(4), value(0), tensor(2, dtype="int64", low=0, high=3)),
    "Torch.zeros.0.forward": forward({"type": "torch.Size", "value": [2, 3]}, output=[tensor(2, 3)]),
    "Torch.mul.0.forward": forward(tensor(2), {"type": "complex", "value": [1.0, 2.0]}, output=[tensor(2)]),
    "Functional.dropout.0.forward": forward(tensor(4), p=value(0.5), training=value(True)),
    "Tensor.to.0.forward": forward(tensor(2, Max="inf", data_name="Tensor.to.0.forward.input.0.pt"), {}),
    "Module.net.Linear.forward.0.forward": forward(tensor(2, Max="nan"), requires_grad=value(False)),
    "Distributed.all_reduce.0.forward": forward(tensor(2), group={"type": "torch.ProcessGroup", "group_ranks": [0, 1]}),
}
MODULE = "Module.net.Linear.forward.0.forward"
STACK = {name: ["File model.py, line 3, in forward, \n y = self.linear(x)"] for name in SEEDS}
CONSTRUCT = dict.fromkeys(SEEDS, MODULE) | {MODULE: None}


def dump_of(records: Json) -> Json:
    return {"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None, "data": records}


CHECK = ("--msprobe-dump=dump.json", "--msprobe-device=cpu")
COMPARE = ("--msprobe-compare=dump.json", "--msprobe-golden=golden.json")
MODES = {
    "check": CHECK,
    "check, limited": (*CHECK, "--msprobe-timeout=60", "--msprobe-unique"),
    "overflow": ("--msprobe-overflow=dump.json",),
    "compare": COMPARE,
    "compare, fuzzy": (*COMPARE, "-omsprobe_fuzzy=true"),
}


def run(pytester: pytest.Pytester, *arguments: str) -> None:
    """Run, and require that it reports what is wrong, that counts agree and that nothing leaves the folder."""
    journal = pytester.path / "run.jsonl"
    journal.unlink(missing_ok=True)
    with nothing_leaves(pytester.path):
        result = pytester.runpytest_inprocess(*arguments, "--msprobe-journal=run.jsonl", "--tb=short", "-q")
        output = result.stdout.str() + result.stderr.str()
        assert "INTERNALERROR" not in output
        assert "Traceback (most recent call last)" not in output
        assert not re.search(r"(?m)^[ \t]*::", output), "a log of GitHub would take a line as a command"
        if result.ret == pytest.ExitCode.USAGE_ERROR:
            return
        assert result.ret in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
        assert "failed without a verdict" not in output
        counts = failure_counts(result, journal)
        assert len(set(counts)) == 1, (counts, output[-3000:])
        reports = ("--junit", "report.xml", "--markdown", "report.md", "--csv", "tables")
        assert main(["report", str(journal), *reports]) in (0, 1)


@pytest.mark.parametrize("mode", MODES)
@budget(1)
@given(pick=random_picks())
def test_a_run_over_malformed_records_shows_each(pytester: pytest.Pytester, mode: str, pick: Pick) -> None:
    names, golden = {}, {}
    for number in range(RECORDS_PER_DUMP):
        api, _, direction = pick(list(SEEDS)).rsplit(".", 2)
        name = f"{api}.{number}.{direction}"
        seed = SEEDS[f"{api}.0.{direction}"]
        names[name], golden[name] = mutated(seed, pick), seed
    (pytester.path / "dump.json").write_bytes(as_text(dump_of(names)))
    (pytester.path / "golden.json").write_bytes(as_text(dump_of(golden)))
    tried["records"] += RECORDS_PER_DUMP
    run(pytester, *MODES[mode])


@pytest.mark.parametrize("mode", ["overflow", "compare"])
@budget(3)
@given(pick=picks())
def test_a_run_over_damaged_files_shows_which(pytester: pytest.Pytester, mode: str, pick: Pick) -> None:
    for name, tree in (("dump.json", dump_of(SEEDS)), ("stack.json", STACK), ("construct.json", CONSTRUCT)):
        whole = pick((True, False))
        content = as_text(mutated(tree, pick)) if whole else damaged(as_text(tree), pick)
        (pytester.path / name).write_bytes(content)
        tried[name] += 1
    (pytester.path / "golden.json").write_bytes(as_text(dump_of(SEEDS)))
    run(pytester, *MODES[mode])
