from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.monitor.grad_probe.probe import probe_settings


def test_a_config_of_msprobe_is_followed() -> None:
    found = probe_settings(
        {
            "task": "grad_probe",
            "dump_path": "out",
            "rank": [0, "2-3"],
            "step": [],
            "level": "L1",
            "grad_probe": {"grad_level": "L2", "param_list": ["fc.weight"], "bounds": [-0.5, 0, 2]},
        }
    )
    assert (found.dump_path, found.rank, found.step) == (Path("out"), {0, 2, 3}, None)
    assert (found.grad_level, found.param_list, found.bounds) == ("L2", ("fc.weight",), (-0.5, 0, 2))


def test_what_is_left_out_is_as_msprobe_has_it() -> None:
    found = probe_settings({"task": "grad_probe"})
    assert (found.grad_level, found.param_list, found.bounds, found.sign_format) == ("L1", (), (-1, 0, 1), "bool")


def test_arguments_win_over_the_file() -> None:
    found = probe_settings({"dump_path": "out", "step": [1]}, dump_path="elsewhere", step=[2])
    assert (found.dump_path, found.step) == (Path("elsewhere"), {2})


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ({"grad_level": "L3"}, r"grad_probe\.grad_level is 'L3'; allowed: L0, L1, L2"),
        ({"grad_level": 1}, r"grad_probe\.grad_level is 1"),
        ({"param_list": "fc"}, r"grad_probe\.param_list is 'fc'; allowed: a list of names of parameters"),
        ({"param_list": [1]}, r"grad_probe\.param_list is \[1\]"),
        ({"bounds": 1}, r"grad_probe\.bounds is 1; allowed: a list of ascending numbers"),
        ({"bounds": [0, 0]}, r"grad_probe\.bounds is \[0, 0\]"),
        ({"bounds": [True]}, r"grad_probe\.bounds is True"),
        ({"bounds": [float("nan")]}, r"grad_probe\.bounds is nan"),
        ({"bounds": [2**63]}, r"grad_probe\.bounds is 9223372036854775808; allowed: .* within int64"),
        ({"sign_format": "zip"}, r"grad_probe\.sign_format is 'zip'; allowed: bool, packed"),
        ({"summary_mode": "md5"}, r"grad_probe has no key 'summary_mode'; known: bounds, grad_level"),
        (["L1"], r"grad_probe is \['L1'\]; allowed: an object"),
    ],
)
def test_a_wrong_key_is_named_with_its_value_and_what_is_allowed(section: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        probe_settings({"grad_probe": section})
