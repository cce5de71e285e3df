"""``pytest --help`` shows our options by job."""

from __future__ import annotations

import re

import pytest

#: Groups of the core, each with one of its options; extensions have groups of their own between them.
JOBS = {
    "what to check": "--msprobe-dump",
    "how to check": "--msprobe-policy",
    "devices and workers": "--msprobe-device",
    "results and reports": "--msprobe-html",
    "journal and resume": "--msprobe-resume",
    "compare": "--msprobe-compare",
    "record": "--msprobe-record",
}


def test_the_help_groups_options_by_job_in_the_order_of_the_work(pytester: pytest.Pytester) -> None:
    text = pytester.runpytest_inprocess("--help").stdout.str()
    groups = dict(re.findall(r"^msprobe: (.+):\n((?:  .*\n)+)", text, re.MULTILINE))
    assert [job for job in groups if job in JOBS] == list(JOBS)
    assert [job for job, option in JOBS.items() if f"  {option}" not in groups[job]] == []
    options = re.compile(r"^  --msprobe-[\w-]+", re.MULTILINE)
    assert options.findall("".join(groups.values())) == options.findall(text)


def test_the_surface_is_small_and_no_setting_is_both_an_option_and_a_key(pytester: pytest.Pytester) -> None:
    text = pytester.runpytest_inprocess("--help").stdout.str()
    options = set(re.findall(r"^  --(msprobe-[\w-]+)", text, re.MULTILINE))
    keys = set(re.findall(r"^  (msprobe_\w+) \(", text, re.MULTILINE))
    assert len(options) <= 49
    assert {"msprobe_dumps", "msprobe_fuzzy", "msprobe_history"} <= keys
    assert keys.isdisjoint(option.replace("-", "_") for option in options)
