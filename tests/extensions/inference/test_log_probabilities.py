"""Log probabilities of an engine and its trainer as items: what explains them, KL, and importance weights."""

from __future__ import annotations

import json
import math
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pytest_msprobe.extensions.inference.log_probabilities import LogProbabilities, measured_kl
from tests.support.browser.pages import page_data
from tests.support.dumps.served_model import SCHEDULE, SEQUENCES, make_engine, make_trainer, serve, train


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train(make_trainer(), tmp_path_factory.mktemp("train"))


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    """Return an engine's recording with log probabilities of its own logits."""
    return serve(make_engine(make_trainer()), tmp_path_factory.mktemp("serve"), temperature=1.0)


def noted(folder, change):
    """Change what an engine noted: a function of each request's values by position, None where there is none."""
    paths = sorted(folder.glob("step*/rank/tokens.jsonl"))
    passes = [json.loads(path.read_text()) for path in paths]
    values = {one: [None] * len(tokens) for one, tokens in enumerate(SEQUENCES)}
    for batch, one_pass in zip(SCHEDULE, passes, strict=True):
        left = iter(one_pass["logprobs"])
        for request, first, count in batch:
            values[request][first : first + count] = [next(left) for _ in range(count)]
    values = {request: change(list(own)) for request, own in values.items()}
    for path, batch, one_pass in zip(paths, SCHEDULE, passes, strict=True):
        one_pass["logprobs"] = [values[one][at] for one, first, count in batch for at in range(first, first + count)]
        path.write_text(json.dumps(one_pass) + "\n")
    return folder


@pytest.fixture
def found(compare, tmp_path, trained):
    def run(target, *arguments):
        path = tmp_path / "found.json"
        result = compare(target, trained, "--msprobe-json", path, *arguments)
        return json.loads(path.read_text())["log_probabilities"], result

    return run


def test_losses_are_recognised_and_named_by_the_failing_item(found, tmp_path, healthy):
    copy = noted(shutil.copytree(healthy, tmp_path / "copy"), lambda own: [None if x is None else -x for x in own])
    json_found, result = found(copy)
    (cause,) = json_found["causes"]
    assert cause["words"] == "losses, with the sign changed"
    assert cause["basis"] == "its own logits"
    line = (
        "  the log probabilities that the target noted are those of its own logits as losses, with the sign changed *"
    )
    result.stdout.fnmatch_lines([line])


def test_processed_values_against_raw_ones_are_said_to_be_that(compare, tmp_path, healthy):
    processed = serve(make_engine(make_trainer()), tmp_path / "processed", temperature=2.0)
    line = "the log probabilities that the target noted are those of its own logits as with temperature 2 (*; those "
    line += "of the golden run are of its logits as they are: processed against raw"
    compare(processed, healthy, "--msprobe-match", "inference").stdout.fnmatch_lines([line])


def test_runs_that_noted_values_with_one_cause_agree(compare, tmp_path):
    runs = [serve(make_engine(make_trainer()), tmp_path / name, temperature=2.0) for name in ("a", "b")]
    result = compare(*runs, "--msprobe-match", "inference")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["both runs noted log probabilities of processed logits, with temperature 2"])


def test_values_that_nothing_explains_are_said_not_to_be_those_of_the_logits(found, tmp_path, healthy):
    numbers = iter([-0.3, -2.9, -1.1, -0.6, -3.3, -0.2, -1.7])
    copy = noted(
        shutil.copytree(healthy, tmp_path / "copy"), lambda own: [None if x is None else next(numbers) for x in own]
    )
    json_found, result = found(copy)
    assert json_found["causes"] == []
    result.stdout.fnmatch_lines(
        ["the log probabilities that the target noted are not those of its own logits (5 of 5 *"]
    )


def test_logits_of_one_run_that_are_scaled_are_recognised_without_notes(found, tmp_path, trained):
    scaled = serve(make_engine(make_trainer()), tmp_path / "scaled")
    for path in scaled.glob("step*/rank/dump_tensor_data/*lm_head*forward.0.output*"):
        torch.save(torch.load(path, weights_only=True) / 3, path)
    for path in scaled.glob("step*/rank/dump_tensor_data/*logits_processor*forward.0.output*"):
        torch.save(torch.load(path, weights_only=True) / 3, path)
    json_found, result = found(scaled)
    result.stdout.fnmatch_lines(
        ["the log probabilities by the target's logits are those of the golden run's logits as with temperature 3 (*"]
    )
    assert [cause["words"] for cause in json_found["causes"]] == ["with temperature 3"]


def test_kl_and_weights_are_items_with_numbers_of_their_own(found, tmp_path, healthy):
    json_found, result = found(noted(shutil.copytree(healthy, tmp_path / "copy"), lambda own: own))
    assert result.ret == 0
    ratios = [1.0] * 5
    assert json_found["mean_weight"] == pytest.approx(np.mean(ratios), abs=1e-5)
    assert json_found["effective_share"] == pytest.approx(1, abs=1e-5)
    assert json_found["k2"] == pytest.approx(0, abs=1e-9)
    result.stdout.fnmatch_lines(["    KL of engine and trainer by k1 *", "    importance weights of tokens *"])


def test_far_weights_fail_as_items_of_their_own(found, tmp_path, healthy):
    shifts = iter([0.9, -1.2, 0.8, -0.7, 1.1])
    copy = noted(
        shutil.copytree(healthy, tmp_path / "copy"),
        lambda own: [None if x is None else x - next(shifts) for x in own],
    )
    json_found, result = found(copy)
    drawn = [0.9, -1.2, 0.8, -0.7, 1.1]
    weights = [math.exp(shift) for shift in drawn]
    assert json_found["greatest_weight"] == pytest.approx(max(weights), rel=1e-5)
    assert json_found["effective_share"] == pytest.approx(
        sum(weights) ** 2 / (5 * sum(weight**2 for weight in weights)), rel=1e-5
    )
    assert json_found["k3"] == pytest.approx(sum(math.exp(x) - 1 - x for x in drawn) / 5, rel=1e-5)
    assert {one["tokens"] for one in json_found["requests"]} <= {1, 2, 3, 4}
    names = {line.split("::")[1].split(" ")[0] for line in result.outlines if line.startswith("FAILED")}
    assert names == {"log_probabilities", "log_probabilities.kl", "log_probabilities.weights"}


def test_the_page_has_the_clip_for_its_weights(compare, tmp_path, healthy, trained):
    compare(healthy, trained, "--msprobe-html", "page.html", "-omsprobe_clip=0.1")
    assert page_data(tmp_path / "page.html")["tokens"]["clip"] == 0.1


@settings(max_examples=50, deadline=None)
@given(arrays(np.float64, st.integers(1, 12), elements=st.floats(0.8, 1.2)))
def test_kl_and_weights_are_within_their_limits_where_no_token_is_clipped(ratios):
    own = LogProbabilities(np.arange(len(ratios)), np.zeros(len(ratios)), np.log(ratios), np.empty(0), "", 0)
    assert measured_kl(own, 0.2).is_within
    assert own.effective_share >= 1 - 0.2**2 - 1e-12


def test_vocabularies_of_other_sizes_are_compared_each_by_its_own_logits(found, tmp_path, trained):
    padded = serve(make_engine(make_trainer()), tmp_path / "padded")
    for step in padded.glob("step*/rank"):
        dump = json.loads((step / "dump.json").read_text())
        for record in dump["data"].values():
            for element in record.get("output", []):
                if isinstance(element, dict) and element.get("shape", [0])[-1] == 32:
                    path = step / "dump_tensor_data" / element["data_name"]
                    logits = torch.load(path, weights_only=True)
                    torch.save(torch.cat([logits, torch.zeros(len(logits), 16)], dim=1), path)
                    element["shape"][-1] = 48
        (step / "dump.json").write_text(json.dumps(dump))
    json_found, _ = found(padded)
    assert json_found["source"] == "each from its own logits, of 48 and 32 columns"
    (cause,) = json_found["causes"]
    assert cause["words"] == "with 16 more columns of logit 0, as a padded vocabulary has"
