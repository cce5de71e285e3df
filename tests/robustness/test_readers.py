"""Files of every other kind that are nearly right: what reads them says what is wrong, or takes them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import msgspec
import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
import yaml
from hypothesis import given
from safetensors.torch import save_file

from msprobe_hooks.dump.schema import TensorElement
from msprobe_hooks.errors import MonitorError
from msprobe_hooks.extensions.free_benchmark.config import benchmark_settings
from msprobe_hooks.extensions.monitor.grad_probe import sign_maps
from msprobe_hooks.extensions.monitor.grad_probe.probe import probe_settings
from msprobe_hooks.extensions.monitor.grad_probe.sign_maps import ProbedRank
from msprobe_hooks.extensions.monitor.watch import config as watch_config
from msprobe_hooks.recording.config import read_common, read_config
from msprobe_standards import Policy
from pytest_msprobe.commands.main import main
from pytest_msprobe.engine.values.tensor_files import load_tensor
from pytest_msprobe.errors import USER_ERRORS
from pytest_msprobe.extensions.across_frameworks.cell_mapping import read_cells
from pytest_msprobe.extensions.across_frameworks.layer_mapping import read_layers
from pytest_msprobe.extensions.across_frameworks.value_pairing import read_apis
from pytest_msprobe.extensions.bisect.command import BisectionJournal, Candidate, Listed, Measured
from pytest_msprobe.extensions.bisect.command import Header as BisectionHeader
from pytest_msprobe.extensions.bisect.search import Fixes
from pytest_msprobe.extensions.checkpoint.weights_folder import read_checkpoint
from pytest_msprobe.extensions.environment.msprobe_pack import read_pack
from pytest_msprobe.extensions.generate.output_folder import write_files
from pytest_msprobe.extensions.msprobe_commands.merge_results_command import read_configuration
from pytest_msprobe.extensions.overflow.ignore_rules import load_rules
from pytest_msprobe.modes.check.baselines.baseline_file import BaselineWriter, Header, read_baseline
from pytest_msprobe.modes.check.baselines.details_table import read_details
from pytest_msprobe.modes.check.baselines.tensor_folder import OutputRow, RecordRow
from pytest_msprobe.modes.check.saved_case import read_case
from pytest_msprobe.modes.compare.judging.policy import load_policy
from pytest_msprobe.modes.compare.matching.name_translation import read_mapping
from pytest_msprobe.results.outcomes import Breakdown, Skip, SkipReason
from pytest_msprobe.results.result import failed_without_result
from tests.robustness.budget import FILES_PER_EXAMPLE, budget, tried
from tests.robustness.guard import nothing_leaves
from tests.robustness.mutation import Pick, as_text, damaged, mutated, random_picks
from tests.support.journals import make_judged, skipped, write_journal

ROOT = Path(__file__).parents[2]

# What a reader may raise of a file: what its user gave wrong. A policy's error is a ValueError, which options wrap.
REFUSALS = (*USER_ERRORS, Skip)


def tried_on(reader: Callable[[Path], object], path: Path, content: bytes, *refusals: type[Exception]) -> None:
    """Read a file, within its folder, and require that it is taken or refused in one line."""
    path.write_bytes(content)
    with nothing_leaves(path.parent):
        message = ""
        try:
            reader(path)
        except (*REFUSALS, *refusals) as error:
            message = str(error)
        assert len(message) < 4000, "a message quotes the file"
    tried[path.name] += 1


def from_journal(path: Path) -> None:
    """Make every report of a journal."""
    reports = [f"--{kind}={path.parent / kind}" for kind in ("junit", "markdown", "csv")]
    assert main(["report", str(path), *reports]) in (0, 1, 2)


DEFAULT_YAML = ROOT / "standards/msprobe_standards/policies/default.yaml"
COMPARE_YAML = ROOT / "pytest_msprobe/modes/compare/judging/policies/compare-default.yaml"
IGNORE_YAML = "ignore_nan_inf: [{api_name: torch.linalg.inv, input_ignore: [{index: 0}, {name: A}]}]\n"
YAMLS: dict[str, tuple[Callable[[Path], object], str]] = {
    "policy.yaml": (Policy.load, DEFAULT_YAML.read_text()),
    "compare-policy.yaml": (lambda path: load_policy(str(path)), COMPARE_YAML.read_text()),
    "ignore.yaml": (load_rules, IGNORE_YAML),
    "merge.yaml": (read_configuration, (ROOT / "examples/compare_runs/merge.yaml").read_text()),
    "mapping.yaml": (read_mapping, "Torch.a.0.forward.output.0: Torch.b.0.forward.output.0\nb.c: N/A\n"),
    "cells.yaml": (read_cells, "block.down.Dense: block.down.Linear\n"),
    "layers.yaml": (read_layers, "TopLayer: {block: layer}\nBlock: {down: w2}\n"),
    "apis.yaml": (read_apis, "- {ms_api: Mint.matmul, pt_api: Torch.matmul, ms_args: [0, 1], pt_args: [0, 1]}\n"),
}


@pytest.mark.parametrize("name", YAMLS)
@budget(2)
@given(pick=random_picks())
def test_a_yaml_file_is_taken_or_refused(tmp_path: Path, name: str, pick: Pick) -> None:
    reader, text = YAMLS[name]
    tree = yaml.safe_load(text)
    for _ in range(FILES_PER_EXAMPLE):
        # JSON is YAML.
        content = damaged(text.encode(), pick) if pick((True, False)) else as_text(mutated(tree, pick))
        tried_on(reader, tmp_path / name, content, ValueError)


CONFIG = {
    "task": "tensor", "dump_path": "dump", "rank": [0], "step": [0, "2-4"], "level": "mix", "seed": 1,
    "is_deterministic": True, "enable_dataloader": False,
    "tensor": {"scope": [], "list": ["relu"], "data_mode": ["all"]},
    "statistics": {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"},
}  # fmt: skip
PROBE = {
    "task": "grad_probe", "dump_path": "run", "rank": [0], "step": [0, "2-4"],
    "grad_probe": {"grad_level": "L2", "param_list": ["fc.weight"], "bounds": [-1, 0.5], "sign_format": "packed"},
}  # fmt: skip
BENCHMARK = {
    "task": "free_benchmark", "dump_path": "run", "rank": [0], "step": ["0-1"], "level": "L1",
    "free_benchmark": {"list": [], "fuzz_device": "npu", "pert_mode": "add_noise", "handler_type": "check",
        "fuzz_level": "L1", "fuzz_stage": "forward", "if_preheat": False, "preheat_step": 15, "max_sample": 20},
}  # fmt: skip
MONITOR = {
    "targets": {"fc": {"input": "tuple[1]:0", "output": "tensor"}}, "xy_distribution": True, "wg_distribution": True,
    "format": "csv", "ops": ["norm", "min"], "ndigits": 6, "step_interval": 1, "module_ranks": [0],
    "alert": {"rules": [{"rule_name": "AnomalyTurbulence", "args": {"threshold": 0.5}}], "dump": True},
}  # fmt: skip
MANIFEST = {"generated": 1, "files": {"test_a.py": "00"}}

JSONS: dict[str, tuple[Callable[[Path], object], Any]] = {
    "config.json": (read_config, CONFIG),
    "probe.json": (lambda path: probe_settings(read_common(path)), PROBE),
    "benchmark.json": (lambda path: benchmark_settings(read_common(path)), BENCHMARK),
    "nan_check.json": (read_config, {"task": "nan_check", "nan_check": {"list": [], "data_mode": ["all"]}}),
    "monitor.json": (watch_config.read_config, MONITOR),
    "generated.json": (lambda path: write_files(path.parent, {"test_a.py": "import torch\n"}), MANIFEST),
    "case.json": (
        lambda path: read_case(path.parent),
        json.loads((ROOT / "tests/data/cases/format-1/case.json").read_text()),
    ),
}


@pytest.mark.parametrize("name", JSONS)
@budget(2)
@given(pick=random_picks())
def test_a_json_file_is_taken_or_refused(tmp_path: Path, name: str, pick: Pick) -> None:
    reader, tree = JSONS[name]
    for _ in range(FILES_PER_EXAMPLE):
        content = damaged(as_text(tree), pick) if pick((True, False)) else as_text(mutated(tree, pick))
        tried_on(reader, tmp_path / name, content)


@budget(2)
@given(pick=random_picks())
def test_every_report_of_a_journal_is_made_or_the_journal_refused(tmp_path: Path, pick: Pick) -> None:
    whole = write_journal(
        tmp_path / "whole.jsonl",
        make_judged("Torch.mm.0.forward", "pass"),
        make_judged("Torch.mm.0.backward", "fail", 3.0, "too large"),
        skipped("Torch.rand.0.forward", SkipReason.NO_GOLDEN),
        failed_without_result("Torch.abs.0.forward", Breakdown.CRASH, "it died"),
    )
    lines = whole.read_bytes().splitlines()
    whole.unlink()
    for _ in range(FILES_PER_EXAMPLE):
        tried_on(from_journal, tmp_path / "run.jsonl", changed_line(lines, pick))


def measured_of(path: Path) -> None:
    """Go on with the journal of a bisection, and ask for what it measured."""
    journal = BisectionJournal(path, BISECTION, is_resumed=True)
    try:
        journal.measured(Fixes(0, 1))
    finally:
        journal.close()


BISECTION = BisectionHeader(command="python train.py", directory="/somewhere", to="float32", metric="the exit status")


@budget(2)
@given(pick=random_picks())
def test_a_journal_of_a_bisection_is_taken_or_refused(tmp_path: Path, pick: Pick) -> None:
    whole = tmp_path / "whole.jsonl"
    journal = BisectionJournal(whole, BISECTION)
    journal.note(Listed("nan", [Candidate("Torch.mm.0", "MainProcess")]))
    journal.note(Measured(Fixes(0, 1), "0.1", ["File train.py, line 1, in f, \n x @ y"]))
    journal.close()
    lines = whole.read_bytes().splitlines()
    whole.unlink()
    for _ in range(FILES_PER_EXAMPLE):
        tried_on(measured_of, tmp_path / "bisection.jsonl", changed_line(lines, pick))


BASELINE = Header(written_by="0.1", dumps={"abc": "dump.json"}, seed=0, real_data="auto", policy="default", starts=[])
OUTPUT = OutputRow("output.0", "pass", "benchmark", "", "torch.float32", "torch.float64", (2, 3), {"rmse": 0.5})


def rows_of(path: Path) -> None:
    """Read a baseline, and all that it has of two records."""
    baseline = read_baseline(path)
    for record in ("Torch.mm.0.forward", "Torch.mm.1.forward"):
        baseline.row("abc", record)


@budget(2)
@given(pick=random_picks())
def test_a_baseline_is_taken_or_refused(tmp_path: Path, pick: Pick) -> None:
    writer = BaselineWriter(tmp_path / "whole.jsonl")
    for number in range(2):
        writer.add(RecordRow(f"Torch.mm.{number}.forward", "abc", "pass", outputs=(OUTPUT,)))
    writer.finish(BASELINE)
    lines = (tmp_path / "whole.jsonl").read_bytes().splitlines()
    for _ in range(FILES_PER_EXAMPLE):
        tried_on(rows_of, tmp_path / "baseline.jsonl", changed_line(lines, pick))


def changed_line(lines: list[bytes], pick: Pick) -> bytes:
    """Return a file of JSON lines of which one is nearly right, or with bytes that are not."""
    changed = list(lines)
    number = pick(range(len(lines)))
    changed[number] = as_text(mutated(json.loads(lines[number]), pick)).replace(b"\n", b"")
    content = b"\n".join([*changed, b""])
    return damaged(content, pick) if pick((True, False)) else content


ELEMENT = TensorElement(type="torch.Tensor", dtype="torch.float32", shape=(2, 3))


def pt_file() -> bytes:
    buffer = io.BytesIO()
    torch.save(torch.ones(2, 3), buffer)
    return buffer.getvalue()


def npy_file(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content"), [("x.pt", pt_file()), ("x.npy", npy_file(np.ones((2, 3), np.float32)))], ids=[".pt", ".npy"]
)
@budget(2)
@given(pick=random_picks())
def test_a_tensor_file_is_taken_or_refused(tmp_path: Path, name: str, content: bytes, pick: Pick) -> None:
    element = msgspec.structs.replace(ELEMENT, data_name=name)
    for _ in range(FILES_PER_EXAMPLE):
        tried_on(lambda path: load_tensor(element, path.parent), tmp_path / name, damaged(content, pick))


SIGNS = np.ones((2, 3), np.bool_)


@pytest.mark.parametrize("content", [npy_file(SIGNS), npy_file(sign_maps.packed(SIGNS))], ids=["bool", "packed"])
@budget(2)
@given(pick=random_picks())
def test_a_sign_map_is_taken_or_refused(tmp_path: Path, content: bytes, pick: Pick) -> None:
    for _ in range(FILES_PER_EXAMPLE):
        tried_on(sign_maps.read, tmp_path / "w.npy", damaged(content, pick))


SUMMARY = b'\xef\xbb\xbfparam_name,max,min,norm,shape\r\nfc.weight,3.0,-4.0,5.0,"[2, 3]"\r\nfc.bias,1.0,1.0,1.0,[1]\r\n'


def parameters_of(path: Path) -> None:
    """Read the parameters of a step, and what would be the sign map of each."""
    rank = ProbedRank(path.parent, (0,), ())
    for parameter in rank.parameters(0):
        with pytest.raises(MonitorError):
            rank.signs(0, parameter)


@budget(2)
@given(pick=random_picks())
def test_a_summary_of_gradients_is_taken_or_refused(tmp_path: Path, pick: Pick) -> None:
    for _ in range(FILES_PER_EXAMPLE):
        tried_on(parameters_of, tmp_path / "grad_summary_0.csv", damaged(SUMMARY, pick))


TABLE = ROOT / "tests/data/precision_compare/1.2.2/expected_details.csv"


@budget(2)
@given(pick=random_picks())
def test_a_details_table_is_taken_or_refused(tmp_path: Path, pick: Pick) -> None:
    content = TABLE.read_bytes()[:4000]
    for _ in range(FILES_PER_EXAMPLE):
        tried_on(read_details, tmp_path / "accuracy_checking_details_1.csv", damaged(content, pick))


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return small checkpoints of each kind by their files' names, and the part that the last one names."""
    folder = tmp_path_factory.mktemp("checkpoints")
    torch.save({"model": {"w": torch.ones(2, 3)}, "steps": [1, 2]}, folder / "x.pt")
    save_file({"w": torch.ones(2, 3)}, folder / "x.safetensors")
    with pytest.warns(UserWarning, match="single process"):
        dcp.save({"w": torch.ones(2, 3)}, checkpoint_id=folder, no_dist=True)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def load_all(path: Path) -> None:
    """Read all parameters of a checkpoint."""
    for parameter in read_checkpoint(path).parameters.values():
        parameter.load()


@budget(2)
@given(pick=random_picks())
def test_a_checkpoint_is_taken_or_refused(tmp_path: Path, checkpoints: dict[str, bytes], pick: Pick) -> None:
    for name, content in checkpoints.items():
        (tmp_path / name).write_bytes(content)
    for _ in range(FILES_PER_EXAMPLE):
        name = pick(["x.pt", "x.safetensors", ".metadata"])
        tried_on(load_all, tmp_path / name, damaged(checkpoints[name], pick))


FACT = {"max": 1.0, "min": 0.0, "mean": 0.5, "norm": 1.0}
PACK = {
    "env": {"NCCL_ALGO": "ring"},
    "hyperparameters/hyperparameters_static.json": {"lr": 0.1, "model": {"layers": 2}},
    "dataset/step0/rank0/dataset.json": {"args": {"0": FACT}},
    "weights/step0/rank0/weight.json": {"w": FACT},
    "random/rank0.json": {"torch.rand": [{"stack": ["a"], "count": 1}]},
}


@budget(2)
@given(pick=random_picks())
def test_a_pack_of_an_environment_is_taken_or_refused(tmp_path: Path, pick: Pick) -> None:
    for _ in range(FILES_PER_EXAMPLE):
        content = io.BytesIO()
        changed = pick(sorted(PACK))
        with ZipFile(content, "w", ZIP_DEFLATED) as archive:
            for name, tree in PACK.items():
                archive.writestr(name, as_text(mutated(tree, pick) if name == changed else tree))
        whole = content.getvalue()
        tried_on(read_pack, tmp_path / "pack.zip", damaged(whole, pick) if pick((True, False, False)) else whole)
