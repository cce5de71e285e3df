"""Names of others in all kinds of run: they start no line, move no cursor, and select the item that they are of."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import msgspec
import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file

from msprobe_hooks.extensions.environment.start_file import Started, write_started
from pytest_msprobe.commands.main import main
from tests.support.dumps.communications import all_reduce
from tests.support.dumps.converted import write_kernel
from tests.support.dumps.dump_files import Json, forward, tensor, value
from tests.support.dumps.probed import write_probe
from tests.support.dumps.static_graphs import TITLES, GraphFolder
from tests.support.dumps.watched import norm, write_norms

#: Terminal escapes, a bell, a bidi control, line breaks of all kinds, and commands of a GitHub log.
HOSTILE = "a\x1b]0;pwn\x07\x1b[31m\u202eb\u2028c\r\n::error::injected\n  ::add-mask::x"
TWIN = HOSTILE.encode("unicode_escape").decode().replace("::", r":\x3a")


def write(path: Path, records: Json, **fields: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = {"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None, "data": records}
    path.write_text(json.dumps(whole | fields))


def recorded(high: float = 1.0) -> Json:
    """Return records that pass, fail, are skipped and are malformed, all of hostile names."""
    given = tensor(2, high=high)
    return {
        f"Torch.{HOSTILE}.0.forward": forward(given, **{HOSTILE: value(1)}),
        f"Functional.relu{HOSTILE}.0.forward": forward(given, output=[{HOSTILE: tensor(2, high=high)}]),
        "Torch.relu.0.forward": forward(given, **{HOSTILE: {"type": HOSTILE, "value": HOSTILE}}),
        "Torch.abs.0.forward": forward(tensor(2, high=high, data_name=f"{HOSTILE}.pt")),
        "Torch.neg.0.forward": {"input_args": [given], "input_kwargs": {HOSTILE: {"type": "torch.Tensor"}}},
        "Torch.mul.0.forward": forward(given, value(HOSTILE), output=[tensor(2, high=high)]),
        f"Module.{HOSTILE}.Linear.forward.0.forward": forward(given, output=[tensor(2, Max="nan", high=high)]),
    }


def check(folder: Path) -> list[str]:
    write(folder / "t/dump.json", recorded())
    return ["--msprobe-dump=t/dump.json", "--msprobe-device=cpu"]


def overflow(folder: Path) -> list[str]:
    write(folder / "t/dump.json", recorded())
    return ["--msprobe-overflow=t/dump.json"]


def compare(folder: Path) -> list[str]:
    write(folder / "t/dump.json", recorded())
    write(folder / "g/dump.json", recorded(high=5.0))
    return ["--msprobe-compare=t/dump.json", "--msprobe-golden=g/dump.json"]


def compare_saved_variables(folder: Path) -> list[str]:
    for side, high in (("t", 1.0), ("g", 5.0)):
        write(folder / side / "dump.json", {f"{HOSTILE}.0": {HOSTILE: tensor(2, high=high)}}, level="debug")
    return ["--msprobe-compare=t/dump.json", "--msprobe-golden=g/dump.json"]


def communication(folder: Path) -> list[str]:
    group = {"type": "torch.ProcessGroup", "group_ranks": [0, 1], "group_id": HOSTILE}
    for rank in (0, 1):
        odd = {f"Distributed.{HOSTILE}.0.forward": forward(tensor(2), **{HOSTILE: group})}
        write(folder / f"t/step0/rank{rank}/dump.json", all_reduce(**{"group": group, HOSTILE: value(rank)}) | odd)
    return ["--msprobe-communication=t"]


def monitor(folder: Path) -> list[str]:
    # Lines of a CSV cannot be part of a name.
    name = HOSTILE.replace("\r\n", "").replace("\n", "")
    write_norms(folder / "t", {norm(name): [1.0, 1.0, float("nan")], norm("b"): [1.0, 1.0, 1.0]})
    return ["--msprobe-monitor=t"]


def environment(folder: Path) -> list[str]:
    for side in ("t", "g"):
        facts = {HOSTILE: f"{side}{HOSTILE}", TWIN: side}
        write_started(
            folder / side / "rank0.json",
            msgspec.convert(
                {"rank": 0, "variables": facts, "packages": facts, "switches": facts, "problems": [HOSTILE]}, Started
            ),
        )
    return ["--msprobe-environment=t", "--msprobe-golden=g"]


def environment_of_packs(folder: Path) -> list[str]:
    for side in ("t", "g"):
        with ZipFile(folder / f"{side}.zip", "w") as archive:
            archive.writestr("env", json.dumps({f"NCCL_{HOSTILE}": side}))
            archive.writestr("pip", f"{HOSTILE}={side}\n")
            settings = {HOSTILE: f"{side}{HOSTILE}"}
            archive.writestr("hyperparameters/hyperparameters_dynamic.json", json.dumps(settings))
            weights = {HOSTILE: {"max": 1.0, "min": 0.0, "mean": 0.5, "norm": float(side == "g")}}
            archive.writestr("weights/step0/rank0/weight.json", json.dumps(weights))
            calls = {HOSTILE: [{"stack": [HOSTILE], "count": 1 + (side == "g")}]}
            archive.writestr("random/rank0.json", json.dumps(calls))
    return ["--msprobe-environment=t.zip", "--msprobe-golden=g.zip"]


def checkpoint_of_safetensors(folder: Path) -> list[str]:
    save_file({HOSTILE: torch.ones(2), TWIN: torch.ones(3)}, folder / "t.safetensors")
    save_file({HOSTILE: torch.zeros(2), TWIN: torch.zeros(3), f"{HOSTILE}2": torch.ones(1)}, folder / "g.safetensors")
    return ["--msprobe-checkpoint=t.safetensors", "--msprobe-golden=g.safetensors"]


def checkpoint_of_torch(folder: Path) -> list[str]:
    torch.save({HOSTILE: {HOSTILE: torch.ones(2)}, "s": torch.eye(2).to_sparse()}, folder / "t.pt")
    torch.save({HOSTILE: {HOSTILE: torch.zeros(2)}, "s": torch.ones(2, 2).to_sparse()}, folder / "g.pt")
    return ["--msprobe-checkpoint=t.pt", "--msprobe-golden=g.pt"]


def checkpoint_of_dcp(folder: Path) -> list[str]:
    for side, number in (("t", 1.0), ("g", 2.0)):
        dcp.save({HOSTILE: torch.full((2,), number)}, checkpoint_id=folder / side, no_dist=True)
    return ["--msprobe-checkpoint=t", "--msprobe-golden=g"]


# pytest takes what is behind [ or :: in a file's name for a part of an id; no line break is in the name of a kernel.
OP = HOSTILE.replace("::", ":").replace("[", "").replace("\r\n", "").replace("\n", "")


def compare_graphs(folder: Path) -> list[str]:
    for side, number in (("t", 1.0), ("g", 2.0)):
        run = GraphFolder(folder / side)
        run.kernel(run.iteration(), f"Add.{OP}", [np.ones(2, np.float32)], [np.full(2, number, np.float32)])
    return ["--msprobe-compare=t", "--msprobe-golden=g"]


def compare_statistics_of_graphs(folder: Path) -> list[str]:
    for side, number in (("t", 1), ("g", 2)):
        row = f'Add,"{OP}",0,0,1,output,0,24,float32,"(3,2)",{number},0,0.5,1'
        (GraphFolder(folder / side).iteration() / "statistic.csv").write_text(f"{TITLES}\n{row}\n")
    return ["--msprobe-compare=t", "--msprobe-golden=g"]


def compare_converted_files(folder: Path) -> list[str]:
    for side, number in (("t", 1.0), ("g", 2.0)):
        write_kernel(folder / side, OP, 1000, [np.ones(2, np.float32)], [np.full(2, number, np.float32)])
    return ["--msprobe-compare=t", "--msprobe-golden=g"]


def monitor_of_a_probe(folder: Path) -> list[str]:
    name = HOSTILE.replace("\r\n", "").replace("\n", "")
    for side, last in (("t", 1.0), ("g", -2.0)):
        write_probe(folder / side / "rank0", [{name: [number]} for number in (1.0, 1.0, last)])
    return ["--msprobe-monitor=t", "--msprobe-golden=g"]


KINDS: dict[str, Callable[[Path], list[str]]] = {
    kind.__name__: kind
    for kind in (
        check,
        overflow,
        compare,
        compare_saved_variables,
        communication,
        monitor,
        environment,
        environment_of_packs,
        checkpoint_of_safetensors,
        checkpoint_of_torch,
        checkpoint_of_dcp,
        compare_graphs,
        compare_statistics_of_graphs,
        compare_converted_files,
        monitor_of_a_probe,
    )
}


# How a line begins that a name has begun: as it is, or as it is shown where a text has several lines.
OWN_LINES = ("::", r"\x3a:")


def wrong_lines(text: str) -> Iterator[str]:
    """Yield the lines that move a cursor, and those that a name has begun, which a log of GitHub takes as commands."""
    for line in text.split("\n"):
        if not line.replace("\t", "").isprintable() or line.lstrip().startswith(OWN_LINES):
            yield ascii(line)


@pytest.mark.filterwarnings("ignore:.*single process:UserWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_no_name_leaves_its_line_and_each_selects_its_item(
    pytester: pytest.Pytester, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = KINDS[kind](pytester.path)
    capfd.readouterr()
    everything = ["-v", "-rA", "--msprobe-journal=run.jsonl", "-p", "no:cacheprovider"]
    pytester.runpytest_inprocess(*arguments, *everything)
    output = "".join(capfd.readouterr())
    assert [*wrong_lines(output)] == []
    assert "INTERNALERROR" not in output
    assert main(["report", "run.jsonl"]) in (0, 1)
    assert [*wrong_lines("".join(capfd.readouterr()))] == []

    lines = [json.loads(line) for line in Path("run.jsonl").read_bytes().splitlines()]
    ids = [line["id"] for line in lines if "id" in line]
    assert len(ids) == len(set(ids)) >= 1
    hostile = [each for each in ids if "x1b" in each]
    assert hostile
    given, *options = arguments
    flag = given.partition("=")[0]
    again = pytester.runpytest_inprocess(f"{flag}={hostile[0]}", *options, "--msprobe-resume=run.jsonl")
    assert again.parseoutcomes()["deselected"] == 1
    assert Path("run.jsonl").read_text().count('"id"') == len(ids)


@pytest.mark.parametrize("folder", ["run[1]\x1b[31m", "run\n::error::x"])
def test_a_path_that_pytest_cannot_collect_is_one_error(
    pytester: pytest.Pytester, folder: str, capfd: pytest.CaptureFixture[str]
) -> None:
    write(pytester.path / "t" / folder / "dump.json", recorded())
    result = pytester.runpytest_inprocess("--msprobe-dump=t")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    output = "".join(capfd.readouterr())
    assert "pytest takes [ and :: in a path for parts of an id; rename the file or folder" in output
    assert [*wrong_lines(output)] == []


def test_show_and_merge_results_keep_names_on_their_lines(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "dump.json", recorded())
    torch.save({HOSTILE: {"a": torch.ones(2), HOSTILE: HOSTILE}, "b": [1, 2, 3]}, tmp_path / "a.pt")
    torch.save({HOSTILE: {"a": torch.zeros(2)}}, tmp_path / "b.pt")
    save_file({HOSTILE: torch.ones(1)}, tmp_path / "a.safetensors")
    title = "NPU Name,Bench Name,NPU max,Bench max,Max diff"
    for rank in (0, 1):
        row = f'"Torch.a.{HOSTILE}",b,1,1,"{HOSTILE}"'
        (tmp_path / f"compare_result_rank{rank}_20260131120000.csv").write_text(f"{title}\n{row}\n", newline="")
    (tmp_path / "merge.yaml").write_text(f"api: [Torch.a, {json.dumps(HOSTILE)}]\n")
    merge = [
        "msprobe",
        "merge-results",
        "-i",
        str(tmp_path),
        "-o",
        str(tmp_path / "out"),
        "-config",
        str(tmp_path / "merge.yaml"),
    ]
    for words in (
        ["show", str(tmp_path / "a.pt")],
        ["show", str(tmp_path / "a.pt"), str(tmp_path / "b.pt")],
        ["show", f"{tmp_path / 'a.pt'}::{HOSTILE}"],
        ["show", str(tmp_path / "a.safetensors")],
        ["show", str(tmp_path / "dump.json")],
        ["show", f"{tmp_path / 'dump.json'}::Torch.relu.0.forward"],
        merge,
    ):
        assert main(words) in (0, 1, 2)
        assert [*wrong_lines("".join(capfd.readouterr()))] == [], words
