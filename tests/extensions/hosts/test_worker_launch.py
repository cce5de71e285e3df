from __future__ import annotations

import pytest
from execnet import XSpec

from pytest_msprobe.extensions.hosts.bootstrap import prefix_path
from pytest_msprobe.extensions.hosts.worker_launch import host_of
from pytest_msprobe.run.hosts import HERE

PROXIES = {"front": XSpec("ssh=cluster//id=front")}


@pytest.mark.parametrize(
    ("spec", "host"),
    [
        ("popen", HERE),
        ("popen//python=/usr/bin/python3", HERE),
        ("ssh=a//python=/opt/bin/python", "a"),
        ("ssh=user@a//chdir=/tmp", "user@a"),
        ("ssh=-p 2222 a", "-p 2222 a"),
        ("socket=a:8888", "a"),
        ("popen//via=front", "cluster"),
    ],
)
def test_a_host_is_called_as_its_specification_calls_it(spec: str, host: str) -> None:
    assert host_of(XSpec(spec), PROXIES) == host


@pytest.mark.parametrize(
    ("word", "there"),
    [
        ("/data/dump.json", "/run/files/data/dump.json"),
        (
            "--msprobe-dump=/data/dump.json::Torch.add.0",
            "--msprobe-dump=/run/files/data/dump.json::Torch.add.0",
        ),
        ("dump.json", "dump.json"),
        ("--msprobe-dump=dump.json", "--msprobe-dump=dump.json"),
        ("-k", "-k"),
        ("a=/b", "a=/b"),
    ],
)
def test_absolute_paths_lead_below_the_folder_of_files(word: str, there: str) -> None:
    assert prefix_path("/run/files", word) == there
