"""Recordings of compiled graphs: what MindSpore is asked to dump, and what it then writes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from msprobe_hooks import ConfigError, record  # noqa: E402
from msprobe_hooks.dump.json_records import Kernel  # noqa: E402
from msprobe_hooks.dump.reader import open_dump  # noqa: E402
from msprobe_hooks.dump.recording_paths import find_dumps, step_rank  # noqa: E402
from msprobe_hooks.extensions.mindspore.graph_dump import VARIABLE, dump_config  # noqa: E402
from msprobe_hooks.extensions.mindspore.static_graph.reader import GraphDump  # noqa: E402
from msprobe_hooks.recording.config import settings  # noqa: E402
from tests.support.runs import run_pytest  # noqa: E402

ROOT = Path(__file__).parents[2]
Program = Callable[..., subprocess.CompletedProcess[str]]


def common(target: str = "Ascend", **options: Any) -> dict[str, Any]:
    reported = dump_config(settings("dump", **options), target)
    assert reported["e2e_dump_settings"]["enable"]
    return cast("dict[str, Any]", reported["common_dump_settings"])


def test_statistics_are_dumped_where_the_backend_takes_them() -> None:
    assert common()["saved_data"] == "statistic"
    assert common(task="tensor")["saved_data"] == "tensor"
    assert common("CPU")["saved_data"] == "tensor"


def test_all_is_dumped_unless_the_settings_choose() -> None:
    reported = common()
    assert (reported["iteration"], reported["dump_mode"], reported["kernels"], reported["input_output"]) == (
        "all",
        0,
        [],
        0,
    )
    reported = common(step=[5, "1-2"], list=["MatMul"], data_mode=["output"], rank=[3])
    assert (reported["iteration"], reported["dump_mode"], reported["kernels"], reported["input_output"]) == (
        "1|2|5",
        1,
        ["MatMul"],
        2,
    )
    assert reported["support_device"] == [3]
    assert Path(reported["path"]).is_absolute()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": "debug"}, "level is 'debug'; allowed: L1, mix or L2, which dump kernels, or L0 in GRAPH_MODE"),
        ({"task": "structure"}, "task is 'structure'; allowed: statistics or tensor in GRAPH_MODE"),
        ({"data_mode": ["forward"]}, "data_mode is ..forward..; allowed: all, input or output in GRAPH_MODE"),
        ({"summary_mode": "md5"}, "summary_mode is 'md5'; not supported in GRAPH_MODE"),
    ],
)
def test_settings_without_meaning_for_graphs_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    try:
        with pytest.raises(ConfigError, match=message), record(tmp_path, framework="mindspore", model=None, **options):
            pass
    finally:
        ms.set_context(mode=ms.PYNATIVE_MODE)
    assert VARIABLE not in os.environ


@pytest.mark.parametrize("folder", ["a.b", "a b", "ü"])
def test_a_path_that_mindspore_does_not_take_is_refused_at_once(folder: str) -> None:
    with pytest.raises(ConfigError, match=r"dump_path is .*; allowed: a path of letters, digits, - and _"):
        dump_config(settings(folder), "CPU")


@pytest.fixture(scope="module")
def program() -> Program:
    """Run the training in a process of its own."""

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tests.corpus.mindspore_graph", *map(str, words)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)

    return run


@pytest.fixture(scope="module")
def graph(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a recording in GRAPH_MODE."""
    folder = tmp_path_factory.mktemp("graph")
    ran = program("record", "graph", folder)
    assert ran.returncode == 0, ran.stderr
    assert "recorded 2 graph iterations" in ran.stdout
    return folder


def kernel(dump: GraphDump, *words: str) -> Kernel:
    (name,) = (name for name in dump.kernels if all(word in name for word in words))
    return dump.kernels[name]


def loaded(dump: GraphDump, kernel: Kernel, side: str, slot: int) -> Any:
    return np.load(dump.tensor_folder / str(getattr(kernel, side)[slot].data_name))


@pytest.mark.slow
def test_a_graph_leaves_the_tensors_of_its_kernels(graph: Path) -> None:
    paths = find_dumps(graph)
    assert [step_rank(path) for path in paths] == [(0, 0), (1, 0)]
    dump = cast("GraphDump", open_dump(paths[0]))
    product = kernel(dump, "fc1-Dense", "MatMul", "forward")
    x, weight, y = (loaded(dump, product, *at) for at in (("inputs", 0), ("inputs", 1), ("outputs", 0)))
    np.testing.assert_allclose(y, x @ weight.T, rtol=1e-5, atol=1e-6)
    assert any(name.startswith("Kernel.Gradients") and name.endswith(".backward") for name in dump.kernels)


@pytest.mark.slow
def test_a_changed_weight_is_the_first_culprit(
    graph: Path, program: Program, pytester: pytest.Pytester, tmp_path: Path
) -> None:
    assert program("record", "graph", tmp_path / "changed", "change").returncode == 0
    words = ("--msprobe-compare", tmp_path / "changed", "--msprobe-golden", graph)
    run_pytest(pytester, *words, apart=True).stdout.fnmatch_lines(
        [
            "step 0, rank 0: first forward culprit: Kernel.Default*fc2-Dense_MatMul-op?.0.forward (*",
            "    its inputs differ, too: input.1 (*, worst at [[]1, 2])",
        ]
    )


@pytest.mark.slow
def test_compiled_functions_are_dumped_in_pynative_mode(program: Program, tmp_path: Path) -> None:
    assert program("record", "jit", tmp_path).returncode == 0
    dump = cast("GraphDump", open_dump(find_dumps(tmp_path)[0]))
    assert kernel(dump, "fc1-Dense", "MatMul", "forward").type == "MatMul"
    assert not any("optimizer" in name for name in dump.kernels)


@pytest.mark.slow
def test_what_the_program_has_not_read_is_waited_for(program: Program, tmp_path: Path) -> None:
    ran = program("unread", "jit", tmp_path)
    assert ran.returncode == 0, ran.stderr
    dump = cast("GraphDump", open_dump(find_dumps(tmp_path)[0]))
    assert kernel(dump, "fc2-Dense", "BiasAdd", "forward").outputs
    assert ran.stdout == f"{sum(file.stat().st_size for file in dump.path.parent.iterdir())} bytes\n"


@pytest.mark.slow
def test_a_training_by_callbacks_leaves_an_iteration_per_step(program: Program, tmp_path: Path) -> None:
    ran = program("callback", "graph", tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert [step_rank(path).step for path in find_dumps(tmp_path)] == [0, 1]


@pytest.mark.slow
def test_a_recording_that_begins_after_a_graph_was_compiled_is_one_clear_error(
    program: Program, tmp_path: Path
) -> None:
    ran = program("late", "graph", tmp_path / "dump")
    last = ran.stderr.strip().splitlines()[-1]
    assert last.startswith("msprobe_hooks.errors.RecordingError: a graph was compiled before the recording began")
    assert not (tmp_path / "dump").exists()
