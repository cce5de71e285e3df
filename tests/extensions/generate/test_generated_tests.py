from __future__ import annotations

import ast
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pytest_msprobe.recorded  # noqa: F401 - loaded once: inner runs drop what they load
from pytest_msprobe.commands.main import main
from tests.support.nightly import nightly_but

DATA = Path(__file__).parents[2] / "data"
EXAMPLE = Path(__file__).parents[3] / "examples" / "check_a_dump" / "dump.json"
DUMPS = [
    *(DATA / "dumps" / name / "dump.json" for name in ("gpt2", "lstm-1.2.2-md5", "lstm-mix", "resnet18")),
    *(DATA / "round_trip" / name / "dump.json" for name in ("spellings-1.2.2", "spellings-26.2.0")),
    DATA / "verdict_quality" / "operators" / "dump.json",
    EXAMPLE,
]

Json = dict[str, Any]

# Every second call is wrong, forward and backward.
FAULT = """
if int(record.split(".")[-2]) % 2:
    wrong = lambda x: x * 1.1 if isinstance(x, torch.Tensor) and x.is_floating_point() else x
    result = tuple(map(wrong, result)) if type(result) is tuple else wrong(result)
"""

_COMPARED = ("verdict", "standard", "margin", "seed")


def verdicts(checked: Any) -> dict[str, tuple[str | None, ...]]:
    """What came of each record, by its name, in a run of the dump as in one of generated tests."""
    found = {}
    for name, case in checked.cases.items():
        record = name.partition("[")[2][:-1] if name.startswith("test_") else name
        found[record] = tuple(case.properties.get(f"msprobe.{field}") for field in _COMPARED)
    return found


@pytest.fixture
def both(pytester: pytest.Pytester, check: Any) -> Callable[..., tuple[Json, Json]]:
    """Run a dump, and the tests that are generated from it, on the same device."""

    def run(dump: Path, device: str = "cpu", options: tuple[str, ...] = (), generate: tuple[str, ...] = ()) -> Any:
        out = pytester.path / "generated_tests"
        assert main(["generate", str(dump), "-o", str(out), "--no-run", *generate]) == 0
        common = ("--import-mode=importlib", f"--msprobe-device={device}", "-q")
        return verdicts(check(f"--msprobe-dump={dump}", *common, *options)), verdicts(check(out, *common))

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    "dump",
    nightly_but(DUMPS, *(dump for dump in DUMPS if dump.parent.name != "resnet18")),
    ids=lambda path: path.parent.name,
)
def test_a_generated_test_says_what_the_dumps_item_says(both: Any, dump: Path) -> None:
    recorded, generated = both(dump)
    assert generated == recorded


@pytest.mark.slow
@pytest.mark.parametrize(
    "dump", nightly_but([DUMPS[0], DUMPS[1], EXAMPLE], DUMPS[0], DUMPS[1]), ids=lambda path: path.parent.name
)
def test_the_same_records_fail_on_a_faulty_device(both: Any, make_device: Any, dump: Path) -> None:
    make_device(FAULT)
    recorded, generated = both(dump, "faulty")
    assert generated == recorded
    assert {verdict for verdict, *_ in recorded.values()} >= {"pass", "fail"}


def test_recorded_tensors_are_judged_as_the_dumps_item_judges_them(both: Any) -> None:
    dump = DATA / "verdict_quality" / "values" / "dump.json"
    recorded, generated = both(dump, generate=("--real-data",))
    assert generated == recorded
    drawn, generated = both(dump, options=("--msprobe-real-data=never",))
    assert generated == drawn != recorded


def test_a_seed_draws_what_it_draws_for_the_dump(both: Any, make_device: Any) -> None:
    # A device whose error is a share of the values, so that other values have another margin on any machine.
    make_device("result = result + 0.01 if record.endswith('forward') else result")
    first = ("-k", "linear or softmax")
    seeded = ("--msprobe-seed=5", *first)
    recorded, generated = both(EXAMPLE, "faulty", options=seeded, generate=("--seed=5", *first))
    assert generated == recorded
    other, _ = both(EXAMPLE, "faulty", options=first, generate=first)
    assert {name: margin for name, (_, _, margin, _) in other.items()} != {
        name: margin for name, (_, _, margin, _) in recorded.items()
    }


@pytest.fixture
def varied(records: Json, element: Any, forward: Any) -> Json:
    """Return calls of all kinds, some of which cannot be replayed."""

    def value(kind: str, value: Any) -> Json:
        return {"type": kind, "value": value}

    x, half = element(4, 8, requires_grad=True), element(4, 8, dtype="bfloat16", requires_grad=True)
    index = element(3, dtype="int64", low=0, high=3)
    sizes = value("torch.Size", [8])
    return records | {
        "Tensor.add_.0.forward": forward(x, value("float", 0.5)),
        "Tensor.add_.0.backward": {"input": [x], "output": [x]},
        "Torch.add.0.forward": forward(element(4), element(4), out=element(4)),
        "Functional.dropout.0.forward": forward(element(64, 64), p=value("float", 0.5), training=value("bool", True)),
        "NPU.npu_rms_norm.0.forward": forward(half, element(8, dtype="bfloat16"), output=[half, element(4, 1)]),
        "NPU.no_such_operation.0.forward": forward(x),
        "Functional.embedding.0.forward": forward(index, element(4, 8, requires_grad=True), output=[element(3, 8)]),
        "Functional.embedding.0.backward": {"input": [element(3, 8)], "output": [None, element(4, 8)]},
        "Tensor.__getitem__.0.forward": forward(x, [value("slice", [0, 2, None]), value("ellipsis", "..."), None]),
        "Tensor.__getitem__.1.forward": forward(x, [value("int", 0), value("int", 2)], output=[element(2, 8)]),
        "Tensor.__setitem__.0.forward": forward(x, value("int", 1), value("float", 2.0)),
        "Torch.cat.0.forward": forward([x, x], dim=value("int", 0), output=[element(8, 8)]),
        "Torch.cat.0.backward": {"input": [element(8, 8)], "output": [x, x]},
        "Functional.layer_norm.0.forward": forward(x, sizes, None, None),
        "Torch.zeros.0.forward": forward([value("int", 3)], device=value("torch.device", "npu:0"), output=[element(3)]),
        "Tensor.to.0.forward": forward(element(4), {}, output=[element(4, dtype="float16")]),
        "Tensor.to.1.forward": forward(element(4), value("str", "npu:0")),
        "Torch.mul.0.forward": forward(element(4, dtype="complex64", low=0.0), value("complex", [1.0, -2.0])),
        "Functional.linear.1.forward": forward(x, element(8, 8), output=[element(4, 8, dtype="float16")]),
        "Torch.max.0.forward": forward(x, value("int", 1), output=[element(4), element(4, dtype="int64")]),
        "Tensor.contiguous.0.forward": forward(
            element(1, 2, 3, 4), memory_format={"type": "torch.memory_format", "format": "channels_last"}
        ),
        "Functional.relu.0.forward": forward(element(4, low=float("-inf"), high=float("nan"))),
        "Torch.softmax.0.forward": forward(x, value("int", -1), dtype=value("torch.dtype", "torch.float64")),
        "Tensor.T.0.forward": forward(x, output=[element(8, 4)]),
        "Aten.add.Tensor.0.forward": forward(x, x, alpha=value("int", 2)),
        "Torch.linalg.norm.0.forward": forward(x, output=[element()]),
        "Torch.sum.0.forward": forward(x, value("function", "f")),
        "Distributed.all_reduce.0.forward": forward(x),
        "Torch.no_such_operation.0.forward": forward(x),
        "Torch.load.0.forward": forward(value("str", "weights.pt")),
        "Torch.abs.0.backward": {"input": [x], "output": [x]},
        "Torch.exp.0.forward": forward(x) | {"exception": "RuntimeError"},
        "Torch.log.0.forward": {"input_args": 3},
        "Torch.sqrt.0.forward": forward(x),
        "Torch.sqrt.0.backward": {"input": 3},
        "Torch.sin.0.forward": {"input_args": [], "input_kwargs": {}, "output": []},
        "Torch.cos.0.forward": forward(element(4, dtype="float3")),
        "no name": forward(x),
    }


def test_calls_of_every_kind_are_judged_as_the_dumps_items_are(both: Any, write_dump: Any, varied: Json) -> None:
    recorded, generated = both(write_dump(varied))
    assert generated == {record: recorded[record] for record in generated}
    assert {verdict for verdict, *_ in generated.values()} == {"pass", "skip"}


def test_what_is_left_out_could_not_be_judged_and_is_reported(
    both: Any, write_dump: Any, varied: Json, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded, generated = both(write_dump(varied))
    left_out = {record: verdict for record, (verdict, *_) in recorded.items() if record not in generated}
    assert {record for record, verdict in left_out.items() if verdict == "fail"} == {
        "Torch.log.0.forward",
        "Torch.sqrt.0.backward",
        "no name",
    }
    reported = capsys.readouterr().out
    for record in left_out:
        assert f"{record}: " in reported or f"{record}, " in reported
    assert 'left out: Torch.log.0.forward: $.data["Torch.log.0.forward"].input_args: expected an array' in reported


def test_each_iteration_has_a_seed_and_inputs_of_its_own(
    pytester: pytest.Pytester, check: Any, make_device: Any
) -> None:
    make_device(FAULT)
    out = pytester.path / "generated_tests"
    assert main(["generate", str(EXAMPLE), "-k", "matmul.1.", "-o", str(out), "--no-run", "--iterations=3"]) == 0
    cases = check(out, "--msprobe-device=faulty").cases
    seeds = {name: (case.properties["msprobe.seed"], case.properties["msprobe.margin"]) for name, case in cases.items()}
    assert {name: seed for name, (seed, _) in seeds.items()} == {
        f"test_{direction}[Torch.matmul.1.{direction}-{seed}]": str(seed)
        for direction in ("forward", "backward")
        for seed in range(3)
    }
    assert len({margin for _, margin in seeds.values()}) == len(seeds)


def test_records_are_chosen_as_pytest_chooses_them(pytester: pytest.Pytester, check: Any) -> None:
    for expression in ("softmax", "Functional and not bfloat16", "dump.json and (silu or pad)"):
        out = pytester.path / "generated_tests"
        assert main(["generate", str(EXAMPLE), "-k", expression, "-o", str(out), "--no-run"]) == 0
        recorded = check(f"--msprobe-dump={EXAMPLE}", "-k", expression, "--msprobe-device=cpu")
        generated = check(out, "--import-mode=importlib", "--msprobe-device=cpu")
        assert verdicts(generated).keys() == recorded.cases.keys()
        shutil.rmtree(out)


_CODE = '"); __import__("pathlib").Path("owned").touch(); ("'
_HOSTILE = [
    _CODE,
    '"""\nimport os\n"""',
    "'''",
    "{0.__class__}",
    "%s%n",
    "\\",
    "\\N{BULLET}",
    "\u202e",
    "a\nb\r\0",
    "../x",
]


def test_hostile_names_and_values_are_nothing_but_text(
    pytester: pytest.Pytester, check: Any, write_dump: Any, element: Any, forward: Any
) -> None:
    x = element(4)
    texts = {
        f"Functional.relu.{number}.forward": forward(x, {"type": "str", "value": text}, **{text: x})
        for number, text in enumerate(_HOSTILE)
    }
    types = {
        f"Torch.sum.{number}.forward": forward(x, {"type": text, "value": text}, {text: {"type": "str", "value": text}})
        for number, text in enumerate(_HOSTILE)
    }
    names = {f"{kind}.{text}.0.forward": forward(x) for text in _HOSTILE for kind in ("Functional", "NPU", "Torch")}
    written = write_dump(texts | types | names)
    dump = written.rename(written.with_name(f'{_CODE.replace("/", "")} \n\\ {{x}} """.json'))
    out = pytester.path / "generated_tests"
    assert main(["generate", str(dump), "-o", str(out), "--no-run"]) == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "generated.json",
        "test_functional_relu.py",
        "test_torch_sum.py",
    ]
    for path in out.glob("*.py"):
        source = path.read_text()
        assert source.isascii()
        used = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
        assert used <= {"CALLS", "FORWARD", "SEED", "precision", "pytest", "record", "recorded", "torch"}
    checked = check(out, "--msprobe-device=cpu")
    assert len(checked.cases) == len(texts) + len(types)
    assert not list(pytester.path.rglob("owned"))


def test_tensor_files_get_safe_names_and_lie_below_the_output(
    pytester: pytest.Pytester, check: Any, write_dump: Any, element: Any, forward: Any
) -> None:
    import torch

    names = ["x y.pt", "x_y.pt", "sub/x.pt", '"""\n.pt', "é.pt", f"{'n' * 200}.pt"]
    dump = write_dump(
        {
            f"Functional.relu.{number}.forward": forward(element(2, data_name=name))
            for number, name in enumerate([*names, "../outside.pt", "missing.pt", "/etc/passwd"])
        },
        task="tensor",
    )
    (dump.parent / "dump_tensor_data" / "sub").mkdir(parents=True)
    for name in [*names, "../outside.pt"]:
        torch.save(torch.ones(2), dump.parent / "dump_tensor_data" / name)
    out = pytester.path / "generated_tests"
    assert main(["generate", str(dump), "-o", str(out), "--no-run", "--real-data"]) == 0
    copied = [path.name for path in (out / "tensors").iterdir()]
    assert len(copied) == len(names)
    assert all(name.isascii() and name.replace("_", "").replace(".", "").isalnum() for name in copied)
    checked = check(out, "--msprobe-device=cpu")
    assert verdicts(checked).keys() == {f"Functional.relu.{number}.forward" for number in range(len(names))}
    assert checked.exit_code == 0


def test_a_pickle_among_the_tensor_files_is_left_out(
    write_dump: Any, element: Any, forward: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import pickle

    dump = write_dump({"Functional.relu.0.forward": forward(element(2, data_name="x.pt"))}, task="tensor")
    folder = dump.parent / "dump_tensor_data"
    folder.mkdir()
    (folder / "x.pt").write_bytes(pickle.dumps(print))
    assert main(["generate", str(dump), "-o", str(tmp_path / "out"), "--real-data"]) == 2
    assert "not a readable tensor file" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_apis_whose_names_differ_in_case_get_modules_of_their_own(
    pytester: pytest.Pytester, write_dump: Any, element: Any, forward: Any
) -> None:
    dump = write_dump({f"Tensor.{api}.0.forward": forward(element(4, 4)) for api in ("t", "T")})
    out = pytester.path / "generated_tests"
    assert main(["generate", str(dump), "-o", str(out), "--no-run"]) == 0
    plain, digested = sorted((path.name for path in out.glob("*.py")), key=len)
    assert plain == "test_tensor_t.py"
    assert digested.startswith("test_tensor_t_")
    assert "attrgetter" in (out / digested).read_text()
    shutil.rmtree(out)
    # A module's name does not depend on what else is chosen.
    assert main(["generate", str(dump), "-o", str(out), "--no-run", "-k", ".T."]) == 0
    assert (out / digested).exists()


def test_deep_nesting_is_left_out_and_not_a_module_that_python_refuses(
    pytester: pytest.Pytester, write_dump: Any, element: Any, forward: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    deep: Any = element(2)
    for _ in range(300):
        deep = [deep]
    dump = write_dump({"Torch.cat.0.forward": forward(deep), "Torch.abs.0.forward": forward(element(2))})
    assert main(["generate", str(dump), "-o", str(pytester.path / "out"), "--no-run"]) == 0
    assert "left out: Torch.cat.0.forward" in capsys.readouterr().out


def test_a_missing_tensor_file_skips_and_a_changed_one_fails(pytester: pytest.Pytester, check: Any) -> None:
    out = pytester.path / "generated_tests"
    dump = DATA / "verdict_quality" / "values" / "dump.json"
    assert main(["generate", str(dump), "-k", "softmax or tanh", "-o", str(out), "--no-run", "--real-data"]) == 0
    (out / "tensors" / "Functional.softmax.0.forward.input.0.pt").unlink()
    (out / "tensors" / "Torch.tanh.0.forward.input.0.pt").write_bytes(b"no tensor")
    checked = check(out, "--msprobe-device=cpu")
    assert {name: verdict for name, (verdict, *_) in verdicts(checked).items()} == {
        "Functional.softmax.0.forward": "skip",
        "Torch.tanh.0.forward": "fail",
    }
    assert "not a readable tensor file" in checked.output


def test_a_time_limit_holds_for_each_record(pytester: pytest.Pytester, check: Any, make_device: Any) -> None:
    make_device("import time; time.sleep(60)")
    out = pytester.path / "generated_tests"
    assert main(["generate", str(EXAMPLE), "-k", "pad", "-o", str(out), "--no-run", "--direction=forward"]) == 0
    (case,) = check(out, "--msprobe-device=faulty", "--msprobe-timeout=0.2").cases.values()
    assert case.outcome == "failed"
    assert case.properties["msprobe.breakdown"] == "timeout"
    assert "not finished after 0.2 s" in case.text
