"""A model trained under the gradient probe: what is written is computed again by numpy."""

from __future__ import annotations

import csv
import hashlib
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from msprobe_hooks import ConfigError, GradComparator, PrecisionDebugger
from msprobe_hooks.instruments.grad_probe import sign_maps
from msprobe_hooks.instruments.grad_probe import torch_statistics as statistics

Monitor = Callable[..., Path]


@pytest.fixture
def monitor(tmp_path: Path) -> Iterator[Monitor]:
    """Monitor a model with a configuration of msprobe; return the folder of rank 0."""

    def begin(model: Any, optimizer: Any = None, *, step: Any = (), dump_path: str = "run", **section: Any) -> Path:
        path = tmp_path / "config.json"
        content = {"task": "grad_probe", "dump_path": str(tmp_path / dump_path), "step": list(step), "rank": []}
        path.write_text(json.dumps({**content, "grad_probe": section}))
        PrecisionDebugger(path).monitor(model, optimizer)
        return tmp_path / dump_path / "rank0"

    yield begin
    finish()


def finish() -> None:
    if PrecisionDebugger._instance is not None:
        PrecisionDebugger._instance._finish()


def table(rank: Path, step: int = 0) -> list[dict[str, str]]:
    with (rank / f"grad_summary_{step}.csv").open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def names(rank: Path, step: int = 0) -> list[str]:
    return [row["param_name"] for row in table(rank, step)]


def parameter(*values: float, dtype: torch.dtype = torch.float32) -> nn.Parameter:
    """Return a parameter that has these values as its gradient."""
    of_values = nn.Parameter(torch.zeros(len(values), dtype=dtype))
    of_values.grad = torch.tensor(values, dtype=dtype)
    return of_values


def model_of(**parameters: nn.Parameter) -> nn.Module:
    model = nn.Module()
    for name, one in parameters.items():
        model.register_parameter(name, one)
    return model


def sgd(*models: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD([one for model in models for one in model.parameters()], lr=0.1)


def test_maximum_minimum_norm_and_shape_are_those_of_each_gradient(monitor: Monitor) -> None:
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    rank = monitor(model)
    model(torch.randn(4, 5)).square().sum().backward()
    gradients = {name: one.grad.numpy().astype(np.float64) for name, one in model.named_parameters()}
    sgd(model).step()
    assert names(rank) == list(gradients)
    for row in table(rank):
        gradient = gradients[row["param_name"]]
        assert (float(row["max"]), float(row["min"])) == (gradient.max(), gradient.min())
        assert float(row["norm"]) == pytest.approx(np.sqrt((gradient**2).sum()), rel=1e-6)
        assert json.loads(row["shape"]) == list(gradient.shape)


def test_a_summary_of_level_l1_is_written_to_the_letter(monitor: Monitor) -> None:
    model = model_of(w=parameter(3.0, -4.0))
    rank = monitor(model)
    sgd(model).step()
    assert (rank / "grad_summary_0.csv").read_bytes() == (
        b"\xef\xbb\xbfparam_name,max,min,norm,shape\r\nw,3.0,-4.0,5.0,[2]\r\n"
    )


def test_level_l2_has_the_share_of_elements_in_each_interval(monitor: Monitor) -> None:
    values = [-2.0, -1.0, -0.5, 0.0, 0.25, 0.5, 0.75, 9.0]
    model = model_of(w=parameter(*values))
    rank = monitor(model, grad_level="L2", bounds=[-1, 0, 0.5])
    sgd(model).step()
    text = (rank / "grad_summary_0.csv").read_text("utf-8-sig")
    assert text.startswith('param_name,"(-inf, -1]","(-1, 0]","(0, 0.5]","(0.5, inf)",=0,max,min,norm,shape\n')
    (row,) = table(rank)
    counts = np.bincount(np.searchsorted([-1, 0, 0.5], values, side="left"), minlength=4)
    assert [float(row[key]) for key in list(row)[1:5]] == (counts / len(values)).tolist()
    assert float(row["=0"]) == 1 / 8


def test_a_nan_counts_where_msprobe_counts_it(monitor: Monitor) -> None:
    model = model_of(w=parameter(float("nan"), -1.0))
    rank = monitor(model, grad_level="L2", bounds=[0])
    sgd(model).step()
    (row,) = table(rank)
    of_msprobe = torch.bincount(torch.bucketize(model.w.grad, torch.tensor([0.0])), minlength=2) / 2
    assert [float(row["(-inf, 0]"]), float(row["(0, inf)"])] == of_msprobe.tolist()
    assert row["max"] == "nan"


def test_without_bounds_only_the_share_of_zeros_is_told(monitor: Monitor) -> None:
    model = model_of(w=parameter(0.0, 1.0, 2.0, 3.0))
    rank = monitor(model, grad_level="L2", bounds=[])
    sgd(model).step()
    assert list(table(rank)[0].items())[1:3] == [("=0", "0.25"), ("max", "3.0")]


def test_level_l0_has_checksums_and_no_sign_maps(monitor: Monitor) -> None:
    model = model_of(w=parameter(1.0, -2.0, dtype=torch.bfloat16))
    rank = monitor(model, grad_level="L0")
    sgd(model).step()
    assert table(rank)[0]["MD5"] == hashlib.md5(np.array([1, -2], dtype=np.float32).tobytes()).hexdigest()
    assert [path.name for path in rank.iterdir()] == ["grad_summary_0.csv"]


def test_a_sign_map_tells_what_is_greater_than_zero(monitor: Monitor) -> None:
    model = model_of(a=parameter(1.0, 0.0, -1.0), b=parameter(-2.0), empty=parameter())
    rank = monitor(model)
    sgd(model).step()
    found = {path.stem: np.load(path) for path in (rank / "step0").iterdir()}
    assert {name: signs.tolist() for name, signs in found.items()} == {
        "a": [True, False, False],
        "b": [False],
        "empty": [],
    }
    assert {signs.dtype for signs in found.values()} == {np.dtype(bool)}


def test_sign_maps_keep_the_shape_of_the_gradient_whatever_its_strides(monitor: Monitor) -> None:
    model = nn.Linear(4, 3, bias=False)
    rank = monitor(model)
    model.weight.grad = torch.randn(4, 3).T
    sgd(model).step()
    np.testing.assert_array_equal(np.load(rank / "step0" / "weight.npy"), model.weight.grad.numpy() > 0)


def test_sign_maps_that_leave_a_device_together_come_back_one_by_one() -> None:
    gradients = [torch.randn(3, 4).T, torch.tensor(-1.0), torch.zeros(0, 2), torch.randn(7)]
    for gradient, signs in zip(gradients, statistics.fetch_signs(gradients), strict=True):
        np.testing.assert_array_equal(signs, gradient.numpy() > 0)


def test_packed_sign_maps_are_compared_as_plain_ones(monitor: Monitor, tmp_path: Path) -> None:
    for run, sign_format in (("plain", "bool"), ("packed", "packed")):
        model = model_of(w=parameter(*np.random.default_rng(0).normal(size=99)))
        rank = monitor(model, dump_path=run, sign_format=sign_format)
        sgd(model).step()
        finish()
    assert sign_maps.read(rank / "step0" / "w.npy").shape == (99,)
    assert np.load(rank / "step0" / "w.npy")["bits"].size == 13
    GradComparator.compare_distributed(tmp_path / "plain", tmp_path / "packed", tmp_path / "out")
    assert "summary,1.0" in (tmp_path / "out" / "rank0" / "similarities.csv").read_text()


def test_steps_are_calls_of_the_optimizer(monitor: Monitor) -> None:
    model = nn.Linear(3, 1)
    rank, optimizer = monitor(model), sgd(model)
    for batch in range(6):
        model(torch.ones(1, 3)).sum().backward()
        if batch % 3 == 2:
            optimizer.step()
    assert sorted(path.name for path in rank.glob("*.csv")) == ["grad_summary_0.csv", "grad_summary_1.csv"]


def test_the_calls_of_two_optimizers_are_counted_apart(monitor: Monitor) -> None:
    model = model_of(a=parameter(1.0), b=parameter(2.0))
    rank = monitor(model)
    first, second = torch.optim.SGD([model.a], lr=0.1), torch.optim.Adam([model.b])
    for _ in range(2):
        first.step()
        second.step()
    first.step()
    assert [names(rank, step) for step in range(3)] == [["a", "b"], ["a", "b"], ["a"]]


def test_optimizers_of_other_models_are_not_counted(monitor: Monitor) -> None:
    model, other = model_of(w=parameter(1.0)), model_of(w=parameter(2.0))
    rank = monitor(model)
    for one in (other, other, model):
        sgd(one).step()
    assert [path.name for path in rank.glob("*.csv")] == ["grad_summary_0.csv"]
    assert table(rank)[0]["max"] == "1.0"


def test_an_optimizer_within_another_is_not_counted_again(monitor: Monitor) -> None:
    class Outer(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            inner.step()

    model = model_of(a=parameter(1.0), b=parameter(2.0))
    rank = monitor(model)
    inner, outer = torch.optim.SGD([model.a], lr=0.1), Outer(model.parameters(), lr=0.1)
    outer.step()
    outer.step()
    assert [names(rank, step) for step in range(2)] == [["a", "b"], ["a", "b"]]
    assert not (rank / "grad_summary_2.csv").exists()


def test_an_optimizer_that_takes_anothers_place_counts_on(monitor: Monitor) -> None:
    model = model_of(w=parameter(1.0))
    rank = monitor(model)
    for _ in range(2):
        sgd(model).step()
    assert sorted(path.name for path in rank.glob("*.csv")) == ["grad_summary_0.csv", "grad_summary_1.csv"]


def test_an_optimizer_of_copies_counts_where_it_is_named(monitor: Monitor) -> None:
    model = model_of(w=parameter(1.0, dtype=torch.bfloat16))
    copies = torch.optim.Adam([parameter(3.0)])
    rank = monitor(model, copies)
    copies.step()
    assert table(rank)[0]["max"] == "1.0"


def test_main_grad_goes_before_grad(monitor: Monitor) -> None:
    model = model_of(a=parameter(1.0), b=parameter(2.0))
    model.a.main_grad, model.b.main_grad = torch.tensor([5.0]), None  # type: ignore[attr-defined, union-attr]
    rank = monitor(model)
    sgd(model).step()
    assert [row["max"] for row in table(rank)] == ["5.0", "2.0"]


def test_parameters_without_a_gradient_or_not_asked_for_are_left_out(monitor: Monitor) -> None:
    model = model_of(a=parameter(1.0), b=parameter(1.0), c=nn.Parameter(torch.ones(1)))
    rank = monitor(model, param_list=["b", "c"])
    sgd(model).step()
    assert names(rank) == ["b"]


def test_only_the_listed_steps_are_written(monitor: Monitor) -> None:
    model = model_of(w=parameter(1.0))
    rank, optimizer = monitor(model, step=[1, "3-4"]), sgd(model)
    for _ in range(4):
        optimizer.step()
    assert sorted(path.name for path in rank.glob("*.csv")) == ["grad_summary_1.csv", "grad_summary_3.csv"]


def test_a_resumed_training_goes_on_with_its_step(monitor: Monitor) -> None:
    model = model_of(w=parameter(1.0))
    rank = monitor(model)
    PrecisionDebugger.set_init_step(7)
    sgd(model).step()
    assert names(rank, 7) == ["w"]


def test_the_norm_of_half_precision_does_not_overflow(monitor: Monitor) -> None:
    model = model_of(w=parameter(6e4, 6e4, dtype=torch.float16))
    rank = monitor(model)
    sgd(model).step()
    assert float(table(rank)[0]["norm"]) == pytest.approx(np.hypot(6e4, 6e4), rel=1e-3)


def test_a_sparse_gradient_is_told_as_the_dense_one(monitor: Monitor) -> None:
    model = nn.Embedding(5, 2, sparse=True)
    rank = monitor(model)
    model(torch.tensor([1, 1])).sum().backward()
    sgd(model).step()
    assert (table(rank)[0]["max"], table(rank)[0]["shape"]) == ("2.0", "[5, 2]")
    assert np.load(rank / "step0" / "weight.npy").tolist() == [[False] * 2, [True] * 2, *[[False] * 2] * 3]


def test_training_computes_the_same_bits(monitor: Monitor) -> None:
    def trained() -> list[Any]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 1))
        optimizer = torch.optim.Adam(model.parameters())
        if is_monitored:
            monitor(model, grad_level="L2")
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
        return [one.tolist() for one in model.parameters()]

    is_monitored = False
    plain = trained()
    is_monitored = True
    assert trained() == plain


def test_a_folder_that_cannot_be_written_is_told_once_and_the_training_goes_on(
    monitor: Monitor, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "run").write_text("in the way")
    model = model_of(w=parameter(1.0))
    monitor(model)
    optimizer = sgd(model)
    for _ in range(2):
        optimizer.step()
    assert model.w.item() == pytest.approx(-0.2)
    assert caplog.text.count("gradients of a step are not written") == 1


def test_a_step_that_a_full_disk_cuts_off_has_no_summary(monitor: Monitor, caplog: pytest.LogCaptureFixture) -> None:
    model = model_of(w=parameter(1.0))
    rank, optimizer = monitor(model), sgd(model)
    (rank / "step0").mkdir(parents=True)
    (rank / "step0" / ".part").symlink_to("/dev/full")
    optimizer.step()
    assert [path.name for path in rank.rglob("*")] == ["step0"]
    assert "gradients of a step are not written: [Errno 28] No space left on device" in caplog.text
    optimizer.step()
    assert names(rank, 1) == ["w"]


def test_a_gradient_that_cannot_be_looked_at_costs_itself(monitor: Monitor, caplog: pytest.LogCaptureFixture) -> None:
    model = model_of(a=parameter(1.0), z=nn.Parameter(torch.zeros(1, dtype=torch.complex64)))
    model.z.grad = torch.ones(1, dtype=torch.complex64)
    rank = monitor(model)
    sgd(model).step()
    assert names(rank) == ["a"]
    assert "the gradient of z cannot be looked at: torch.strided of torch.complex64" in caplog.text


def test_a_parameters_name_does_not_leave_the_folder(monitor: Monitor, tmp_path: Path) -> None:
    model = nn.Module()
    model.add_module(f"{tmp_path}/out", model_of(w=parameter(1.0)))
    rank = monitor(model)
    sgd(model).step()
    assert [path.name for path in (rank / "step0").iterdir()] == [f"{tmp_path}/out.w.npy".replace("/", "%2F")]
    assert names(rank) == [f"{tmp_path}/out.w"]


def test_a_former_run_is_overwritten_step_by_step_and_said_to_be(
    monitor: Monitor, caplog: pytest.LogCaptureFixture
) -> None:
    for value in (1.0, 2.0):
        model = model_of(w=parameter(value))
        rank = monitor(model)
        sgd(model).step()
        finish()
    assert [row["max"] for row in table(rank)] == ["2.0"]
    assert "holds 1 steps of a former run" in caplog.text


def test_names_in_param_list_that_the_model_lacks_are_told(monitor: Monitor, caplog: pytest.LogCaptureFixture) -> None:
    monitor(nn.Linear(1, 1), param_list=["weight", "wieght"])
    assert "names no parameters of this model, which has names such as weight: wieght" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (([nn.Linear(1, 1)],), r"model is .*; allowed: a torch\.nn\.Module"),
        ((nn.Linear(1, 1), "adam"), r"optimizer is 'adam'; allowed: a torch\.optim\.Optimizer"),
    ],
)
def test_what_is_no_model_or_optimizer_is_named(monitor: Monitor, arguments: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        monitor(*arguments)


def test_a_second_model_is_refused(monitor: Monitor) -> None:
    monitor(nn.Linear(1, 1))
    with pytest.raises(ConfigError, match=r"one model; put several into one torch\.nn\.ModuleList"):
        PrecisionDebugger.monitor(nn.Linear(1, 1))


def test_starting_stopping_and_saving_change_nothing(monitor: Monitor, caplog: pytest.LogCaptureFixture) -> None:
    model = model_of(w=parameter(1.0))
    rank = monitor(model)
    PrecisionDebugger.start(model)
    PrecisionDebugger.save(torch.ones(1), "x")
    sgd(model).step()
    PrecisionDebugger.stop()
    PrecisionDebugger.step()
    assert names(rank) == ["w"]
    assert "save() records nothing with task grad_probe" in caplog.text


def test_the_end_says_what_was_written(monitor: Monitor, capsys: pytest.CaptureFixture[str]) -> None:
    model = model_of(w=parameter(1.0))
    rank = monitor(model)
    sgd(model).step()
    finish()
    assert capsys.readouterr().err == f"msprobe_hooks: gradients of 1 optimizer steps are in {rank}\n"


@pytest.mark.parametrize(
    ("trained", "section", "text"),
    [
        (
            nn.Linear(1, 1),
            {},
            "no optimizer that holds parameters of the monitored model was called (1 calls of others)",
        ),
        (None, {"step": [5]}, "this rank or these steps are not among those asked for"),
    ],
    ids=["other model", "other steps"],
)
def test_the_end_says_why_nothing_was_written(
    monitor: Monitor, capsys: pytest.CaptureFixture[str], trained: nn.Module | None, section: Any, text: str
) -> None:
    model = nn.Linear(1, 1)
    monitor(model, **section)
    sgd(trained or model).step()
    finish()
    assert text in capsys.readouterr().err
    assert not logging.getLogger("msprobe_hooks").disabled
