"""``--msprobe-mapping`` with ``data``: values of other names are pairs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Compare = Callable[..., pytest.RunResult]


def test_a_mapping_pairs_values_of_other_names(
    compare: Compare, runs: Any, call: Any, tensor: Any, tmp_path: Path
) -> None:
    target = {"Torch.mine.0.forward": call(tensor(2), tensor(3))}
    golden = {"Torch.theirs.0.forward": call(tensor(3), tensor(2))}
    mapping = tmp_path / "map.yaml"
    mapping.write_text(
        "data:\n"
        "  Torch.mine.0.forward.input.0: Torch.theirs.0.forward.input.1\n"
        "  Torch.mine.0.forward.input.1: Torch.theirs.0.forward.input.0\n"
        "  Torch.mine.0.forward.output.0: Torch.theirs.0.forward.input.1\n"
    )
    result = compare(*runs.both(target, golden), "--msprobe-mapping", str(mapping))
    # The golden output alone is left over.
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*only the golden run has this value*", "*matched by mapping*"])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "Torch.none.0.forward.input.0: Torch.mm.0.forward.input.0",
            "*no record of the target run has the value*none*",
        ),
        (
            "Torch.mm.0.forward.input.0: Torch.none.0.forward.input.0",
            "*no record of the golden run has the value*none*",
        ),
        (
            "Torch.tnah.0.forward.input.0: Torch.mm.0.forward.input.0",
            "*has the value 'Torch.tnah.0.forward.input.0'; did you mean 'Torch.tanh.0.forward'*",
        ),
        ("[1, 2]", "*not a data mapping*"),
        ("a: [", "*not valid YAML at line *"),
    ],
)
def test_a_wrong_mapping_is_one_error(
    compare: Compare, three: tuple[Path, Path], tmp_path: Path, text: str, problem: str
) -> None:
    mapping = tmp_path / "map.yaml"
    mapping.write_text(f"data: {{{text}}}" if text.startswith("Torch") else f"data: {text}")
    result = compare(*three, "--msprobe-mapping", str(mapping))
    result.stderr.fnmatch_lines([problem])
