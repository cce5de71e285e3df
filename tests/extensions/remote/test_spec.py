"""What ``remote:SPEC`` names."""

from __future__ import annotations

import shlex
import sys

import pytest

from pytest_msprobe.devices.registry import DeviceRegistry, parse_device
from pytest_msprobe.errors import DeviceError
from pytest_msprobe.extensions.remote.link import DEFAULT_SECONDS, MODULE, parse_spec


def test_a_host_is_reached_by_ssh_without_compression_and_without_questions() -> None:
    spec = parse_spec("ssh=-p 22 user@host//ssh_config=/etc/mine//python=/opt/py/bin/python//device=cuda//timeout=5")
    assert spec.command() == [
        "ssh", "-T", "-o", "BatchMode=yes", "-F", "/etc/mine", "-p", "22", "user@host",
        f"/opt/py/bin/python -m {MODULE}",
    ]  # fmt: skip
    assert (spec.device, spec.seconds, spec.local_environment()) == ("cuda", 5.0, None)


def test_folder_and_environment_reach_the_host_whatever_their_names_hold() -> None:
    spec = parse_spec("ssh=host//chdir=/a b/c//env:NAME=it's")
    words = shlex.split(spec.command()[-1])
    assert words == ["cd", "/a b/c", "&&", "env", "NAME=it's", "python3", "-m", MODULE]


def test_a_process_on_this_machine_runs_this_python_unless_another_is_named() -> None:
    assert parse_spec("popen").command() == [sys.executable, "-m", MODULE]
    assert parse_spec("popen//python=env -i python3").command() == ["env", "-i", "python3", "-m", MODULE]
    spec = parse_spec("popen//env:ONE=1")
    environment = spec.local_environment()
    assert environment is not None
    assert environment["ONE"] == "1"
    assert environment["PATH"]
    assert (spec.device, spec.seconds) == ("auto", DEFAULT_SECONDS)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "unknown key ''"),
        ("gpuhost", "unknown key 'gpuhost'; known are popen, ssh"),
        ("socket=1.2.3.4:8888", "unknown key 'socket'"),
        ("ssh=", "expected ssh=VALUE"),
        ("popen=1", "expected popen alone"),
        ("python=py", "either ssh=HOST or popen"),
        ("popen//ssh=host", "either ssh=HOST or popen"),
        ("ssh=a//ssh=b", "'ssh' is repeated"),
        ("popen//timeout=soon", "timeout=soon: expected a positive number"),
        ("popen//timeout=nan", "timeout=nan: expected a positive number"),
        ("popen//inputs=guessed", "inputs=guessed: expected sent or drawn"),
        ('ssh="host', 'ssh="host: No closing quotation'),
        ("popen//python='python3", "python='python3: No closing quotation"),
        ("popen//env:=1", "'env:' is not the name of a variable"),
        ("ssh=host//env:A;touch b=1", "'env:A;touch b' is not the name of a variable"),
        ("popen//device=remote:popen", "cannot be remote itself"),
    ],
)
def test_anything_else_is_refused_with_what_is_allowed(text: str, problem: str) -> None:
    with pytest.raises(DeviceError, match=problem) as error:
        parse_spec(text)
    assert "as in remote:ssh=user@host" in str(error.value)


def test_cards_follow_the_spec() -> None:
    choice = parse_device("remote:ssh=host//device=npu:0-2", DeviceRegistry())
    assert (choice.name, choice.indices) == ("remote:ssh=host//device=npu", (0, 1, 2))
    assert parse_device("remote:popen//env:A=b", DeviceRegistry()).name == "remote:popen//env:A=b"
