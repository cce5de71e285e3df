"""Links to processes that do not do what they should."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pytest_msprobe.engine.replay.calls.remote_calls import LinkError
from pytest_msprobe.errors import DeviceError
from pytest_msprobe.extensions.remote.messages import Backward, Gradients
from pytest_msprobe.extensions.remote.remote_device import RemoteDevice
from pytest_msprobe.results.outcomes import Breakdown
from tests.support.hosts.elsewhere import process_elsewhere


@pytest.fixture
def elsewhere(tmp_path: Path) -> Callable[..., RemoteDevice]:
    return partial(process_elsewhere, tmp_path)


def activated(device: RemoteDevice) -> RemoteDevice:
    assert device.count() == 2
    device.activate(1)
    return device


def ask(device: RemoteDevice) -> Any:
    return device.ask(Backward({}), Gradients, limit=100)


def test_a_card_is_described_with_what_is_installed_there(elsewhere: Callable[..., RemoteDevice]) -> None:
    device = activated(elsewhere("ask()"))
    assert device.describe().startswith("a card (remote:popen//")
    assert device.describe().endswith("pytest-msprobe 9.9 there)")
    assert device.hardware == "cuda"


@pytest.mark.parametrize(
    ("statements", "problem"),
    [
        ("os.write(1, b'hello')", "sent a frame b'h'"),
        ("os.write(1, b'M\\0\\0\\0\\1\\xc1')", "sent a message that cannot be read"),
        ("send(Cards(1))", "sent Cards where Gradients was due"),
        ("frames.send(msgspec.msgpack.encode({'type': 'gradients', 'found': 1, 'tensors': []}))", "cannot be read"),
        ("frames.send(msgspec.msgpack.encode({'type': 'eval'}))", "an answer that cannot be read"),
        ("send(Gradients({}, []), bytes(101))", "sent 101 bytes of tensors where 100 are possible"),
    ],
)
def test_a_wrong_answer_ends_the_link(elsewhere: Callable[..., RemoteDevice], statements: str, problem: str) -> None:
    device = activated(elsewhere(f"ask()\n{statements}\ntime.sleep(60)"))
    with pytest.raises(LinkError, match=problem) as error:
        ask(device)
    assert error.value.breakdown is Breakdown.ERROR
    assert "; the link was closed" in str(error.value)


def test_a_process_that_dies_is_reported_with_its_last_words(elsewhere: Callable[..., RemoteDevice]) -> None:
    device = activated(elsewhere("ask()\nsys.exit('no more memory')"))
    with pytest.raises(LinkError, match=r"this machine ended with status 1 in this record: no more memory") as error:
        ask(device)
    assert error.value.breakdown is Breakdown.CRASH


def test_a_slow_link_is_given_up(elsewhere: Callable[..., RemoteDevice]) -> None:
    device = activated(elsewhere("ask()\ntime.sleep(60)", "timeout=2"))
    with pytest.raises(LinkError, match=r"gave no answer within 2 s, the limit of //timeout=") as error:
        ask(device)
    assert error.value.breakdown is Breakdown.TIMEOUT


def test_a_lost_link_is_opened_again_with_the_same_card(elsewhere: Callable[..., RemoteDevice]) -> None:
    device = activated(elsewhere("ask()\nif not starts: sys.exit()\nsend(Gradients({}, []))\nask()"))
    with pytest.raises(LinkError):
        ask(device)
    answer, blobs = ask(device)
    assert (answer, blobs) == (Gradients({}, []), [])


def test_a_link_that_cannot_be_opened_again_is_not_tried_a_third_time(
    elsewhere: Callable[..., RemoteDevice], tmp_path: Path
) -> None:
    device = activated(elsewhere("if starts: sys.exit('gone')\nask()"))
    (tmp_path / "process.py").write_text("import sys; open('started', 'a').write('x'); sys.exit('gone')")
    with pytest.raises(LinkError):
        ask(device)
    for _ in range(2):
        with pytest.raises(LinkError, match=r"could not be opened again: .*gone"):
            ask(device)
    assert (tmp_path / "started").read_text() == "xx"


def test_torch_has_to_be_there(elsewhere: Callable[..., RemoteDevice]) -> None:
    device = elsewhere("send(Greeting(PROTOCOL, '0.1.0', 'Python 3.9'))", greets=False)
    with pytest.raises(DeviceError, match=r"Python 3\.9 there has no torch; install it, or name another"):
        device.count()


def test_another_protocol_is_reported_with_both_versions(elsewhere: Callable[..., RemoteDevice]) -> None:
    device = elsewhere("send(Greeting(PROTOCOL + 1, '7.0', 'Python 3', '2'))", greets=False)
    with pytest.raises(DeviceError, match=r"pytest-msprobe 7\.0 there uses another protocol than \S+ here"):
        device.count()


@pytest.mark.parametrize(
    ("python", "problem"),
    [
        ("/nowhere/python", "/nowhere/python: No such file or directory"),
        ("echo Welcome!", "in place of a greeting it printed b'Welcome!"),
        (f"{sys.executable} -S", "no Python with pytest-msprobe .*No module named"),
        ("sh -c 'exit 127'", "no Python with pytest-msprobe"),
        ("sh -c 'kill -9 $$'", r"Python ended before it answered \(status -9\)"),
    ],
)
def test_a_wrong_python_is_one_clear_line(python: str, problem: str) -> None:
    with pytest.raises(DeviceError, match=problem) as error:
        RemoteDevice(f"popen//python={python}").count()
    assert "\n" not in str(error.value)


def test_a_host_that_cannot_be_reached_is_one_clear_line() -> None:
    with pytest.raises(DeviceError, match=r"-p 1 127\.0\.0\.1 cannot be reached: .*refused; ssh must connect without"):
        RemoteDevice("ssh=-p 1 127.0.0.1").count()


def test_a_device_without_a_place_says_how_one_is_named() -> None:
    with pytest.raises(DeviceError, match="needs a place: remote:ssh=user@host"):
        RemoteDevice().count()
