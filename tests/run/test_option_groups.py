"""``pytest --help`` shows our options by job."""

from __future__ import annotations

import re

import pytest

JOBS = {
    "what to check": "--msprobe-dump",
    "how to check": "--msprobe-policy",
    "devices and workers": "--msprobe-device",
    "results and reports": "--msprobe-html",
    "journal and resume": "--msprobe-resume",
    "compare": "--msprobe-compare",
    "overflow": "msprobe_overflow_level",
    "monitor": "msprobe_monitor_dtype",
    "communication": "--msprobe-communication",
    "environment": "--msprobe-environment",
    "checkpoint": "msprobe_checkpoint_limit",
    "record": "--msprobe-record",
}


def test_the_help_groups_options_by_job_in_the_order_of_the_work(pytester: pytest.Pytester) -> None:
    text = pytester.runpytest_inprocess("--help").stdout.str()
    groups = dict(re.findall(r"^msprobe: (.+):\n((?:  .*\n)+)", text, re.MULTILINE))
    assert list(groups) == list(JOBS)
    assert [job for job, option in JOBS.items() if f"  {option}" not in groups[job]] == []
    options = re.compile(r"^  --msprobe-[\w-]+", re.MULTILINE)
    assert options.findall("".join(groups.values())) == options.findall(text)
