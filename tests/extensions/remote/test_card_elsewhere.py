"""A card elsewhere as a baseline and as a target."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.conftests import device_after_each_call
from tests.support.hosts.sshd import Host, ssh_host
from tests.support.runs import Checked, check

Json = dict[str, Any]

HOW = pytest.mark.parametrize(
    "how",
    [
        pytest.param([], id="alone"),
        pytest.param(["-n", "2"], id="workers", marks=pytest.mark.nightly),
        pytest.param(["--msprobe-isolate"], id="isolated", marks=pytest.mark.nightly),
    ],
)

# What goes wrong, and how much, a file next to the process says: here and elsewhere it is another one.
FAULTS = """
words = open("fault").read().split() if os.path.exists("fault") else ["none", "0"]
if record == "Functional.linear.0.forward":
    if words[0] == "noise":
        state = torch.Generator().manual_seed(7)
        result.data.mul_(1 + float(words[1]) * 2**-24 * torch.randn(result.shape, generator=state))
    elif words[0] == "die":
        os._exit(int(words[1]))
    elif words[0] == "tell":
        open("told", "w").close()
        time.sleep(60)
    elif words[0] == "sleep":
        time.sleep(float(words[1]))
elif words[0] == "break" and record == "probe":
    raise RuntimeError("the card is gone")
elif words[0] == "break" and record == "Functional.softmax.0.forward":
    raise RuntimeError("an illegal address")
"""
LINEAR, SOFTMAX, BACKWARD = (
    "Functional.linear.0.forward",
    "Functional.softmax.0.forward",
    "Functional.linear.0.backward",
)


@pytest.fixture
def run(
    pytester: pytest.Pytester,
    element: Callable[..., Json],
    forward: Callable[..., Json],
    write_dump: Callable[..., Path],
) -> Callable[..., Checked]:
    """Check a product and a softmax, with a fault here and another one elsewhere."""
    there = pytester.path / "there"
    there.mkdir()
    for place in (pytester.path / "conftest.py", there / "planted.py"):
        place.write_text(device_after_each_call(FAULTS))
    # The floor is so low that every rounding asks for the baseline.
    (pytester.path / "strict.yaml").write_text("rules: [{standard: benchmark, limits: {floor: 0.0001}}]")
    x, weight = element(64, 32, requires_grad=True), element(16, 32, requires_grad=True)
    out = element(64, 16)
    write_dump(
        {
            LINEAR: forward(x, weight, output=[out]),
            SOFTMAX: forward(x, dim={"type": "int", "value": -1}),
            BACKWARD: {"input": [out], "output": [x, weight]},
        }
    )

    def checked(*arguments: str, here: str = "none 0", elsewhere: str = "none 0", **options: Any) -> Checked:
        (pytester.path / "fault").write_text(here)
        (there / "fault").write_text(elsewhere)
        return check(pytester, "--msprobe-dump=dump.json", *arguments, **options)

    return checked


def place(pytester: pytest.Pytester, *keys: str, host: str = "popen") -> str:
    return "//".join([f"remote:{host}", f"chdir={pytester.path / 'there'}", "plugin=planted", "device=faulty", *keys])


def with_baseline(pytester: pytest.Pytester, *keys: str, host: str = "popen") -> list[str]:
    return ["--msprobe-device=faulty", f"--msprobe-baseline={place(pytester, *keys, host=host)}"]


def test_a_card_is_judged_by_the_errors_of_a_card_elsewhere(
    run: Callable[..., Checked], pytester: pytest.Pytester
) -> None:
    alike = run(*with_baseline(pytester), here="noise 200", elsewhere="noise 200")
    assert alike.outcomes == dict.fromkeys([LINEAR, SOFTMAX, BACKWARD], "passed")
    assert "msprobe: baseline remote:popen//" in alike.output
    assert ", baseline simulated card 0 of 8 on " in alike.output


@pytest.mark.slow
def test_a_precise_card_elsewhere_is_no_excuse(run: Callable[..., Checked], pytester: pytest.Pytester) -> None:
    assert run(*with_baseline(pytester), here="noise 200", elsewhere="none 0").wrong == {LINEAR}
    assert run(*with_baseline(pytester), here="noise 2000", elsewhere="noise 200").wrong == {LINEAR}


@pytest.mark.slow
def test_a_lost_link_costs_its_record_the_baseline_and_no_other(
    run: Callable[..., Checked], pytester: pytest.Pytester
) -> None:
    judged = run(*with_baseline(pytester), "--msprobe-policy=strict.yaml", "-rs", elsewhere="die 3")
    assert judged.outcomes == {LINEAR: "skipped", SOFTMAX: "passed", BACKWARD: "skipped"}
    assert "1 skipped: recorded numbers that this depends on are missing" not in judged.output
    assert "2 skipped: recorded numbers that this depends on are missing" in judged.output
    assert "as the link to this machine ended with status 3 in this record" in judged.cases[LINEAR].text


@pytest.mark.nightly
@pytest.mark.slow
def test_a_slow_link_costs_the_same_and_hides_no_failure(
    run: Callable[..., Checked], pytester: pytest.Pytester
) -> None:
    judged = run(
        *with_baseline(pytester, "timeout=12"), "--msprobe-timeout=10", here="noise 100000", elsewhere="sleep 600"
    )
    assert judged.wrong == {LINEAR}
    assert "judged by the same-dtype CPU result, as the link to this machine gave no answer" in judged.output
    assert judged.outcomes[SOFTMAX] == "passed"


@pytest.mark.nightly
@pytest.mark.slow
@HOW
def test_a_card_elsewhere_is_checked(run: Callable[..., Checked], pytester: pytest.Pytester, how: list[str]) -> None:
    device = f"--msprobe-device={place(pytester)}"
    wrong = run(device, *how, elsewhere="noise 2000", apart=True)
    assert wrong.wrong == {LINEAR}
    assert place(pytester) in wrong.output, "the command that runs it again"
    dead = run(device, *how, elsewhere="die 3", apart=True)
    assert dead.wrong - {BACKWARD} == {LINEAR}
    assert "ended with status 3 in this record" in dead.output


@pytest.mark.slow
def test_a_card_elsewhere_that_breaks_is_replaced(run: Callable[..., Checked], pytester: pytest.Pytester) -> None:
    device = f"--msprobe-device={place(pytester)}"
    broken = run(device, elsewhere="break 0")
    assert broken.outcomes == {LINEAR: "passed", SOFTMAX: "failed", BACKWARD: "passed"}
    assert "an illegal address" in broken.output


@pytest.mark.slow
def test_the_precision_fixture_says_that_functions_cannot_travel(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import torch\ndef test_it(precision):\n    precision.check(torch.exp, torch.ones(2))\n")
    judged = check(pytester, "--msprobe-device=remote:popen//device=cpu")
    assert "runs recorded calls only; a function of this process cannot be sent" in judged.output


@pytest.mark.slow
def test_a_run_that_ends_leaves_no_process_elsewhere(
    run: Callable[..., Checked], pytester: pytest.Pytester, tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    run(*with_baseline(pytester, f"env:MARKER={marker}"), apart=True)
    left = []
    for process in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            left += [process] if str(marker).encode() in process.read_bytes() else []
    assert left == []


@pytest.mark.slow
@HOW
def test_over_ssh_it_is_the_same(run: Callable[..., Checked], pytester: pytest.Pytester, how: list[str]) -> None:
    with ssh_host(pytester.path, "gpuhost") as host:
        options = with_baseline(pytester, host=host.spec())
        judged = run(*options, *how, here="noise 200", elsewhere="noise 200", apart=True)
        assert judged.outcomes == dict.fromkeys([LINEAR, SOFTMAX, BACKWARD], "passed")
        target = run(f"--msprobe-device={place(pytester, host=host.spec())}", *how, elsewhere="noise 2000", apart=True)
        assert target.wrong == {LINEAR}


def lose_once_there_is(host: Host, file: Path) -> None:
    give_up = time.monotonic() + 300
    while not file.exists() and time.monotonic() < give_up:
        time.sleep(0.02)
    host.lose()


@pytest.mark.slow
def test_a_host_that_disappears_costs_the_records_their_baseline(
    run: Callable[..., Checked], pytester: pytest.Pytester
) -> None:
    with ssh_host(pytester.path, "gpuhost") as host:
        losing = threading.Thread(target=lose_once_there_is, args=(host, pytester.path / "there" / "told"))
        losing.start()
        judged = run(*with_baseline(pytester, host=host.spec()), "--msprobe-policy=strict.yaml", elsewhere="tell 0")
        losing.join()
    assert judged.outcomes == dict.fromkeys([LINEAR, SOFTMAX, BACKWARD], "skipped")
    assert "the link to gpuhost ended with status 255 in this record" in judged.cases[LINEAR].text
    assert "could not be opened again" in judged.cases[BACKWARD].text


@pytest.mark.slow
def test_a_host_that_lacks_python_torch_or_a_way_in_ends_the_run_with_one_line(
    run: Callable[..., Checked], pytester: pytest.Pytester
) -> None:
    with ssh_host(pytester.path, "gpuhost") as host:
        nowhere = run(*with_baseline(pytester, host=host.spec(python="/no/python")))
        assert "gpuhost: no Python with pytest-msprobe" in nowhere.output + nowhere.errors
        loud = run(*with_baseline(pytester, host=host.spec(python="echo Welcome!; python3")))
        assert "in place of a greeting it printed b'Welcome!" in loud.output + loud.errors
        key = pytester.path / "gpuhost" / "user_key"
        key.unlink()
        locked = run(*with_baseline(pytester, host=host.spec()))
        assert "gpuhost cannot be reached: " in locked.output + locked.errors
        assert "Permission denied" in locked.output + locked.errors
        assert locked.exit_code == 4 or locked.exit_code == nowhere.exit_code == loud.exit_code != 0
