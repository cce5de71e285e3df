"""``pytest-msprobe bisect``, on programs that it runs."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from msprobe_hooks.extensions.fix.run_plan import AT_START, VARIABLE, Plan, was_seen
from pytest_msprobe.commands.main import main
from tests.support.hosts.leaving import LEAVE

EXAMPLE = Path(__file__).parents[3] / "examples" / "one_wrong_call" / "train.py"

# The operator of the 3rd product is imprecise in float32, of two processes only in that of rank 1. There are products
# alone: to foretell what an elementwise operator returns takes PyTorch seconds of imports, in each of many processes.
FAULTY = """
import os, sys, torch
from torch.utils._python_dispatch import TorchDispatchMode

class Imprecise(TorchDispatchMode):
    products = 0
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.mm.default:
            self.products += 1
            if self.products in FAULTS and args[0].dtype is torch.float32:
                # Smooth, unlike rounding: the rounding of the calls before is not made larger by it.
                return func(*args) * 1.001
        return func(*args, **(kwargs or {}))

def train():
    torch.manual_seed(0)
    x, w = torch.randn(16, 16), torch.randn(16, 16)
    with Imprecise():
        for _ in range(3):
            x = torch.mm(x, w)
    return x[0, 0]
"""
ALONE = FAULTY.replace("FAULTS", "{3}") + "print('loss', train().item())\n"
TWICE = FAULTY.replace("FAULTS", "{2, 3}") + "print('loss', train().item())\n"
OF_ONE_RANK = (
    FAULTY.replace("FAULTS", "({3} if os.environ['RANK'] == '1' else ())")
    + """
import torch.distributed as dist
dist.init_process_group("gloo")
loss = train()
dist.all_reduce(loss)
if dist.get_rank() == 0:
    print("loss", loss.item())
dist.barrier()
dist.destroy_process_group()
status = 0
"""
    + LEAVE
)
# Programs in bfloat16 that cast back to float32, in which one product may be coarse.
CASTING = """
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

class Coarse(TorchDispatchMode):
    products = 0
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func is not torch.ops.aten.mm.default:
            return result
        self.products += 1
        return result * 1.02 if self.products == FAULT and result.dtype is torch.bfloat16 else result

def rms_norm(x):
    wide = x.to(torch.float32)
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

torch.manual_seed(0)
x, v, w = torch.randn(32, 16), torch.randn(16, 16), torch.randn(8, 16)
y = torch.randint(0, 8, (32,))
with Coarse():
    LOSS
print("loss", loss.item())
"""
CROSS_ENTROPY = CASTING.replace("LOSS", "loss = F.cross_entropy(F.linear(x.bfloat16(), w.bfloat16()).float(), y)")
RMS_NORM = CASTING.replace(
    "LOSS",
    """h = rms_norm(F.linear(x.bfloat16(), v.bfloat16()))
    loss = F.cross_entropy(F.linear(h, w.bfloat16()).type(torch.float32), y)""",
)
AUTOCAST = CASTING.replace(
    "LOSS",
    """with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = F.linear(rms_norm(F.linear(x, v)), w)
    loss = F.cross_entropy(logits.type_as(x), y)""",
)
LIBRARY = """
import torch
library = torch.library.Library("bisectlib", "DEF")
library.define("swish(Tensor x) -> Tensor")
library.impl(
    "swish",
    lambda x: x * torch.sigmoid(x) * (1.01 if x.dtype is torch.float32 else 1),
    "CompositeExplicitAutograd",
)
torch.manual_seed(0)
x = torch.randn(16, 16)
print("loss", torch.ops.bisectlib.swish(torch.mm(x, x)).double().mean().item())
"""
RANDOM = "import torch\nprint(torch.mm(torch.rand(3, 3), torch.rand(3, 3))[0, 0].item())\n"


def bisect(*words: str) -> int:
    return main(["bisect", *words])


def program(folder: Path, text: str) -> list[str]:
    path = folder / "program.py"
    path.write_text(text)
    return ["--", sys.executable, str(path)]


def started(folder: Path, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python as a bisection does."""
    Plan(to="float32").write(folder)
    variables = {**os.environ, VARIABLE: str(folder), "PYTHONPATH": str(AT_START), **environment}
    return subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)


@pytest.mark.nightly
@pytest.mark.slow
def test_a_product_of_a_training_that_is_imprecise_is_named_with_its_stack_in_few_runs(capsys):
    assert bisect("--to", "float64", "--", sys.executable, str(EXAMPLE)) == 1
    reported = capsys.readouterr().out
    assert "Functional.linear.20 moves the number" in reported
    assert "No other call is needed" in reported
    assert "return x + self.mlp(x)" in reported
    total, runs = map(int, re.search(r"of (\d+) that float64 changes; found in (\d+) runs", reported).groups())
    assert runs <= 2 * math.log2(total) + 5


@pytest.mark.slow
def test_nothing_is_found_in_an_honest_program_that_casts_its_logits_before_the_loss(tmp_path, capsys):
    assert bisect(*program(tmp_path, CROSS_ENTROPY.replace("FAULT", "0"))) == 0
    reported = capsys.readouterr().out
    assert "not move the number; --to float64 also raises" in reported


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "fault", "culprit"),
    [
        (CROSS_ENTROPY, "1", "Functional.linear.0"),
        (RMS_NORM, "1", "Functional.linear.0"),
        (AUTOCAST, "2", "Functional.linear.1"),
    ],
)
def test_the_coarse_product_of_a_program_with_casts_is_named_and_no_cast(tmp_path, capsys, text, fault, culprit):
    assert bisect(*program(tmp_path, text.replace("FAULT", fault))) == 1
    reported = capsys.readouterr().out
    assert f"{culprit} moves the number" in reported
    assert "No other call is needed, and no other call does so without it." in reported


@pytest.mark.nightly
@pytest.mark.slow
def test_an_operator_of_a_library_is_reported_with_the_option_that_finds_it(tmp_path, capsys):
    words = program(tmp_path, LIBRARY)
    bisect("--to", "float64", *words)
    assert "torch.ops.bisectlib.swish: pass --custom-op-namespaces bisectlib" in capsys.readouterr().out
    assert bisect("--to", "float64", "--custom-op-namespaces", "bisectlib", *words) == 1
    assert "torch.ops.bisectlib.swish.0 moves the number" in capsys.readouterr().out


@pytest.mark.nightly
@pytest.mark.slow
def test_the_first_of_two_calls_is_found_and_that_there_is_another(tmp_path, capsys):
    assert bisect("--to", "float64", *program(tmp_path, TWICE)) == 1
    reported = capsys.readouterr().out
    assert "Torch.mm.1 moves the number" in reported
    assert "other calls move the number without it" in reported


@pytest.mark.nightly
@pytest.mark.slow
def test_of_several_processes_the_one_whose_call_it_is_is_named(tmp_path, capsys):
    *_, path = program(tmp_path, OF_ONE_RANK)
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", path]
    assert bisect("--to", "float64", "--metric", r"loss (\S+)", "--", *words) == 1
    reported = capsys.readouterr().out
    assert "Torch.mm.2 of rank1 moves the number" in reported
    assert "No other call is needed" in reported


@pytest.mark.nightly
@pytest.mark.slow
def test_a_bisection_that_was_cut_short_goes_on_with_its_journal(tmp_path, capsys):
    words, journal = program(tmp_path, ALONE), str(tmp_path / "journal.jsonl")
    assert bisect("--to", "float64", "--max-runs", "4", "--journal", journal, *words) == 2
    first = capsys.readouterr()
    assert "--max-runs 4: more runs are needed" in first.err
    assert "run 3, all 3 calls in float64" in first.out
    assert bisect("--to", "float64", "--resume", journal, *words) == 1
    reported = capsys.readouterr().out
    assert "Torch.mm.2 moves the number" in reported
    # Of the runs that the journal has, only the first is made again, to see that the program is the same.
    runs = reported.partition("\n\n")[0]
    assert "all 3 calls" not in runs
    assert "again" not in runs


@pytest.mark.nightly
@pytest.mark.slow
def test_a_test_of_pytest_is_bisected_by_whether_it_passes(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # The fault moves the number by 1e-2, rounding by 1e-6.
    limit = "def test_loss():\n    assert abs(train().item() - EXACT) < 1e-3\n"
    exact = FAULTY.replace("FAULTS", "()") + "print(train().item())"
    done = subprocess.run([sys.executable, "-c", exact], capture_output=True, text=True, check=True)
    Path("test_it.py").write_text(FAULTY.replace("FAULTS", "{3}") + limit.replace("EXACT", done.stdout.strip()))
    assert bisect("--to", "float64", "test_it.py::test_loss") == 1
    assert "Torch.mm.2 moves the number" in capsys.readouterr().out


@pytest.mark.slow
def test_a_test_that_is_not_there_is_reported_in_pytests_words(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("test_it.py").write_text("import torch\n")
    assert bisect("test_it.py::test_loss") == 2
    assert "the command failed: exit status 4" in (reported := capsys.readouterr().err)
    assert "not found: " in reported


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "options", "problem"),
    [
        (RANDOM, ["--to", "float64"], "not deterministic: two runs as it is gave"),
        ("import torch\nraise SystemExit('no data')", [], "Last lines of its output:\nno data"),
        ("import torch\ntorch.ones(3)\nprint('done')", [], "prints no float"),
        (ALONE, ["--metric", "accuracy (.*)"], "prints nothing that matches"),
        (ALONE, [], "nothing to raise: no call of the command computes in a lower precision"),
    ],
)
def test_a_program_that_cannot_be_bisected_is_reported_with_what_to_do(tmp_path, capsys, text, options, problem):
    assert bisect(*options, *program(tmp_path, text)) == 2
    assert problem in capsys.readouterr().err


@pytest.mark.nightly
@pytest.mark.slow
def test_nothing_is_found_where_no_call_moves_the_number(tmp_path, capsys):
    assert bisect("--to", "float64", *program(tmp_path, ALONE.replace("{3}", "()"))) == 0
    assert "nothing found: all " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--", "/bin/echo", "1.5"], "no Python was started"),
        (["--", "no-such-program"], "no-such-program: cannot be run: No such file"),
        (["--", sys.executable, "-c", "print(1.5)"], "no process of the command imported torch"),
        (
            ["--resume", "missing.jsonl", "--", "x"],
            "missing.jsonl: no such file; start with --journal FILE instead of --resume FILE",
        ),
        (["--bound", "-1", "--", "x"], "--bound -1: expected a number of at least 0"),
        (["--max-runs", "0", "--", "x"], "--max-runs 0: expected a number of at least 1"),
        (["--timeout", "0", "--", "x"], "--timeout 0: expected a number of seconds above 0"),
        (["--metric", "(", "--", "x"], "not a regular expression"),
        (
            ["--timeout", "1", "--", sys.executable, "-c", "import time; time.sleep(600)"],
            "run 1, as it is: --timeout 1: the command takes longer; pass a larger number",
        ),
    ],
)
def test_what_is_given_wrong_is_reported(capsys, words, problem):
    assert bisect(*words) == 2
    assert problem in capsys.readouterr().err


def test_a_process_without_torch_imports_none_and_finds_the_users_sitecustomize(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys; sys.is_customized = True")
    code = "import sys; print(sys.is_customized, 'torch' in sys.modules, 'msprobe_hooks' in sys.modules)"
    done = started(tmp_path, code, PYTHONPATH=os.pathsep.join([str(AT_START), str(own)]))
    assert (done.stdout, done.stderr) == ("True False False\n", "")
    assert was_seen(tmp_path)


def test_a_process_without_a_sitecustomize_of_its_own_starts_in_silence(tmp_path):
    assert started(tmp_path, "print(1)").stderr == ""


def test_a_process_outside_of_a_bisection_is_left_alone(tmp_path):
    done = started(tmp_path, "import sys; print(type(sys.meta_path[0]).__name__)", **{VARIABLE: ""})
    assert "_Frameworks" not in done.stdout


def test_an_unknown_precision_is_answered_with_the_one_that_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bisect", "--to", "flaot32", "x"])
    assert "--to 'flaot32': not one of float32, float64, cpu; did you mean 'float32'?" in capsys.readouterr().err
