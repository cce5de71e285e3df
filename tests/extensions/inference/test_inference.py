"""A training compared with an engine that serves its model: packed, in chunks, fused, and with planted faults."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch

from tests.support.browser.pages import page_data
from tests.support.dumps.served_model import SCHEDULE, SEQUENCES, Trainer, make_engine, make_trainer, serve, train


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train(make_trainer(), tmp_path_factory.mktemp("train"))


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    return serve(make_engine(make_trainer()), tmp_path_factory.mktemp("serve"))


@pytest.fixture
def found(compare, tmp_path, trained):
    """Compare the trainer with what an engine recorded, and return what the JSON has of it and the run's result."""

    def run(serving, *arguments):
        path = tmp_path / "found.json"
        result = compare(serving, trained, "--msprobe-json", path, *arguments)
        return json.loads(path.read_text()), result

    return run


def test_an_engine_and_its_trainer_agree_for_every_token(found, served):
    json_found, result = found(served)
    assert result.ret == 0
    assert json_found["tokens"] == {
        "compared": sum(map(len, SEQUENCES)), "requests": ["0", "1"], "target_only": 0, "golden_only": 0,
    }  # fmt: skip
    names = {value["name"] for value in json_found["values"] if value["outcome"] == "pass"}
    layer = [
        "input_layernorm.input", "input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
        "self_attn.o_proj.input", "self_attn.o_proj", "self_attn", "post_attention_layernorm.input",
        "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj.input", "mlp.down_proj", "mlp",
    ]  # fmt: skip
    wanted = {f"layers.{number}.{name}" for number in (0, 1) for name in layer}
    assert names == wanted | {"embed_tokens", "layers.0", "layers.1", "norm.input", "norm", "lm_head"}


def test_log_probabilities_are_those_of_the_logits(found, served, trained):
    json_found, _ = found(served)
    folder = trained / "step0/rank/dump_tensor_data"
    logits = torch.load(folder / "Module.lm_head.Linear.forward.0.output.0.pt", weights_only=True).double()
    # The engine has logits of the last token of each request in a pass.
    ends = [(one, first + count - 1) for batch in SCHEDULE for one, first, count in batch]
    followed = [(one, at) for one, at in ends if at + 1 < len(SEQUENCES[one])]
    logs = torch.log_softmax(logits, -1)
    worst = {(each["request"], each["position"]): each["golden"] for each in json_found["log_probabilities"]["worst"]}
    assert worst == {
        (str(one), at + 1): pytest.approx(float(logs[one, at, SEQUENCES[one][at + 1]]), abs=1e-9)
        for one, at in followed
    }
    assert json_found["log_probabilities"]["clipped_share"] == 0


def _scaled(engine):
    engine.model.layers[1].self_attn.scale *= 1.1


def _stale(engine):
    engine.model.layers[1].mlp.down_proj.weight.data *= 1.02


def _other_epsilon(engine):
    norm = engine.model.layers[0].post_attention_layernorm
    norm.weight = torch.nn.Parameter(norm.weight.detach() + 0.01)


@pytest.mark.parametrize(
    ("plant", "first"),
    [
        (_scaled, "layers.1.self_attn.o_proj.input"),
        (_stale, "layers.1.mlp.down_proj"),
        (_other_epsilon, "layers.0.post_attention_layernorm"),
    ],
)
def test_the_first_module_with_a_planted_fault_is_named(found, tmp_path, plant, first):
    engine = make_engine(make_trainer())
    plant(engine)
    json_found, result = found(serve(engine, tmp_path / "serve"))
    assert json_found["first_module"] == first
    result.stdout.fnmatch_lines([f"first module that differs: {first} (*"])


def test_weights_that_differ_already_come_first(found, tmp_path):
    engine = make_engine(make_trainer())
    qkv = engine.model.layers[1].self_attn.qkv_proj.weight
    qkv.data[16:24] += 0.01
    json_found, result = found(serve(engine, tmp_path / "serve"))
    assert json_found["weights_that_differ"] == ["layers.1.self_attn.k_proj.weight"]
    result.stdout.fnmatch_lines(
        ["weights differ already, 1 of 20 parameters*: layers.1.self_attn.k_proj.weight (*", "first module*k_proj*"]
    )


def test_a_fault_of_decoded_tokens_alone_is_said_to_be_one(found, tmp_path, served):
    broken = tmp_path / "serve"
    shutil.copytree(served, broken)
    name = "dump_tensor_data/Module.model.layers.0.self_attn.o_proj.Linear.forward.0.input.0.pt"
    for step in (2, 3):
        path = broken / f"step{step}/rank" / name
        torch.save(torch.load(path, weights_only=True) * 1.5, path)
    json_found, _ = found(broken)
    assert json_found["first_module"] == "layers.0.self_attn.o_proj.input"
    (value,) = [each for each in json_found["values"] if each["name"] == "layers.0.self_attn.o_proj.input"]
    # One token of the second pass was computed alone, too.
    assert value["wrong_tokens"] == 3
    assert value["worst_token"] in [{"request": "1", "position": 5}, {"request": "0", "position": 4},
                                    {"request": "1", "position": 6}]  # fmt: skip
    assert value["scaled_error"] == pytest.approx(0.5, rel=1e-5)
    assert "is the golden one times a factor of its own (1.5 to 1.5)" in value["reasons"][0]


def test_shares_of_ranks_are_put_together(found, tmp_path, served):
    shared = tmp_path / "serve"
    for step in range(len(SCHEDULE)):
        for rank in (0, 1):
            folder = shared / f"step{step}/rank{rank}"
            shutil.copytree(served / f"step{step}/rank", folder)
            _split(folder, rank)
    json_found, result = found(shared)
    assert result.ret == 0
    assert {value["outcome"] for value in json_found["values"]} == {"pass"}


def _split(folder, rank):
    """Leave a rank its share: heads of queries, keys and values, columns of gate and up, what their products take."""
    dump = json.loads((folder / "dump.json").read_text())
    for name, record in dump["data"].items():
        record["parameters"] = {}
        if "qkv_proj" in name:
            blocks = [(0, 16), (16, 24), (24, 32)]
            columns = [(a + (b - a) // 2 * rank, a + (b - a) // 2 * (rank + 1)) for a, b in blocks]
            element = record["output"][0]
        elif "gate_up_proj" in name:
            columns = [(12 * rank, 12 * rank + 12), (24 + 12 * rank, 36 + 12 * rank)]
            element = record["output"][0]
        elif "o_proj" in name or "down_proj" in name:
            half = record["input_args"][0]["shape"][1] // 2
            columns = [(half * rank, half * (rank + 1))]
            element = record["input_args"][0]
        else:
            continue
        path = folder / "dump_tensor_data" / element["data_name"]
        tensor = torch.load(path, weights_only=True)
        tensor = torch.cat([tensor[:, a:b] for a, b in columns], dim=1)
        torch.save(tensor, path)
        element["shape"] = list(tensor.shape)
    (folder / "dump.json").write_text(json.dumps(dump))


def test_one_value_runs_again_by_its_command(compare, served, trained):
    path = f"{served / 'step0/rank/dump.json'}::layers.1.self_attn.k_proj"
    compare(path, trained).assert_outcomes(passed=1)


def test_tables_and_page_have_every_value(compare, tmp_path, served, trained):
    compare(served, trained, "--msprobe-csv", "tables", "--msprobe-html", "page.html")
    (table,) = (tmp_path / "tables").glob("compare_result_*.csv")
    assert "Module.model.layers.0.self_attn.qkv_proj.Linear.forward.0" in table.read_text()
    assert "layers.1.mlp.down_proj.input" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-omsprobe_clip=2",), "*msprobe_clip '2': expected a share between 0 and 1, such as 0.2"),
        (("--msprobe-model-config", "no.json"), "*--msprobe-model-config 'no.json': no such file"),
        (
            ("--msprobe-match", "inference", "-omsprobe_fuzzy=true"),
            "*msprobe_fuzzy does not work with --msprobe-match inference; remove one of them",
        ),
    ],
)
def test_options_that_make_no_sense_are_refused_in_one_line(compare, served, trained, arguments, message):
    result = compare(served, trained, *arguments)
    assert result.ret != 0
    result.stderr.fnmatch_lines([message])


def test_statistics_are_refused_with_what_to_do(compare, tmp_path, served, trained):
    copy = tmp_path / "statistics"
    shutil.copytree(served, copy)
    for path in copy.glob("step*/rank/dump.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"task": "statistics"}))
    message = ["*task statistics keeps no rows*record both runs with task tensor at level L0 or mix*"]
    for arguments in ((), ("--msprobe-match=inference",)):
        compare(copy, trained, *arguments).stderr.fnmatch_lines(message)


def test_other_sequences_are_refused_with_what_to_do(compare, tmp_path, served, trained):
    copy = tmp_path / "other"
    shutil.copytree(served, copy)
    for path in copy.glob("step*/rank/dump_tensor_data/Module.model.embed_tokens.Embedding.forward.0.input.0.pt"):
        torch.save(torch.load(path, weights_only=True) + 20, path)
    compare(copy, trained).stderr.fnmatch_lines(["*none of its 12 tokens is one of the 12 of*"])


def test_numbers_of_the_estimators_are_schulmans():
    from pytest_msprobe.extensions.inference.log_probabilities import LogProbabilities

    own, other = np.log([0.5, 0.2, 0.1]), np.log([0.4, 0.3, 0.1])
    found = LogProbabilities(np.arange(3), own, other, np.empty(0), "", 0)
    ratios = [0.8, 1.5, 1.0]
    assert found.k1 == pytest.approx(-sum(map(np.log, ratios)) / 3)
    assert found.k3 == pytest.approx(sum(r - 1 - np.log(r) for r in ratios) / 3)
    assert found.clipped(0.25).tolist() == [False, True, False]
    assert found.worst(1).tolist() == [1]


class PositionalTrainer(Trainer):
    def forward(self, input_ids, attention_mask):
        return self.lm_head(self.model(input_ids, attention_mask))


@pytest.fixture(scope="module")
def trained_by_position(tmp_path_factory):
    model = make_trainer()
    model.__class__ = PositionalTrainer
    return train(model, tmp_path_factory.mktemp("by_position"))


def test_a_mask_that_is_passed_by_position_is_one(compare, served, trained_by_position):
    result = compare(served, trained_by_position)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["12 tokens of 2 requests in both runs"])


def test_arguments_by_position_whose_names_are_not_recorded_are_said_not_to_be_used(
    compare, tmp_path, served, trained_by_position
):
    copy = tmp_path / "unnamed"
    shutil.copytree(trained_by_position, copy)
    path = copy / "step0/rank/dump.json"
    dump = json.loads(path.read_text())
    for body in dump["data"].values():
        body.get("details", {}).pop("positional", None)
    path.write_text(json.dumps(dump))
    compare(served, copy).stdout.fnmatch_lines(
        ["golden run: Module.model.TrainerModel.forward.0 was given input.0, input.1 by position, and the dump *"]
    )


@pytest.mark.parametrize("direction", ["target", "golden run"])
def test_log_probabilities_that_one_run_noted_are_held_against_both_runs_logits(compare, tmp_path, trained, direction):
    noted = serve(make_engine(make_trainer()), tmp_path / "noted", temperature=2.0)
    sides = (noted, trained) if direction == "target" else (trained, noted)
    result = compare(*sides)
    result.stdout.fnmatch_lines(
        [
            "log probabilities: * tokens clipped *; noted by the " + direction + ", from the logits of the *",
            f"the log probabilities that the {direction} noted are those of its own logits as with temperature 2 (5 *",
        ]
    )


def test_log_probabilities_that_one_run_noted_as_its_logits_have_them_pass(found, tmp_path):
    json_found, result = found(serve(make_engine(make_trainer()), tmp_path / "noted", temperature=1.0))
    assert result.ret == 0
    assert json_found["log_probabilities"]["source"] == "noted by the target, from the logits of the golden run"
    assert json_found["log_probabilities"]["tokens"] == 5
    assert json_found["notes"] == []


def test_notes_that_contradict_what_was_recorded_are_said(found, tmp_path, served):
    copy = tmp_path / "noted"
    shutil.copytree(served, copy)
    batch = SCHEDULE[0]
    lengths = [count for _, _, count in batch]
    notes = {"requests": ["a", "b"], "lengths": lengths, "token_ids": [9] * sum(lengths)}
    (copy / "step0/rank/tokens.jsonl").write_text(json.dumps(notes) + "\n" + json.dumps(notes) + "\n")
    json_found, _ = found(copy)
    folder = copy / "step0/rank"
    assert json_found["notes"] == [
        "target: 5 noted token_ids are not those that were recorded, which are not used",
        f"target: 2 passes were noted in {folder}, and 1 recorded",
    ]


def test_a_page_of_unreadable_logits_says_why_it_has_no_tokens(compare, tmp_path, served, trained):
    copy = tmp_path / "damaged"
    shutil.copytree(trained, copy)
    (copy / "step0/rank/dump_tensor_data/Module.lm_head.Linear.forward.0.output.0.pt").write_bytes(b"garbage")
    result = compare(served, copy, "--msprobe-html", "page.html", "--msprobe-json", "found.json")
    result.stdout.fnmatch_lines(["log probabilities not compared: *lm_head.Linear.forward.0.output.0*"])
    tokens = page_data(tmp_path / "page.html")["tokens"]
    assert tokens["lines"][0].startswith("no log probabilities of tokens: ")
    assert tokens["labels"] == []
    assert json.loads((tmp_path / "found.json").read_text())["log_probabilities"] is None
