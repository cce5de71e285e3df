"""Which call of one run is which call of the other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from msprobe_hooks.dump.reader import read_dump
from pytest_msprobe.modes.compare.matching import match_records
from pytest_msprobe.modes.compare.matching.matches import MatchingRules
from tests.support.dumps.dump_files import write_dump


def partners(target: Any, golden: Any, rules: MatchingRules = MatchingRules()) -> dict[str | None, str | None]:  # noqa: B008
    return {match.target: match.golden for match in match_records(target, golden, rules).matches if match.target}


def unmatched(target: Any, golden: Any, rules: MatchingRules = MatchingRules()) -> list[str | None]:  # noqa: B008
    return [match.golden for match in match_records(target, golden, rules).matches if match.target is None]


def test_equal_names_are_partners(runs: Any, call: Any, tensor: Any) -> None:
    records = {"Torch.relu.0.forward": call(tensor(2)), "Torch.relu.0.backward": {"input": [], "output": []}}
    assert partners(*runs.dumps(records, records)) == {name: name for name in records}


def test_spellings_of_one_operation_are_equal(runs: Any, call: Any, tensor: Any) -> None:
    target, golden = {"Tensor.__add__.0.forward": call(tensor(2))}, {"Tensor.add.0.forward": call(tensor(2))}
    assert partners(*runs.dumps(target, golden)) == {"Tensor.__add__.0.forward": "Tensor.add.0.forward"}


def test_two_spellings_with_one_number_in_one_dump_have_a_partner_each(runs: Any, call: Any, tensor: Any) -> None:
    records = {"Tensor.__add__.0.forward": call(tensor(2)), "Tensor.add.0.forward": call(tensor(2))}
    assert partners(*runs.dumps(records, records)) == {name: name for name in records}


def test_calls_of_either_side_alone_are_kept_in_their_place(runs: Any, call: Any, tensor: Any) -> None:
    target = {"Torch.a.0.forward": call(tensor(2)), "Torch.c.0.forward": call(tensor(2))}
    golden = {"Torch.a.0.forward": call(tensor(2)), "Torch.b.0.forward": call(tensor(2))}
    matches = match_records(*runs.dumps(target, golden)).matches
    assert [(match.target, match.golden) for match in matches] == [
        ("Torch.a.0.forward", "Torch.a.0.forward"),
        (None, "Torch.b.0.forward"),
        ("Torch.c.0.forward", None),
    ]


def linears(call: Any, tensor: Any, *sizes: int) -> Any:
    """Return calls of one API, forward and backward, on vectors of these sizes."""
    records = {f"Functional.linear.{i}.forward": call(tensor(size)) for i, size in enumerate(sizes)}
    return records | {
        f"Functional.linear.{i}.backward": {"input": [tensor(size)], "output": [tensor(size)]}
        for i, size in enumerate(sizes)
    }


def numbers(matches: dict[str | None, str | None]) -> dict[str, list[int]]:
    """Return by direction, for each call of one API in order, the number of its partner."""
    return {
        direction: [int((other or "").split(".")[2]) for name, other in matches.items() if name and direction in name]
        for direction in ("forward", "backward")
    }


def test_calls_of_other_shapes_that_swap_places_are_paired_by_shape(runs: Any, call: Any, tensor: Any) -> None:
    dumps = runs.dumps(linears(call, tensor, 3, 5, 3, 8), linears(call, tensor, 5, 3, 8, 3))
    assert numbers(partners(*dumps)) == {"forward": [1, 0, 3, 2], "backward": [1, 0, 3, 2]}


def test_in_a_module_as_well_and_in_each_for_itself(runs: Any, call: Any, tensor: Any) -> None:
    modules = [f"Module.{name}.Block.forward.0" for name in "aabb"]
    for side in ("target", "golden"):
        dump = runs.write(side, linears(call, tensor, *((3, 5, 5, 3) if side == "target" else (5, 3, 5, 3))))
        assert dump.exists()
        runs.construct(side, {f"Functional.linear.{i}.forward": module for i, module in enumerate(modules)})
    dumps = [read_dump(runs.folder / side / "dump.json") for side in ("target", "golden")]
    assert numbers(partners(*dumps))["forward"] == [1, 0, 2, 3]


def test_calls_whose_shapes_are_others_keep_their_numbers(runs: Any, call: Any, tensor: Any) -> None:
    dumps = runs.dumps(linears(call, tensor, 4, 6), linears(call, tensor, 2, 4))
    assert numbers(partners(*dumps))["forward"] == [0, 1]


def test_fuzzy_matching_passes_over_an_added_call(runs: Any, call: Any, tensor: Any) -> None:
    sizes = [3, 5, 7, 5, 9]
    golden = {f"Torch.mm.{i}.forward": call(tensor(size)) for i, size in enumerate(sizes)}
    target = {f"Torch.mm.{i}.forward": call(tensor(size)) for i, size in enumerate([3, 4, *sizes[1:]])}
    found = partners(*runs.dumps(target, golden), MatchingRules(fuzzy=True))
    assert found == {
        "Torch.mm.0.forward": "Torch.mm.0.forward",
        "Torch.mm.1.forward": None,
        "Torch.mm.2.forward": "Torch.mm.1.forward",
        "Torch.mm.3.forward": "Torch.mm.2.forward",
        "Torch.mm.4.forward": "Torch.mm.3.forward",
        "Torch.mm.5.forward": "Torch.mm.4.forward",
    }


def test_fuzzy_matching_takes_half_for_float(runs: Any, call: Any, tensor: Any) -> None:
    golden = {"Torch.mm.0.forward": call(tensor(4))}
    target = {"Torch.mm.7.forward": call(tensor(4, dtype="torch.bfloat16"))}
    assert partners(*runs.dumps(target, golden), MatchingRules(fuzzy=True)) == {
        "Torch.mm.7.forward": "Torch.mm.0.forward"
    }


def test_a_backward_record_goes_with_its_forward_record(runs: Any, call: Any, tensor: Any) -> None:
    golden = {"Torch.mm.0.forward": call(tensor(3)), "Torch.mm.0.backward": {"input": [], "output": []}}
    target = {"Torch.mm.4.forward": call(tensor(3)), "Torch.mm.4.backward": {"input": [], "output": []}}
    assert (
        partners(*runs.dumps(target, golden), MatchingRules(fuzzy=True))["Torch.mm.4.backward"] == "Torch.mm.0.backward"
    )


def test_calls_in_another_order_are_found_by_their_weights(runs: Any, call: Any, tensor: Any) -> None:
    x, gate, up = tensor(4), tensor(4, 4, at=0.3), tensor(4, 4, at=0.7)
    golden = {"Functional.linear.0.forward": call(x, gate), "Functional.linear.1.forward": call(x, up)}
    target = {"Functional.linear.0.forward": call(x, up), "Functional.linear.1.forward": call(x, gate)}
    assert partners(*runs.dumps(target, golden)) == {
        "Functional.linear.0.forward": "Functional.linear.1.forward",
        "Functional.linear.1.forward": "Functional.linear.0.forward",
    }


def test_a_wrong_value_moves_no_call(runs: Any, call: Any, tensor: Any) -> None:
    golden = {f"Functional.linear.{i}.forward": call(tensor(4, at=i + 1.0)) for i in range(3)}
    target = {**golden, "Functional.linear.1.forward": call(tensor(4, at=9.0))}
    assert partners(*runs.dumps(target, golden)) == {name: name for name in golden}


def test_recomputed_calls_shift_no_other(runs: Any, call: Any, tensor: Any) -> None:
    golden = {f"Torch.mm.{i}.forward": call(tensor(i + 2)) for i in range(3)}
    again = call(tensor(3)) | {"is_recompute": True}
    target = {
        "Torch.mm.0.forward": call(tensor(2)),
        "Torch.mm.1.forward": call(tensor(3)),
        "Torch.mm.2.forward": again,
        "Torch.mm.3.forward": call(tensor(4)),
    }
    found = partners(*runs.dumps(target, golden))
    assert found["Torch.mm.3.forward"] == "Torch.mm.2.forward"
    assert found["Torch.mm.2.forward"] is None


def test_gradients_of_recomputed_calls_are_paired_by_their_order(runs: Any, call: Any, tensor: Any) -> None:
    gradient = {"input": [tensor(2)], "output": [tensor(2)]}
    golden = {"Torch.mm.0.forward": call(tensor(2)), "Torch.mm.0.backward": gradient}
    target = {
        "Torch.mm.0.forward": call(tensor(2)),
        "Torch.mm.1.forward": call(tensor(2)) | {"is_recompute": True},
        "Torch.mm.1.backward": gradient,
    }
    assert partners(*runs.dumps(target, golden))["Torch.mm.1.backward"] == "Torch.mm.0.backward"


def test_calls_are_counted_within_their_module(runs: Any, call: Any, tensor: Any) -> None:
    golden = {"Torch.mm.0.forward": call(tensor(2)), "Torch.mm.1.forward": call(tensor(2))}
    target = {"Torch.mm.0.forward": call(tensor(2)), "Torch.mm.1.forward": call(tensor(2))}
    dumps = runs.dumps(target, golden)
    runs.construct(
        "target", {"Torch.mm.0.forward": "Module.b.M.forward.0", "Torch.mm.1.forward": "Module.a.M.forward.0"}
    )
    runs.construct(
        "golden", {"Torch.mm.0.forward": "Module.a.M.forward.0", "Torch.mm.1.forward": "Module.b.M.forward.0"}
    )
    assert partners(*dumps) == {
        "Torch.mm.0.forward": "Torch.mm.1.forward",
        "Torch.mm.1.forward": "Torch.mm.0.forward",
    }


def test_a_renamed_layer_is_found_by_its_structure(runs: Any, call: Any, tensor: Any) -> None:
    def records(layer: str) -> dict[str, Any]:
        return {
            f"Module.h.{layer}.act.ReLU.forward.0": call(tensor(2)),
            f"Module.h.{layer}.MLP.forward.0": call(tensor(3)),
            f"Module.h.{layer}.MLP.backward.0": {"input": [tensor(3)], "output": [tensor(3)]},
        }

    matching = match_records(*runs.dumps(records("ffn"), records("mlp")))
    assert all(match.partner == "structure" for match in matching.matches)
    assert matching.renamed == {"h.ffn": "h.mlp"}


def test_layers_of_another_structure_are_not_taken_for_renamed(runs: Any, call: Any, tensor: Any) -> None:
    golden, target = {"Module.a.M.forward.0": call(tensor(2))}, {"Module.b.M.forward.0": call(tensor(3))}
    assert partners(*runs.dumps(target, golden)) == {"Module.b.M.forward.0": None}
    assert unmatched(*runs.dumps(target, golden)) == ["Module.a.M.forward.0"]


def test_names_can_be_translated_before_they_are_matched(runs: Any, call: Any, tensor: Any) -> None:
    target, golden = {"Mint.relu.0.forward": call(tensor(2))}, {"Torch.relu.0.forward": call(tensor(2))}
    rules = MatchingRules(translate=lambda name: name.replace("Mint.", "Torch."))
    assert partners(*runs.dumps(target, golden), rules) == {"Mint.relu.0.forward": "Torch.relu.0.forward"}


def _truths(real_runs: Path) -> list[dict[str, Any]]:
    truths: list[dict[str, Any]] = json.loads((real_runs / "ground_truth.json").read_text())
    return truths


@pytest.mark.parametrize("fuzzy", [False, True])
def test_every_real_call_that_moved_is_found(real_runs: Path, fuzzy: bool) -> None:
    for truth in _truths(real_runs):
        folder = real_runs / truth["pair"]
        target, golden = (read_dump(folder / name / "dump.json") for name in (truth["variant"], "base"))
        matching = match_records(target, golden, MatchingRules(fuzzy=fuzzy))
        found = {match.golden: match.target for match in matching.matches}
        assert None not in found
        assert {name: found[name] for name in truth["moved"]} == truth["moved"]
        if truth["renamed"]:
            assert matching.renamed == {truth["renamed"][1]: truth["renamed"][0]}


def test_a_call_in_a_module_is_not_paired_by_its_number_with_one_outside(
    tmp_path: Path, call: Any, tensor: Any
) -> None:
    module, inner, outer = "Module.mlp.MLP.forward.0", "Tensor.clone.0.forward", "Tensor.clone.1.forward"
    ours = {inner: call(tensor(4, 2)), module: call(tensor(4, 2)), outer: call(tensor(1))}
    theirs = {module: call(tensor(4, 2)), inner: call(tensor(1))}
    target = write_dump(tmp_path / "ours", ours, level="mix", parents={inner: module, module: None, outer: None})
    golden = write_dump(tmp_path / "theirs", theirs, level="mix", parents={module: None, inner: None})
    assert partners(read_dump(target), read_dump(golden)) == {inner: None, module: module, outer: inner}
