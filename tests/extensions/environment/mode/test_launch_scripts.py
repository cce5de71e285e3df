"""Hyperparameters as launch scripts, command lines and YAML say them."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_msprobe.extensions.environment.launch_scripts import of_command_line, of_script, of_text
from tests.support.trainings.started import CONFIG_YAML, RUN_SH


def test_a_launch_line_is_read_with_variables_blocks_and_arrays_put_in() -> None:
    assert of_script(RUN_SH) == {
        "nproc_per_node": "1",
        "num-layers": "1",
        "hidden-size": "16",
        "lr": "0.1",
        "bf16": True,
        "seed": "7",
    }


@pytest.mark.parametrize(
    ("script", "options"),
    [
        ("LR=1\nLR=2\ntorchrun t.py --lr $LR", {"lr": "2"}),
        ("torchrun t.py --lr ${LR:-3} --decay ${WD}", {"lr": "3", "decay": "${WD}"}),
        ("python prepare.py --seed 1\ntorchrun t.py --seed 2", {"seed": "2"}),
        ("python -m torch.distributed.launch t.py --a=b > log 2>&1 &", {"m": "torch.distributed.launch", "a": "b"}),
        ("cd x && python3 t.py --betas 0.9 0.95 --flag; echo --none", {"betas": "0.9 0.95", "flag": True}),
        ("A=$B\nB=$A\ntorchrun t.py --x $A", {"x": "$B"}),
        ("echo --lr 3", {}),
    ],
)
def test_a_script_says(script: str, options: dict[str, object]) -> None:
    assert of_script(script) == options


def test_what_is_no_script_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="No closing quotation"):
        of_script("torchrun t.py --x 'y")


def test_nested_settings_have_dotted_names() -> None:
    found = of_text("config.yaml", CONFIG_YAML)
    assert found == {"model.channels": 4, "model.kernel": [3, 3], "train.batch_size": 8, "train.hub_token": "deadbeef"}
    with pytest.raises(ValueError, match="not valid YAML at line 2"):
        of_text("config.yml", "{")


@given(
    st.dictionaries(
        st.from_regex(r"[a-z][a-z_-]{0,8}[a-z]", fullmatch=True), st.from_regex(r"[^-\0\s][^\0]{0,12}", fullmatch=True)
    )
)
def test_a_command_line_says_what_was_put_into_it(options: dict[str, str]) -> None:
    options = {name: value for name, value in options.items() if not value.endswith(".py")}
    line = shlex.join(word for name, value in options.items() for word in (f"--{name}", value))
    assert of_command_line(line) == options


def test_variables_that_stand_for_ever_more_are_refused() -> None:
    script = "A=1234567890\n"
    script += "".join(f'{after}="{f"${before} " * 40}"\n' for before, after in zip("ABCDEF", "BCDEFG", strict=True))
    with pytest.raises(ValueError, match="expand to more than 1 MiB"):
        of_script(f"{script}torchrun t.py --x $G")
