"""What is checked, what is left out, and what is kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

import msprobe_hooks
import pytest_msprobe
from msprobe_hooks import ConfigError
from pytest_msprobe.commands.main import main
from pytest_msprobe.errors import JournalError
from pytest_msprobe.extensions.live_checks.judge import may_consume_rng
from pytest_msprobe.journal import read_journal
from pytest_msprobe.modes.check.saved_case import find_cases
from pytest_msprobe.run.item import PrecisionWarning
from tests.support.browser.pages import page_data
from tests.support.dumps.faulty_calls import Changed
from tests.support.hosts.disks import files_of_at_most


def test_calls_that_are_alike_are_checked_as_often_as_asked() -> None:
    with pytest_msprobe.live(per_api=2) as checks:
        for size in (3, 3, 3, 3, 4):
            torch.ones(size, dtype=torch.float64).exp()
    assert checks.counts["pass"] == 3
    assert checks.left_out == {"like 2 that were checked (per_api)": 2}


def test_calls_to_another_dtype_and_under_autocast_are_not_alike() -> None:
    x = torch.ones(3, 3)
    with pytest_msprobe.live(per_api=1, apis=["to", "linear"]) as checks:
        for dtype in (torch.float16, torch.bfloat16):
            x.to(dtype)
        F.linear(x, x)
        with torch.autocast("cpu", torch.bfloat16):
            F.linear(x, x)
    assert checks.counts == {"pass": 4}


def test_a_sample_is_about_as_large_as_asked_and_the_same_each_time() -> None:
    counts = []
    for _ in range(2):
        with pytest_msprobe.live(sample=0.25, per_api=None, apis=["exp"]) as checks:
            for _ in range(100):
                torch.ones(1).exp()
        counts.append(checks.counts["pass"])
    assert counts[0] == counts[1]
    assert 10 <= counts[0] <= 40


def test_only_what_is_asked_for_is_checked() -> None:
    with pytest_msprobe.live(apis=["exp", "sin"], exclude=["sin"]) as checks:
        torch.ones(3).exp().sin().cos()
    assert (checks.counts["pass"], checks.left_out.total()) == (1, 2)


def test_calls_that_cannot_be_replayed_are_counted_by_reason() -> None:
    with pytest_msprobe.live() as checks, torch.inference_mode():
        torch.func.vmap(torch.sin)(torch.ones(2, 2))
        torch.ones(2).cos().add_(1)
    assert checks.left_out == {"inside a transform of torch.func": 1, "may write to a tensor of inference mode": 1}


class Wrapped(torch.Tensor):
    """A class of the user's own, as that of sharded weights is."""


def test_a_parameter_of_another_class_is_not_judged_as_a_tensor() -> None:
    weight = torch.nn.Parameter(torch.ones(3).as_subclass(Wrapped))
    with pytest_msprobe.live() as checks:
        weight.sin()
    assert checks.left_out == {"takes a Wrapped": 1}


def test_a_call_that_raises_is_counted_and_its_error_passes() -> None:
    with pytest_msprobe.live() as checks, pytest.raises(RuntimeError, match="multiplied"):
        torch.matmul(torch.ones(2, 3), torch.ones(2, 3))
    assert checks.left_out == {"the call raised": 1}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_forked_child_may_begin_a_check_of_its_own() -> None:
    with pytest_msprobe.live() as checks:
        child = os.fork()
        if not child:
            status = 1
            try:
                with pytest_msprobe.live() as own:
                    torch.ones(2).exp()
                status = 0 if own.counts["pass"] == 1 else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        torch.ones(2).exp()
    assert checks.counts["pass"] == 1


def test_only_what_may_draw_is_taken_to_draw() -> None:
    assert all(map(may_consume_rng, ("dropout", "bernoulli_", "rand", "fractional_max_pool2d", "lstm", "mylib.noise")))
    assert not any(
        may_consume_rng(name) for name in ("matmul", "add_", "__mul__", "linalg.norm", "add.Tensor", "linear")
    )


def test_a_small_share_leaves_calls_out_for_want_of_time() -> None:
    with pytest_msprobe.live(share=0.001, per_api=None) as checks:
        for _ in range(20):
            torch.ones(3).exp()
    assert checks.left_out["no time left (share)"] >= 15


@pytest.mark.parametrize(
    ("option", "reported"),
    [
        ({"share": 0}, "share is 0; allowed: a number above 0 and up to 1"),
        ({"sample": 1.5}, "sample is 1.5; allowed"),
        ({"per_api": 0}, "per_api is 0; allowed"),
        ({"per_api": 2, "share": 0.5}, "per_api is 2; allowed: None where share is set"),
        ({"on_failure": "ignore"}, "allowed: warn, fail, stop"),
        ({"level": "L0"}, "allowed: L1, aten"),
        ({"apis": "matmul"}, "list is 'matmul'"),
        ({"waiting": "much"}, "waiting is 'much'; allowed: a size such as 500MiB"),
        ({"samples": 3}, "samples is 3; allowed: one of the options policy"),
        ({"policy": "no-such"}, "policy is 'no-such'"),
    ],
)
def test_a_wrong_option_is_refused(option: dict[str, object], reported: str) -> None:
    with pytest.raises(ConfigError, match=reported), pytest_msprobe.live(**option):
        pass


def test_a_live_check_inside_of_another_is_refused_and_the_outer_goes_on() -> None:
    with pytest_msprobe.live() as checks:
        with pytest.raises(ConfigError, match="inside of another"), pytest_msprobe.live():
            pass
        torch.ones(3).exp()
    assert checks.counts["pass"] == 1


def test_what_the_step_raises_passes_and_rows_so_far_are_kept(tmp_path: Path) -> None:
    error = KeyError("the user's own")

    def step() -> None:
        torch.ones(3).exp()
        raise error

    with pytest.raises(KeyError) as raised, pytest_msprobe.live(journal=tmp_path / "live.jsonl"):
        step()
    assert raised.value is error
    assert list(read_journal(tmp_path / "live.jsonl").entries) == ["step0/rank::Tensor.exp.0.forward"]


def test_a_journal_that_cannot_grow_ends_the_check_and_not_the_training(tmp_path: Path) -> None:
    path, done = tmp_path / "live.jsonl", []

    def training() -> None:
        with pytest_msprobe.live(journal=path, per_api=None):
            done.extend(torch.ones(3).exp() for _ in range(100))

    with files_of_at_most(3000), pytest.raises(JournalError, match=r"live\.jsonl"):
        training()
    assert len(done) == 100
    assert 1 <= len(read_journal(path).entries) < 100


def test_a_journal_of_another_run_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    path.write_text("something\n")
    with pytest.raises(JournalError, match=r"exists.*each rank needs its own"), pytest_msprobe.live(journal=path):
        pass
    assert path.read_text() == "something\n"


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_journal_says_which_calls_were_chosen_and_which_left_out(tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    with pytest_msprobe.live(journal=path, per_api=1, apis=["exp", "sin"], backward=False) as checks:
        for _ in range(3):
            torch.ones(3).exp().cos()
            checks.step()

    found = read_journal(path)

    assert found.left_out == checks.left_out == {"like 1 that were checked (per_api)": 2, "not asked for (apis)": 3}
    choice = {"apis": "exp, sin", "per_api": "1", "gradients": "no"}
    assert found.header.settings == {"mode": "live", "policy": "default"} | choice


def test_the_page_of_a_live_check_says_what_was_judged_and_what_was_not(tmp_path: Path) -> None:
    path, page = tmp_path / "live.jsonl", tmp_path / "live.html"
    with pytest_msprobe.live(journal=path, per_api=2, apis=["exp"], backward=False) as checks:
        for _ in range(3):
            torch.eye(3, out=torch.empty(3, 3)).exp()
            checks.step()

    assert main(["report", str(path), "--html", str(page)]) == 0

    data = page_data(page)
    judged, left_out = data["runs"][0]["notes"]
    assert judged == "Judged while the training ran: 2 results of 2 steps, 0 to 1."
    assert "1 like 2 that were checked (per_api)" in left_out
    assert data["words"]["dump"] == ["step0/rank", "step1/rank"]


def test_a_forked_child_leaves_the_journal_to_its_parent(tmp_path: Path) -> None:
    with pytest_msprobe.live(journal=tmp_path / "live.jsonl"):
        child = os.fork()
        if child == 0:
            torch.ones(4).sin()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        torch.ones(3).exp()
    assert list(read_journal(tmp_path / "live.jsonl").entries) == ["step0/rank::Tensor.exp.0.forward"]


def test_a_recording_and_a_live_check_see_the_same_calls_and_not_each_other(tmp_path: Path) -> None:
    with msprobe_hooks.record(tmp_path) as session, pytest_msprobe.live() as checks:
        torch.full((5,), 2.0, requires_grad=True).exp().sum().backward()
    assert session.summary.calls + session.summary.backwards == checks.counts.total()


def test_an_optimizer_that_changes_many_tensors_in_one_call_passes() -> None:
    model = torch.nn.Linear(3, 3)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    with pytest_msprobe.live() as checks:
        model(torch.randn(2, 3)).sum().backward()
        optimizer.step()
    assert checks.counts["pass"] > 0
    assert not checks.failed


def test_steps_are_distinguished(tmp_path: Path) -> None:
    with pytest_msprobe.live(journal=tmp_path / "live.jsonl") as checks:
        for _ in range(2):
            torch.ones(3).exp()
            checks.step()
    assert list(read_journal(tmp_path / "live.jsonl").entries) == [
        "step0/rank::Tensor.exp.0.forward",
        "step1/rank::Tensor.exp.0.forward",
    ]


def test_a_wrong_call_is_saved_reported_and_judged_again(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    pytest.importorskip("safetensors")
    journal, cases = tmp_path / "live.jsonl", tmp_path / "cases"
    wrong = Changed(F.softmax, lambda result: result * 1.01)
    live = pytest_msprobe.live(journal=journal, save_failures=cases)
    with wrong, pytest.warns(PrecisionWarning), live as checks:
        F.softmax(torch.arange(4.0), dim=0)
    (folder,) = find_cases(cases)
    assert checks.rerun(checks.failed[0]) == f"pytest-msprobe replay {folder}"
    assert main(["report", str(journal)]) == 0
    assert b"1 of 2 records failed" in capsysbinary.readouterr().out
    # The fault is not in this torch.
    assert main(["replay", str(folder)]) == 0
    assert b"it was fail by" in capsysbinary.readouterr().out


def test_gradients_that_are_not_judged_are_counted_by_reason() -> None:
    x = torch.ones(3, requires_grad=True)
    with pytest_msprobe.live(apis=["exp"]) as checks:
        twice, late = x.exp(), torch.exp(x)
        twice.sum().backward(retain_graph=True)
        twice.sum().backward()
        checks.step()
        late.sum().backward()
    assert checks.counts == {"pass": 3, "skip": 1}
    assert checks.never_judged == ["Torch.exp backward"]
    assert str(checks).startswith("live check: 3 pass, in ")
    reasons = ("further backward pass through the same call", "the gradients came after their step")
    assert [checks.left_out[reason] for reason in reasons] == [1, 1]


def test_gradients_that_cannot_be_looked_at_are_counted_and_the_backward_pass_goes_on() -> None:
    x = torch.ones(3, requires_grad=True)
    with pytest_msprobe.live(apis=["exp"]) as checks:
        (jacobian,) = torch.autograd.grad(x.exp(), x, torch.eye(3), is_grads_batched=True)
    assert torch.equal(jacobian, torch.eye(3) * torch.ones(3).exp())
    assert checks.counts == {"pass": 1, "skip": 1}
    assert [count for reason, count in checks.left_out.items() if "gradients of Tensor.exp" in reason] == [1]


def test_copies_wait_for_gradients_in_so_much_memory_and_the_other_gradients_are_counted() -> None:
    x = torch.ones(1000, requires_grad=True)
    # An input and an output of 4000 bytes each.
    with pytest_msprobe.live(apis=["exp"], per_api=None, waiting="12KiB") as checks:
        for _ in range(2):
            (x.exp() + x.exp()).sum().backward()
        lost = x.exp()
        del lost
        x.exp().sum().backward()
    left_out = {key: count for key, count in checks.left_out.items() if "apis" not in key}
    assert left_out == {"no memory left to wait for gradients (waiting)": 2, "no gradient came": 1}
    assert checks.counts == {"pass": 9}


def test_gradients_that_never_came_do_not_use_up_the_checks_of_those_that_come_later() -> None:
    x = torch.ones(3, requires_grad=True)
    with pytest_msprobe.live(apis=["exp"], per_api=1) as checks:
        x.exp()
        x.exp().sum().backward()
        x.exp().sum().backward()
    assert checks.counts == {"pass": 2}
    assert checks.never_judged == []


def test_copies_for_gradients_that_never_come_are_made_ever_more_rarely() -> None:
    x = torch.ones(3, requires_grad=True)
    with pytest_msprobe.live(apis=["exp"]) as checks:
        for _ in range(1000):
            x.exp()
    assert 3 <= checks.left_out["no gradient came"] <= 12


def test_the_summary_and_all_reports_name_what_was_never_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("junitparser")
    x, journal, junit = torch.ones(3, requires_grad=True), tmp_path / "live.jsonl", tmp_path / "report.xml"
    with pytest_msprobe.live(journal=journal, apis=["exp", "cosh"], per_api=1) as checks:
        x.exp()
        for size in (3, 4):
            torch.func.vmap(torch.cosh)(torch.ones(size, 2))
    assert str(checks).splitlines()[-1] == "  never judged: Tensor.exp backward, Torch.cosh forward"
    assert main(["report", str(journal), "--junit", str(junit), "--csv", str(tmp_path / "csv"), "--markdown", "-"]) == 0
    why = "no call of its kind was judged while the training ran"
    assert f"| `{why}` | 2 |" in capsys.readouterr().out
    assert junit.read_text().count(why) >= 2
    (table,) = (tmp_path / "csv").rglob("accuracy_checking_result*.csv")
    assert "Tensor.exp.0" in table.read_text()


def test_at_most_ten_of_what_was_never_judged_are_named() -> None:
    names = ("sin", "cos", "tan", "exp", "log", "sqrt", "sinh", "cosh", "tanh", "asin", "acos", "atan")
    with pytest_msprobe.live(share=1e-6) as checks:
        for name in names:
            getattr(torch, name)(torch.ones(3))
    (line,) = [line for line in str(checks).splitlines() if "never judged" in line]
    assert line.count("Torch.") == 10
    assert line.endswith(f", and {len(checks.never_judged) - 10} more")


def test_what_is_traced_is_left_out_of_live_checks():
    x = torch.ones(4, 8)
    with pytest_msprobe.live() as checks:
        torch.sigmoid(x)
        make_fx(lambda y: (torch.relu(y) * 2).sum())(x)
    assert checks.counts["pass"] == 1
    assert list(checks.left_out) == ["a compiler or tracer of torch makes the call"]
