"""Folders of every kind that a run or a command reads, written small: what is in them is right until it is damaged."""

from __future__ import annotations

import json
import logging
import shutil
import warnings
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeAlias
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file

from msprobe_hooks import record
from msprobe_hooks.extensions.environment.start_file import Started, TensorFact, write_started
from msprobe_hooks.extensions.monitor.series.writer import Row, open_writer
from tests.support.dumps.communications import all_reduce, broadcast
from tests.support.dumps.converted import write_kernel
from tests.support.dumps.dump_files import forward, tensor_around, value, write_dump
from tests.support.dumps.probed import write_probe
from tests.support.dumps.ranks import group
from tests.support.dumps.static_graphs import TITLES, GraphFolder, dense_step, write_graph_text

#: Writes a folder, and returns the arguments of pytest that read it, or a command of ``pytest-msprobe`` with its own.
Builder: TypeAlias = Callable[[Path], list[str]]

ROOT = Path(__file__).parents[2]
_TABLES = ROOT / "examples/compare_runs"
_STACK = ("File a.py, line 1, in f, \n x",)
_DETAILS = ROOT / "tests/data/precision_compare/1.2.2"


def _recorded(folder: Path, **options: Any) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    recording: AbstractContextManager[object] = record(folder, model=model, task="tensor", level="mix", **options)
    with recording:
        model(torch.ones(2, 4)).sum().backward()


def check_tensors(folder: Path) -> list[str]:
    _recorded(folder / "t")
    return ["--msprobe-dump=t", "--msprobe-device=cpu"]


def check_containers(folder: Path) -> list[str]:
    _recorded(folder / "t", tensor_files="safetensors")
    return ["--msprobe-dump=t", "--msprobe-device=cpu"]


def check_compressed(folder: Path) -> list[str]:
    _recorded(folder / "t", tensor_files="safetensors", compression="zstd")
    return ["--msprobe-dump=t", "--msprobe-device=cpu"]


def compare_tensors(folder: Path) -> list[str]:
    _recorded(folder / "t")
    shutil.copytree(folder / "t", folder / "g")
    return ["--msprobe-compare=t", "--msprobe-golden=g"]


def compare_compressed(folder: Path) -> list[str]:
    _recorded(folder / "t", tensor_files="safetensors", compression="zstd")
    shutil.copytree(folder / "t", folder / "g")
    return ["--msprobe-compare=t", "--msprobe-golden=g", "--msprobe-html=page.html"]


def compare_saved_variables(folder: Path) -> list[str]:
    for side in ("t", "g"):
        records = {"loss.0.debug": tensor_around(4), "state.0.debug": {"h": [tensor_around(4)]}}
        write_dump(folder / side / "step0/rank0", records, level="debug")
    return ["--msprobe-compare=t", "--msprobe-golden=g"]


def compare_ranks(folder: Path) -> list[str]:
    for side, ranks in (("t", 4), ("g", 2)):
        for rank in range(ranks):
            x, part = tensor_around(2, 4), tensor_around(2, 2 if side == "t" else 4)
            records = {
                "Functional.linear.0.forward": forward(x, tensor_around(2, 4), output=[part]),
                **all_reduce(group=group(*range(ranks))),
            }
            module = "Module.fc.Linear.forward.0"
            parents = {**dict.fromkeys(records, module), module: None}
            write_dump(
                folder / side / f"step0/rank{rank}",
                {**records, module: forward(x, output=[part])},
                level="mix",
                parents=parents,
                stacks={name: list(_STACK) for name in records},
            )
    return ["--msprobe-compare=t/step0", "--msprobe-golden=g/step0", "--msprobe-target-layout=tp=2"]


def _graphs(folder: Path) -> None:
    for side in ("t", "g"):
        run = GraphFolder(folder / side)
        dense_step(run, run.iteration(), np.ones((4, 2), np.float32))
        write_graph_text(run)


def compare_graphs(folder: Path) -> list[str]:
    _graphs(folder)
    return ["--msprobe-compare=t", "--msprobe-golden=g"]


def compare_statistics_of_graphs(folder: Path) -> list[str]:
    row = 'ReLU,Default/act-ReLU/ReLU-op0,0,0,{},{},0,24,float32,"(3,2)",1,0,0.5,1'
    for side in ("t", "g"):
        iteration = GraphFolder(folder / side).iteration()
        rows = [row.format(number, where) for number, where in ((1, "input"), (2, "output"))]
        (iteration / "statistic.csv").write_text("\n".join([TITLES, *rows, ""]))
    return ["--msprobe-compare=t", "--msprobe-golden=g"]


def map_code(folder: Path) -> list[str]:
    _graphs(folder)
    return ["msprobe", "code-mapping", "t", "--output", "out"]


def compare_converted_files(folder: Path) -> list[str]:
    x = np.linspace(-1, 1, 12, dtype=np.float32)
    for side in ("t", "g"):
        write_kernel(folder / side, "layer1-Add", 1000, [x, x], [x + x])
        write_kernel(folder / side, "layer2-Mul", 1010, [x], [x * 4], kind="Mul")
    return ["--msprobe-compare=t", "--msprobe-golden=g"]


def _ranks(folder: Path) -> None:
    for rank in range(3):
        records = (
            all_reduce(group=group(0, 1, 2))
            | broadcast()
            | {
                "Torch.mul.0.forward": forward(
                    tensor_around(4), value(2.0), output=[{**tensor_around(4), "Max": "nan"}]
                )
            }
        )
        stacks = {name: list(_STACK) for name in records}
        path = write_dump(folder / f"t/step0/rank{rank}", records, parents=dict.fromkeys(records), stacks=stacks)
        lines = [
            {"event": event, "record": name, "time": 1.0 + place + rank}
            for place, name in enumerate(records)
            if name.startswith("Distributed")
            for event in ("began", "ended")
        ]
        (path.parent / "communication.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def overflow_of_ranks(folder: Path) -> list[str]:
    _ranks(folder)
    return ["--msprobe-overflow=t"]


def communication(folder: Path) -> list[str]:
    _ranks(folder)
    return ["--msprobe-communication=t"]


def draw_graph(folder: Path) -> list[str]:
    compare_ranks(folder)
    return ["graph", "t/step0/rank0/dump.json", "--golden", "t/step0/rank1/dump.json", "--html", "graph.html"]


def _series(folder: Path, kind: str) -> list[str]:
    for side in ("t", "g"):
        for rank in (0, 1):
            writer = open_writer(kind, folder / side / f"rank{rank}", ["norm", "max"], ndigits=6, steps_per_file=4)
            writer.add(
                Row(task, 0, name, step, 0 if task == "actv" else None, (1.0 + step, 2.0))
                for step in range(6)
                for task, name in (("grad_reduced", "fc.weight"), ("actv", "fc.output.0"))
            )
            writer.close()
    return ["--msprobe-monitor=t", "--msprobe-golden=g", "--msprobe-html=page.html"]


def monitor_of_csv(folder: Path) -> list[str]:
    return _series(folder, "csv")


def monitor_of_parquet(folder: Path) -> list[str]:
    return _series(folder, "parquet")


def monitor_of_a_probe(folder: Path) -> list[str]:
    for side in ("t", "g"):
        write_probe(folder / side / "rank0", [{"fc.weight": [[1.0, -2.0]], "fc.bias": [3.0]}] * 3)
    return ["--msprobe-monitor=t", "--msprobe-golden=g", "--msprobe-html=page.html"]


def analyse_anomalies(folder: Path) -> list[str]:
    fields = {"micro_step": 0, "pp_stage": 0, "vpp_stage": 0, "call_id": 0, "message": "nan", "group_mates": [0, 1]}
    for rank in (0, 1):
        path = folder / f"t/rank{rank}/anomaly.json"
        path.parent.mkdir(parents=True)
        names = {
            f"{step}": {"rank": rank, "step": step, "tag_name": f"0:a/rank{rank}/actv", **fields} for step in (0, 1)
        }
        path.write_text(json.dumps(names))
    return ["msprobe", "anomaly-analyse", "-d", "t"]


def _weights(number: float) -> dict[str, torch.Tensor]:
    return {"w": torch.full((2, 3), number), "b": torch.full((2,), number, dtype=torch.bfloat16)}


def checkpoint_of_torch(folder: Path) -> list[str]:
    for side in ("t", "g"):
        torch.save({"model": _weights(1.0), "steps": [1, 2]}, folder / f"{side}.pt")
    return ["--msprobe-checkpoint=t.pt", "--msprobe-golden=g.pt"]


def checkpoint_of_older_torch(folder: Path) -> list[str]:
    for side in ("t", "g"):
        torch.save({"model": _weights(1.0)}, folder / f"{side}.pt", _use_new_zipfile_serialization=False)
    return ["--msprobe-checkpoint=t.pt", "--msprobe-golden=g.pt"]


def checkpoint_in_shards(folder: Path) -> list[str]:
    for side in ("t", "g"):
        (folder / side).mkdir()
        places = {name: f"model-{place}.safetensors" for place, name in enumerate(_weights(1.0))}
        for name, file in places.items():
            save_file({name: _weights(1.0)[name]}, folder / side / file)
        (folder / side / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return ["--msprobe-checkpoint=t", "--msprobe-golden=g"]


def checkpoint_of_dcp(folder: Path) -> list[str]:
    for side in ("t", "g"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            dcp.save(_weights(1.0), checkpoint_id=folder / side, no_dist=True)
    return ["--msprobe-checkpoint=t", "--msprobe-golden=g"]


def checkpoint_of_megatron(folder: Path) -> list[str]:
    for side, ranks in (("t", 2), ("g", 1)):
        for rank in range(ranks):
            path = folder / side / f"mp_rank_{rank:02d}/model_optim_rng.pt"
            path.parent.mkdir(parents=True)
            model = {"decoder.layers.0.mlp.linear_fc1.weight": torch.ones(4 // ranks, 2), "norm": torch.ones(3)}
            torch.save({"args": Namespace(tensor_model_parallel_size=ranks), "model": model}, path)
    return ["--msprobe-checkpoint=t", "--msprobe-golden=g"]


def environments(folder: Path) -> list[str]:
    fact = TensorFact(1.0, 0.0, 0.5, 1.0, "torch.float32", (2,), "ab")
    for side in ("t", "g"):
        for rank in (0, 1):
            started = Started(
                rank=rank, world=2, variables={"NCCL_ALGO": "ring"}, packages={"torch": "2.9"},
                switches={"TF32 matmul": "off"}, seeds={"torch": "1"}, random={}, watched=["torch.rand"],
                texts={"run.sh": "torchrun train.py --lr 1e-4\n", "a.yaml": "lr: 0.1\n"}, arguments={"lr": 0.1},
                batches={0: {"args.0": fact}}, weights={0: {"w": fact}}, buffers={0: {}},
            )  # fmt: skip
            write_started(folder / side / f"rank{rank}.json", started)
    return ["--msprobe-environment=t", "--msprobe-golden=g", "--msprobe-xlsx=out"]


def packs_of_environments(folder: Path) -> list[str]:
    fact = {"max": 1.0, "min": 0.0, "mean": 0.5, "norm": 1.0}
    parts: dict[str, Any] = {
        "env": {"NCCL_ALGO": "ring"},
        "hyperparameters/hyperparameters_static.json": {"lr": 0.1, "model": {"layers": 2}},
        "dataset/step0/rank0/dataset.json": {"args": {"0": fact}},
        "weights/step0/rank0/weight.json": {"w": fact},
        "random/rank0.json": {"torch.rand": [{"stack": ["a"], "count": 1}]},
    }
    for side in ("t", "g"):
        with ZipFile(folder / f"{side}.zip", "w", ZIP_DEFLATED) as archive:
            for name, tree in parts.items():
                archive.writestr(name, json.dumps(tree))
            archive.writestr("pip", "torch=2.9\n")
    return ["--msprobe-environment=t.zip", "--msprobe-golden=g.zip"]


def settings_of_a_launch(folder: Path) -> list[str]:
    (folder / "run.sh").write_text("A=(1 2)\nB=$A\ntorchrun --nproc 2 train.py --lr ${B[@]} --out x > log 2>&1\n")
    (folder / "config.yaml").write_text("model: {layers: 2, sizes: [1, 2]}\nlr: 1e-4\n")
    return ["environment", "-o", "started", "run.sh", "config.yaml"]


def merge_tables(folder: Path) -> list[str]:
    shutil.copytree(_TABLES / "tables", folder / "t")
    shutil.copy(_TABLES / "merge.yaml", folder / "merge.yaml")
    return ["msprobe", "merge-results", "-i", "t", "-o", "out", "-config", "merge.yaml"]


def merge_workbooks(folder: Path) -> list[str]:
    from openpyxl import Workbook

    (folder / "t").mkdir()
    for rank in (0, 1):
        book = Workbook()
        for row in (
            ("NPU Name", "Bench Name", "NPU max", "Bench max", "Max diff"),
            ("Torch.a.0.forward", "b", 1, 1, 0),
        ):
            book.active.append(row)
        book.save(folder / f"t/compare_result_rank{rank}-rank{rank}_20260131120000.xlsx")
    (folder / "merge.yaml").write_text("api: [Torch.a]\n")
    return ["msprobe", "merge-results", "-i", "t", "-o", "out", "-config", "merge.yaml"]


def compare_finished_runs(folder: Path) -> list[str]:
    for name in ("npu.csv", "gpu.csv"):
        shutil.copy(_DETAILS / name, folder / name)
    return ["msprobe", "precision-compare", "npu.csv", "gpu.csv", "--policy", "msprobe-1.2", "--csv", "out"]


def show_a_dump(folder: Path) -> list[str]:
    _recorded(folder / "t", tensor_files="safetensors", compression="zstd")
    return ["show", "t/step0/rank/dump.json::Functional.linear.0.forward"]


KINDS: dict[str, Builder] = {
    kind.__name__: kind
    for kind in (
        check_tensors, check_containers, check_compressed, compare_tensors, compare_compressed,
        compare_saved_variables, compare_ranks, compare_graphs, compare_statistics_of_graphs, map_code,
        compare_converted_files, overflow_of_ranks, communication, draw_graph, monitor_of_csv, monitor_of_parquet,
        monitor_of_a_probe, analyse_anomalies, checkpoint_of_torch, checkpoint_of_older_torch, checkpoint_in_shards,
        checkpoint_of_dcp, checkpoint_of_megatron, environments, packs_of_environments, settings_of_a_launch,
        merge_tables, merge_workbooks, compare_finished_runs, show_a_dump,
    )
}  # fmt: skip


def build(kind: str, folder: Path) -> list[str]:
    """Write a folder of a kind, whatever recordings log of themselves."""
    log = logging.getLogger("msprobe_hooks")
    was_disabled, log.disabled = log.disabled, True
    try:
        return KINDS[kind](folder)
    finally:
        log.disabled = was_disabled


def files_of(folder: Path) -> Sequence[Path]:
    """Return the files that a builder wrote, in one order."""
    return sorted(path for path in folder.rglob("*") if path.is_file())
