"""Modules of a running PyTorch program get the inputs that a dump recorded for them."""

from __future__ import annotations

import gc
import json
import logging
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from msprobe_hooks import ConfigError, DumpError, FeedError, feed, record


class Pair(NamedTuple):
    left: Tensor
    right: Tensor


class Block(nn.Module):
    """Keeps what it was given at each call, apart from any hook."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.given: list[Any] = []

    def forward(self, x, scale=1.0, state=None):
        self.given.append((x.detach().clone(), scale, state))
        y = torch.tanh(self.fc(x)) * scale
        return y if state is None else y + state["pair"].left


class Model(nn.Module):
    def __init__(self, *, broken: bool = False) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.layers = nn.ModuleList(Block() for _ in range(3))
        if broken:
            self.layers[0].fc.weight.data *= 2
        self.reentrant: bool | None = None

    def forward(self, x, **options):
        for layer in self.layers:
            x = layer(x, **options) if self.reentrant is None else checkpoint(layer, x, use_reentrant=self.reentrant)
        return x


def batch(seed: int = 0, *, requires_grad: bool = False) -> Tensor:
    return torch.randn(2, 4, generator=torch.Generator().manual_seed(seed)).requires_grad_(requires_grad)


@contextmanager
def recording(folder: Path, model: nn.Module, level: str = "L0", task: str = "tensor", **options: Any) -> Iterator[Any]:
    with record(folder, level=level, task=task, model=model, **options) as session:
        yield session


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """Two micro-batches in one step, and another batch in the next."""
    model = Model()
    with recording(tmp_path / "golden", model) as session:
        model(batch(0))
        model(batch(1))
        session.step()
        model(batch(2))
    return tmp_path / "golden"


def inputs_of_last(*seeds: int) -> list[Tensor]:
    """What the last layer of the right model is given for these batches."""
    model = Model()
    return [model.layers[1](model.layers[0](batch(seed))).detach() for seed in seeds]


def given(model: Model, layer: int = 2) -> list[Tensor]:
    return [x for x, _, _ in model.layers[layer].given]


def assert_equal(found: list[Tensor], expected: list[Tensor]) -> None:
    assert len(found) == len(expected)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_each_call_of_a_named_module_gets_the_inputs_of_that_call(golden):
    model = Model(broken=True)
    with feed(golden, ["layers.2"], model=model) as fed:
        model(batch(0))
        model(batch(1))
    assert_equal(given(model), inputs_of_last(0, 1))
    assert fed.calls == {"layers.2": 2}


def test_the_tensors_of_the_last_fed_call_do_not_stay_alive(golden):
    model, passed = Model(), []
    model.layers[1].register_forward_hook(lambda _, __, output: passed.append(weakref.ref(output)))
    with feed(golden, ["layers.2"], model=model):
        model(batch(0))
    del model
    gc.collect()
    assert [reference() for reference in passed] == [None]


def test_modules_that_are_not_named_get_what_the_program_gives_them(golden):
    model, alone = Model(broken=True), Model(broken=True)
    with feed(golden, ["layers.2"], model=model):
        model(batch(0))
    alone(batch(0))
    assert_equal(given(model, 1), given(alone, 1))


def test_the_hooks_are_gone_afterwards(golden):
    model, alone = Model(broken=True), Model(broken=True)
    with feed(golden, ["layers.2"]):
        model(batch(0))
    assert torch.equal(model(batch(0)), alone(batch(0)))
    assert not model.layers[2]._forward_pre_hooks


def test_without_a_model_the_outermost_module_that_runs_is_it(golden):
    model = Model(broken=True)
    with feed(golden, ["layers.2"]) as fed:
        model(batch(0))
    assert_equal(given(model), inputs_of_last(0))
    assert fed.calls == {"layers.2": 1}


@pytest.mark.parametrize("name", ["layers.2", "layers.[12]", "*2", "Module.layers.2.Block", "Module.layers.2"])
def test_a_module_has_several_names(golden, name):
    model = Model(broken=True)
    with feed(golden, [name], model=model) as fed:
        model(batch(0))
    assert_equal(given(model), inputs_of_last(0))
    assert fed.calls["layers.2"] == 1


def test_the_name_of_one_call_feeds_that_call_alone(golden):
    model, alone = Model(broken=True), Model(broken=True)
    with feed(golden, ["Module.layers.2.Block.forward.1"], model=model) as fed:
        model(batch(0))
        model(batch(1))
    alone(batch(0))
    assert_equal(given(model), [*given(alone), *inputs_of_last(1)])
    assert not fed.is_partial


def test_inputs_follow_the_steps_of_the_recording_that_runs(golden, tmp_path):
    model = Model(broken=True)
    with feed(golden, ["layers.2"]), recording(tmp_path / "target", model) as session:
        model(batch(0))
        session.step()
        model(batch(2))
    assert_equal(given(model), inputs_of_last(0, 2))


def test_without_a_recording_the_program_counts_the_steps(golden):
    model = Model(broken=True)
    with feed(golden, ["layers.2"]) as fed:
        model(batch(0))
        fed.step()
        model(batch(2))
    assert_equal(given(model), inputs_of_last(0, 2))


def test_a_chosen_step_is_fed_whatever_step_runs(golden):
    model = Model(broken=True)
    with feed(golden, ["layers.2"], step=1):
        model(batch(2))
    assert_equal(given(model), inputs_of_last(2))


@pytest.mark.parametrize("part", ["step1", "step1/rank", "step1/rank/dump.json"])
def test_the_folder_of_a_step_is_fed_whatever_step_runs(golden, part):
    model = Model(broken=True)
    with feed(golden / part, ["layers.2"]):
        model(batch(2))
    assert_equal(given(model), inputs_of_last(2))


def test_a_single_process_reads_the_folder_that_msprobe_names_by_its_number(golden):
    for step in (0, 1):
        (golden / f"step{step}" / "rank").rename(golden / f"step{step}" / f"proc{100 + step}")
    model = Model(broken=True)
    with feed(golden, ["layers.2"]) as fed:
        model(batch(0))
        fed.step()
        model(batch(2))
    assert_equal(given(model), inputs_of_last(0, 2))


def test_a_list_of_one_model_adds_no_index_to_a_path(tmp_path):
    right, wrong = Model(), Model(broken=True)
    with recording(tmp_path / "golden", [right]):
        right(batch(0))
    with feed(tmp_path / "golden", ["layers.2"]):
        wrong(batch(0))
    assert_equal(given(wrong), inputs_of_last(0))


def test_of_two_models_with_the_same_paths_the_first_is_fed_and_the_other_named(golden):
    model, other, alone = Model(broken=True), Model(broken=True), Model(broken=True)
    with feed(golden, ["layers.2"]) as fed:
        model(batch(0))
        other(batch(1))
    alone(batch(1))
    assert_equal([*given(model), *given(other)], [*inputs_of_last(0), *given(alone)])
    assert "layers.2 of a second model; pass the model that is meant as model=" in str(fed)


def test_a_step_that_the_dump_lacks_is_named(golden):
    model = Model()
    with feed(golden, ["layers.2"]) as fed:
        for _ in range(3):
            model(batch(0))
            fed.step()
    assert f"not fed: step 2, as {golden} has step 0, 1" in str(fed)


def test_a_call_beyond_the_recorded_ones_is_named(golden):
    model = Model()
    with feed(golden, ["layers.2"]) as fed:
        for _ in range(4):
            model(batch(0))
    assert "not fed: calls of layers.2 after the 2 that were recorded (2 times)" in str(fed)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_recomputed_call_gets_the_inputs_of_its_first_time(golden, reentrant):
    model = Model(broken=True)
    model.reentrant = reentrant
    first, second = inputs_of_last(0, 1)
    with feed(golden, ["layers.2"]):
        losses = [model(batch(seed, requires_grad=True)).sum() for seed in (0, 1)]
        sum(losses).backward()
    # The backward pass goes through the later batch first.
    assert_equal(given(model), [first, second, second, first])
    right = Model()
    for x in (first, second):
        right.layers[2](x).sum().backward()
    assert torch.allclose(model.layers[2].fc.weight.grad, right.layers[2].fc.weight.grad)


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputed_micro_batches_are_distinguished_in_any_order(golden, reentrant):
    model = Model(broken=True)
    model.reentrant = reentrant
    first, second = inputs_of_last(0, 1)
    with feed(golden, ["layers.2"]):
        losses = [model(batch(seed, requires_grad=True)).sum() for seed in (0, 1)]
        for loss in losses:
            loss.backward()
    assert_equal(given(model), [first, second, first, second])


def test_recomputed_calls_of_a_dump_are_not_counted(tmp_path):
    model = Model()
    model.reentrant = False
    with recording(tmp_path / "golden", model):
        for seed in (0, 1):
            model(batch(seed, requires_grad=True)).sum().backward()
    plain = Model(broken=True)
    with feed(tmp_path / "golden", ["layers.2"]):
        plain(batch(0))
        plain(batch(1))
    assert_equal(given(plain), inputs_of_last(0, 1))


def test_gradients_pass_through_a_fed_input_unchanged(golden):
    model = Model(broken=True)
    x = batch(0, requires_grad=True)
    with feed(golden, ["layers.2"]):
        model(x).sum().backward()
    last = inputs_of_last(0)[0].requires_grad_()
    Model().layers[2](last).sum().backward()
    before = Model(broken=True)
    own = batch(0, requires_grad=True)
    before.layers[1](before.layers[0](own)).backward(last.grad)
    assert torch.equal(x.grad, own.grad)
    assert torch.equal(model.layers[0].fc.weight.grad, before.layers[0].fc.weight.grad)


def test_a_module_may_write_over_a_fed_input(golden):
    class Writing(Block):
        def forward(self, x, scale=1.0, state=None):
            return super().forward(x.mul_(1), scale, state)

    model = Model(broken=True)
    model.layers[2].__class__ = Writing
    with feed(golden, ["layers.2"]):
        model(batch(0, requires_grad=True)).sum().backward()
    assert_equal(given(model), inputs_of_last(0))


def test_tensors_in_keyword_arguments_and_containers_are_fed(tmp_path):
    def run(model: Model, value: float) -> None:
        model(batch(0), scale=0.5, state={"pair": Pair(torch.full((2, 4), value), torch.zeros(1)), "more": [1, None]})

    right, wrong = Model(), Model(broken=True)
    with recording(tmp_path / "golden", right):
        run(right, 1.0)
    with feed(tmp_path / "golden", ["layers.1"]) as fed:
        run(wrong, 2.0)
    _, scale, state = wrong.layers[1].given[0]
    assert scale == 0.5
    assert type(state["pair"]) is Pair
    assert torch.equal(state["pair"].left, torch.ones(2, 4))
    assert state["more"] == [1, None]
    assert not fed.is_partial


def test_an_argument_is_found_by_its_name_where_one_run_passes_it_by_position(tmp_path):
    right, wrong = Block(), Block()
    with recording(tmp_path / "golden", [nn.ModuleDict({"one": right})]):
        right(x=batch(0), scale=0.5)
    with feed(tmp_path / "golden", ["one"], model=nn.ModuleDict({"one": wrong})) as fed:
        wrong(batch(1), 0.5)
    assert_equal([wrong.given[0][0]], [batch(0)])
    assert not fed.is_partial


def test_a_number_that_differs_is_kept_and_named(golden, tmp_path):
    right, model = Model(), Model()
    with recording(tmp_path / "scaled", right):
        right(batch(0), scale=0.25)
    with feed(tmp_path / "scaled", ["layers.2"]) as fed:
        model(batch(0), scale=0.5)
    assert model.layers[2].given[0][1] == 0.5
    assert "not fed: layers.2 kwargs.scale is 0.5 here, and 0.25 in the dump" in str(fed)


def test_another_dtype_is_converted_to_the_one_of_the_program_and_named(golden):
    model = Model(broken=True).bfloat16()
    with feed(golden, ["layers.2"]) as fed:
        model(batch(0).bfloat16())
    assert_equal(given(model), [x.bfloat16() for x in inputs_of_last(0)])
    assert "converted: layers.2 input.0 (x) from float32 to bfloat16" in str(fed)


@pytest.mark.parametrize("options", [{}, {"tensor_files": "safetensors"}])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_narrow_dtypes_come_back_bit_by_bit(tmp_path, dtype, options):
    class Widens(nn.Module):
        def forward(self, x):
            self.given = x
            return x.float()

    model = nn.ModuleDict({"one": Widens()})
    x = batch(0).to(dtype)
    with recording(tmp_path / "golden", model, **options):
        model["one"](x)
    with feed(tmp_path / "golden", ["one"], model=model):
        model["one"](torch.zeros(2, 4).to(dtype))
    assert torch.equal(model["one"].given.view(torch.uint8), x.view(torch.uint8))


def test_another_shape_is_an_error_that_names_module_argument_and_both_shapes(golden):
    model = Model()
    with (
        feed(golden, ["layers.2"]),
        pytest.raises(FeedError, match=r"layers.2 input.0 \(x\) has the shape \(3, 4\) in this run and \(2, 4\) in "),
    ):
        model(torch.ones(3, 4))


def test_another_kind_of_dtype_is_an_error(tmp_path):
    model = nn.ModuleDict({"one": nn.Identity()})
    with recording(tmp_path / "golden", model):
        model["one"](torch.ones(2))
    with (
        feed(tmp_path / "golden", ["one"], model=model),
        pytest.raises(FeedError, match="has the dtype int64 in this run and float32"),
    ):
        model["one"](torch.ones(2, dtype=torch.int64))


@pytest.mark.parametrize(
    ("task", "options", "reason"),
    [
        ("statistics", {}, "has statistics of the inputs of .* and not their values; record with task tensor"),
        ("statistics", {"summary_mode": "md5"}, "has checksums of the inputs"),
        ("structure", {}, "recorded with task structure, which has no values"),
    ],
)
def test_a_dump_without_values_is_refused_with_the_reason(tmp_path, task, options, reason):
    model = Model()
    with recording(tmp_path / "golden", model, task=task, **options):
        model(batch(0))
    with pytest.raises(DumpError, match=reason), feed(tmp_path / "golden", ["layers.2"]):
        pass


def test_a_dump_of_calls_alone_is_refused_with_the_reason(tmp_path):
    with record(tmp_path / "golden", task="tensor"):
        torch.tanh(batch(0))
    with pytest.raises(DumpError, match="level L1, which has no inputs of modules"), feed(tmp_path / "golden", ["a"]):
        pass


def test_a_dump_of_another_framework_is_refused(golden):
    with pytest.raises(ConfigError, match="not fed from"), feed(mindspore_dump(golden), ["layers.2"]):
        pass


def mindspore_dump(golden: Path) -> Path:
    path = golden / "step0" / "rank" / "dump.json"
    path.write_text(path.read_text().replace('"framework":"pytorch"', '"framework":"mindspore"'))
    return path


def test_names_of_which_no_call_was_recorded_are_refused_with_the_likely_one(golden):
    with pytest.raises(ConfigError, match=r"no call of '2' in .*; did you mean 'layers\.2'"), feed(golden, ["2"]):
        pass


@pytest.mark.parametrize("names", [[], "layers.2", [""], [3]])
def test_names_that_are_no_list_of_texts_are_refused(golden, names):
    with pytest.raises(ConfigError, match="a list of names of modules"), feed(golden, names):
        pass


def test_modules_that_never_ran_or_are_not_in_the_dump_are_reported_at_the_end(golden, caplog):
    model = Model()
    with caplog.at_level(logging.INFO, "msprobe_hooks"), feed(golden, ["layers.1", "layers.2", "layers.7"]):
        model.layers[1](batch(0))
    (line,) = [each for each in caplog.records if "fed" in each.message]
    assert line.levelno == logging.WARNING
    assert "layers.7 is not in" in line.message
    assert "never ran, or only in compiled code: layers.1, layers.2; pass the model as model=" in line.message


def test_wrappers_add_nothing_to_a_path(golden):
    class Wrapper(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, *args):
            return self.module(*args)

    model = Model(broken=True)
    with feed(golden, ["layers.2"]) as fed:
        Wrapper(Wrapper(model))(batch(0))
    assert_equal(given(model), inputs_of_last(0))
    assert fed.calls == {"layers.2": 1}


def test_the_record_of_a_fed_call_says_where_its_inputs_came_from(golden, tmp_path, records):
    model = Model(broken=True)
    with recording(tmp_path / "target", model, level="mix"), feed(golden, ["layers.2"]):
        model(batch(0))
    found = records(tmp_path / "target")
    assert found["Module.layers.2.Block.forward.0"]["details"]["fed"] == {
        "dump": str(golden / "step0" / "rank" / "dump.json"),
        "record": "Module.layers.2.Block.forward.0",
        "places": ["input.0"],
    }
    assert [name for name, body in found.items() if "fed" in body.get("details", {})] == [
        "Module.layers.2.Block.forward.0"
    ]
    written = tmp_path / "target/step0/rank/dump_tensor_data/Module.layers.2.Block.forward.0.input.0.pt"
    assert torch.equal(torch.load(written), inputs_of_last(0)[0])


def test_a_recording_keeps_what_was_fed_and_what_it_replaced(golden, tmp_path):
    with recording(tmp_path / "target", Model(broken=True)) as session, feed(golden, ["layers.2"]) as fed:
        session.model(batch(0))
    files = tmp_path / "target/step0/rank/dump_tensor_data"
    passed = torch.load(files / "Module.layers.2.Block.forward.0.passed.input.0.pt")
    assert torch.equal(passed, torch.load(files / "Module.layers.1.Block.forward.0.output.0.pt"))
    right = inputs_of_last(0)[0]
    greatest = ((passed - right).abs().max() / right.abs().max()).item()
    assert fed.differences == {"layers.2 input.0 (x)": pytest.approx(greatest)}


def test_a_recording_keeps_the_names_of_arguments_that_were_passed_by_position(tmp_path, records):
    model = Model()
    with recording(tmp_path / "run", model):
        model.layers[0](batch(0), 2.0)
        model.layers[1](batch(0), scale=2.0)
    found = records(tmp_path / "run")
    assert found["Module.layers.0.Block.forward.0"]["details"] == {"positional": {"names": ["x", "scale"]}}
    assert "details" not in found["Module.layers.1.Block.forward.0"]


def test_feeding_adds_no_calls_to_a_recording(golden, tmp_path, records):
    for name, modules in (("fed", ["*"]), ("once", ["layers.2"])):
        model = Model()
        with recording(tmp_path / name, model, level="mix"), feed(golden, modules):
            model(batch(0, requires_grad=True)).sum().backward()
    model = Model()
    with recording(tmp_path / "plain", model, level="mix"):
        model(batch(0, requires_grad=True)).sum().backward()
    assert (
        sorted(records(tmp_path / "fed")) == sorted(records(tmp_path / "once")) == sorted(records(tmp_path / "plain"))
    )


def test_a_file_outside_of_the_dump_is_not_read(golden, tmp_path):
    path = golden / "step0" / "rank" / "dump.json"
    torch.save(torch.zeros(2, 4), tmp_path / "elsewhere.pt")
    text = path.read_text().replace("Module.layers.2.Block.forward.0.input.0.pt", "../../../../elsewhere.pt")
    path.write_text(text)
    with feed(golden, ["layers.2"]), pytest.raises(DumpError, match="leads out of it"):
        Model()(batch(0))


def test_a_file_with_a_pickled_object_is_not_read(golden):
    file = golden / "step0/rank/dump_tensor_data/Module.layers.2.Block.forward.0.input.0.pt"
    file.unlink()
    torch.save({"path": Path()}, file)
    with feed(golden, ["layers.2"]), pytest.raises(DumpError, match="not a readable tensor file"):
        Model()(batch(0))


def test_a_missing_file_is_named(golden):
    file = golden / "step0/rank/dump_tensor_data/Module.layers.2.Block.forward.0.input.0.pt"
    file.unlink()
    with feed(golden, ["layers.2"]), pytest.raises(DumpError, match=f"{file.name}: no such file"):
        Model()(batch(0))


@pytest.mark.slow
def test_compiled_code_is_left_alone_and_said_to_be(golden):
    model = Model(broken=True)
    compiled = torch.compile(model, backend="eager")
    with feed(golden, ["layers.2"], model=model) as fed:
        compiled(batch(0))
    assert "never ran, or only in compiled code: layers.2" in str(fed)


def test_a_chosen_rank_is_fed_and_without_a_choice_the_own_one_is_missed(tmp_path):
    model = Model()
    other = tmp_path / "two"
    for rank, seed in ((0, 0), (1, 1)):
        with recording(other / f"of{rank}", model):
            model(batch(seed))
        target = other / "golden" / "step0" / f"rank{rank}"
        target.parent.mkdir(parents=True, exist_ok=True)
        (other / f"of{rank}" / "step0" / "rank").rename(target)
    wrong = Model(broken=True)
    with feed(other / "golden", ["layers.2"], rank=1):
        wrong(batch(1))
    assert_equal(given(wrong), inputs_of_last(1))
    with feed(other / "golden", ["layers.2"]) as fed:
        wrong(batch(1))
    assert "has step 0 and rank 0, 1" in str(fed)


def test_the_recorded_text_is_json_that_msprobe_reads(golden, tmp_path):
    model = Model()
    with recording(tmp_path / "target", model), feed(golden, ["*"]):
        model(batch(0))
    content = json.loads((tmp_path / "target/step0/rank/dump.json").read_text())
    assert content.keys() >= {"task", "level", "framework", "dump_data_dir", "data"}
