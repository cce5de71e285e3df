"""What ``TrainerMon`` does not take, in its configuration and as arguments, and what it does not follow."""

from __future__ import annotations

import pytest
from torch import nn

from msprobe_hooks import ConfigError, TrainerMon


@pytest.mark.parametrize(
    ("keys", "reported"),
    [
        ({"wgrad": True}, "unknown key 'wgrad'; known: alert, all_xy"),
        ({"wg_distribution": 1}, "wg_distribution is 1; allowed: true or false"),
        ({"ops": "norm"}, "ops is 'norm'; allowed: a list of norm"),
        ({"ops": ["median"]}, "ops is 'median'; allowed: norm"),
        ({"step_interval": 0}, "step_interval is 0; allowed: an integer >= 1"),
        ({"ndigits": 21}, "ndigits is 21; allowed: an integer from 1 to 20"),
        ({"format": "xlsx"}, "format is 'xlsx'; allowed: csv, parquet"),
        ({"module_ranks": [-1]}, "module_ranks is -1; allowed: an integer >= 0"),
        ({"append_output": ["Dec03_21-34-40"]}, "append_output is .* allowed: the first and the last time"),
        ({"append_output": ["Dec03_21-34-40", "Dec02_21-34-40"]}, "append_output is .* allowed: the first"),
        ({"alert": {"rules": [{"name": "x"}]}}, "alert.rules is .* allowed: a list of objects"),
        ({"alert": []}, "alert is .* allowed: an object with the keys rules, dump"),
        ({"cc_distribution": {"cc": 1}}, "cc_distribution has no key 'cc'; known: cc_codeline"),
        ({"cc_distribution": {"cc_codeline": ["("]}}, "cc_codeline is .* allowed: a list of regular expressions"),
    ],
)
def test_a_wrong_key_is_reported_with_what_is_allowed(config, keys, reported):
    with pytest.raises(ConfigError, match=reported):
        TrainerMon(config(**keys))


def test_keys_that_are_not_followed_are_reported(config, caplog):
    TrainerMon(config(recording_l2_features=True, append_output=[], sa_order="s,b,h,d"))
    reported = [record.message.split(": ", 1)[1] for record in caplog.records]
    assert reported == [
        "recording_l2_features is ignored: spectral and attention features are not recorded",
        "sa_order is ignored: spectral and attention features are not recorded",
    ]


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        ({}, r"set_monitor\(\) needs optimizer=: the optimizer whose steps"),
        ({"optimizer": object(), "grad_acc_steps": 0}, "grad_acc_steps is 0; allowed: an integer >= 1"),
        ({"optimizer": object(), "groups": 1}, r"set_monitor\(\) has no argument 'groups'; did you mean 'tp_group'\?"),
    ],
)
def test_wrong_arguments_are_reported(config, arguments, reported):
    with pytest.raises(ConfigError, match=reported):
        TrainerMon(config()).set_monitor(nn.Linear(1, 1), **arguments)
