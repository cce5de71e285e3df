"""``--msprobe-api-mapping``: a file says which arguments of two functions are each other's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.dumps.across_frameworks import call, pair_of, tensor, torch_tensor
from tests.support.dumps.dump_files import value as number

SWAPPED = """
ms_api: Mint.sub
pt_api: Torch.rsub
ms_args: [0, 1]
pt_args: [1, 0]
ms_outputs: [0]
pt_outputs: [0]
"""


@pytest.mark.parametrize("as_list", [False, True])
@pytest.mark.parametrize("spelling", ["outputs", "output"])
@pytest.mark.parametrize("frameworks", ["mindspore pytorch", "pytorch mindspore"])
def test_a_file_exchanges_arguments(tmp_path: Path, as_list: bool, spelling: str, frameworks: str) -> None:
    text = SWAPPED.replace("outputs", spelling)
    text = "- " + text.strip().replace("\n", "\n  ") if as_list else text
    ours = {"Mint.sub.0.forward": call(tensor(2, at=1), tensor(2, at=5), out=tensor(2))}
    theirs = {"Torch.rsub.0.forward": call(torch_tensor(2, at=5), torch_tensor(2, at=1), out=torch_tensor(2))}
    sides = (ours, theirs) if frameworks.startswith("mindspore") else (theirs, ours)
    pair = pair_of(tmp_path, *sides, frameworks, apis=text)
    found = pair.compare(next(iter(sides[0])))
    assert found.outcome == "pass"
    assert len(found.rows) == 3
    places = [(row.target and row.target.name[-7:], row.golden and row.golden.name[-7:]) for row in found.rows[:2]]
    assert places == [("input.0", "input.1"), ("input.1", "input.0")]


def test_the_gradients_of_exchanged_arguments_are_exchanged(tmp_path: Path) -> None:
    ours = {"Mint.sub.0.forward": call(tensor(2), tensor(2), out=tensor(2))}
    theirs = {"Torch.rsub.0.forward": call(torch_tensor(2), torch_tensor(2), out=torch_tensor(2))}
    ours |= {"Mint.sub.0.backward": {"input": [tensor(2)], "output": [tensor(2, at=7), tensor(2, at=9)]}}
    theirs |= {
        "Torch.rsub.0.backward": {"input": [torch_tensor(2)], "output": [torch_tensor(2, at=9), torch_tensor(2, at=7)]}
    }
    assert pair_of(tmp_path, ours, theirs, apis=SWAPPED).compare("Mint.sub.0.backward").outcome == "pass"


def test_an_index_is_equal_or_not_at_all(tmp_path: Path) -> None:
    ours = {"Mint.cat.0.forward": call(*(tensor(2, at=i + 1) for i in range(12)))}
    theirs = {"Torch.cat.0.forward": call(*(torch_tensor(2, at=i + 1) for i in range(12)))}
    text = "- {ms_api: Mint.cat, pt_api: Torch.cat, ms_args: [1, 0], pt_args: [1, 0]}"
    found = pair_of(tmp_path, ours, theirs, apis=text).compare("Mint.cat.0.forward")
    assert found.outcome == "pass"
    both = [row.place for row in found.rows if row.group == "input" and row.target and row.golden]
    assert both == ["input.0", "input.1"]


def test_a_keyword_is_mapped_by_its_name(tmp_path: Path) -> None:
    ours = {"Mint.sum.0.forward": call(tensor(2), axis=number(1))}
    theirs = {"Torch.sum.0.forward": call(torch_tensor(2), number(3), dim=number(2))}
    text = "- {ms_api: Mint.sum, pt_api: Torch.sum, ms_args: [0, axis], pt_args: [0, dim]}"
    found = pair_of(tmp_path, ours, theirs, apis=text).compare("Mint.sum.0.forward")
    assert [row.place for row in found.rows if row.outcome == "fail"] == ["input.axis"]
