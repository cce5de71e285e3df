"""What works where optional packages are missing: all but what needs one, which names how to install it."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
import tomllib

from tests.support.dumps.communications import all_reduce
from tests.support.dumps.dump_files import write_dump
from tests.support.forked import Forked
from tests.support.nightly import nightly_but

REPOSITORY = Path(__file__).parents[1]
EXAMPLES = REPOSITORY / "examples"

#: What `pip install pytest-msprobe[torch]` does not bring, by the name that is imported.
PACKAGES = (
    "safetensors", "hypothesis", "xdist", "execnet", "junitparser", "xlsxwriter", "openpyxl", "matplotlib", "isal",
    "zstandard", "pyarrow", "tensorboard", "PIL", "argcomplete", "expecttest",
)  # fmt: skip


class Job(NamedTuple):
    """A command line or a program, how it ends, and the packages without which it names the remedy."""

    words: str
    status: int = 0
    needs: tuple[str, ...] = ()


MODEL = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2))
optimizer = torch.optim.AdamW(model.parameters())
def step():
    optimizer.zero_grad()
    loss = model(torch.ones(3, 4)).square().mean()
    loss.backward()
    optimizer.step()
"""
TESTS = """
import torch
def test_precision(precision):
    precision.check(torch.softmax, torch.ones(2, 3, requires_grad=True), -1, backward=True)
def test_dump(msprobe_dump):
    torch.relu(torch.ones(3))
def test_live(msprobe_live):
    torch.relu(torch.ones(3))
def test_monitor(msprobe_monitor):
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with msprobe_monitor(model, optimizer):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
"""

JOBS = {
    "check": Job("pytest --msprobe-dump run --msprobe-html check.html --msprobe-csv table --msprobe-journal j.jsonl"),
    "isolated check": Job("pytest --msprobe-dump run -k gelu --msprobe-isolate"),
    "explore": Job("pytest --msprobe-dump run -k gelu --msprobe-explore 2", needs=("hypothesis",)),
    "save failures": Job("pytest --msprobe-dump run -k gelu --msprobe-save-failures f", needs=("safetensors",)),
    "save a baseline": Job("pytest --msprobe-dump run -k gelu --msprobe-save-baseline b.json"),
    "baseline": Job("pytest --msprobe-dump run -k gelu --msprobe-baseline base.json"),
    "fixtures": Job("pytest test_all.py"),
    "compare": Job(f"pytest --msprobe-compare {EXAMPLES}/compare_runs/target --msprobe-golden "
                   f"{EXAMPLES}/compare_runs/golden --msprobe-html compare.html --msprobe-csv compared", 1),
    "compare into a workbook": Job("pytest --msprobe-compare run --msprobe-golden run --msprobe-xlsx w", 0,
                                   ("xlsxwriter",)),
    "inference": Job(f"pytest --msprobe-compare {EXAMPLES}/train_and_inference/serve --msprobe-golden "
                     f"{EXAMPLES}/train_and_inference/train --msprobe-html inference.html", 1),
    "overflow": Job(f"pytest --msprobe-overflow {EXAMPLES}/overflow --msprobe-html overflow.html", 1),
    "monitor": Job(f"pytest --msprobe-monitor {EXAMPLES}/watched_training/run --msprobe-html monitor.html", 1),
    "communication": Job("pytest --msprobe-communication ranks/step0", 0),
    "checkpoint": Job("pytest --msprobe-checkpoint model.pt --msprobe-golden model.pt"),
    "checkpoint of safetensors": Job("pytest --msprobe-checkpoint model.safetensors --msprobe-golden model.safetensors",
                                     needs=("safetensors",)),
    "report": Job("pytest-msprobe report base.jsonl --html report.html"),
    "report for JUnit": Job("pytest-msprobe report base.jsonl --junit report.xml", needs=("junitparser",)),
    "replay": Job("pytest-msprobe replay cases", needs=("safetensors",)),
    "generate": Job("pytest-msprobe generate run/step0/rank/dump.json -k gelu -o generated"),
    "generate from cases": Job("pytest-msprobe generate cases -o from_cases --no-run", needs=("safetensors",)),
    "precision-compare": Job("pytest-msprobe msprobe precision-compare base.jsonl base.jsonl"),
    "show": Job("pytest-msprobe show run/step0/rank/dump.json::Functional.gelu.0.forward"),
    "graph": Job("pytest-msprobe graph run/step0/rank/dump.json --html graph.html"),
    "series": Job("pytest-msprobe msprobe series run -o run.trend.db"),
    "merge-results": Job(f"pytest-msprobe msprobe merge-results -i {EXAMPLES}/compare_runs/tables -o merged -config "
                         f"{EXAMPLES}/compare_runs/merge.yaml", needs=("xlsxwriter",)),
    "doctor": Job("pytest-msprobe doctor"),
    "operators": Job("pytest-msprobe operators --op softmax -o operators", needs=("expecttest",)),
    "environment": Job("pytest-msprobe environment -o environment.json"),
    "bisect": Job("pytest-msprobe bisect --help"),
    "follow": Job("pytest-msprobe follow spool --idle 1 -- --msprobe-device cpu"),
    "live": Job(f"{MODEL}\nimport pytest_msprobe\nwith pytest_msprobe.live(): step()"),
    "record": Job(f"{MODEL}\nfrom msprobe_hooks import record\n"
                  "for level in ('L0', 'L1', 'mix', 'aten'):\n"
                  "  for task in ('statistics', 'tensor'):\n"
                  "    with record(f'{level}{task}', level=level, task=task, model=model): step()\n"
                  "with record('md5', task='statistics', summary_mode='md5'): step()"),
    "record compressed": Job(f"{MODEL}\nfrom msprobe_hooks import record\n"
                             "with record('z', task='tensor', tensor_files='safetensors', compression='zstd'): step()",
                             needs=("zstandard",)),
    "watch": Job(f"{MODEL}\nfrom msprobe_hooks import watch\n"
                 "with watch(model, optimizer, 'w'): step()"),
    "programs": Job("import pytest_msprobe\nprint([r.outcome for r in pytest_msprobe.check_dump('run')])\n"
                    "print(len(list(pytest_msprobe.compare_dumps('run', 'run'))))"),
}  # fmt: skip

ONE_OF_EACH_KIND = ("check", "fixtures", "compare", "report", "generate", "live", "record")

# Each job has a process of its own, which finds its packages missing before it imports anything of the plugin.
PROGRAM = """
import json, os, shlex, sys
jobs, missing = json.loads(sys.argv[1]), json.loads(sys.argv[2])
for name in missing:
    sys.modules[name] = None
statuses = {}
for name, job in jobs.items():
    child = os.fork()
    if child:
        statuses[name] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        continue
    output = os.open(f"{name}.txt", os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    command, _, rest = job.partition(" ")
    if command == "pytest":
        import pytest
        status = pytest.main(shlex.split(rest))
    elif command == "pytest-msprobe":
        from pytest_msprobe.commands.main import main
        sys.argv[0] = command
        status = main(shlex.split(rest))
    else:
        exec(job)
        status = 0
    sys.stdout.flush()
    os._exit(int(status))
print(json.dumps(statuses))
"""


@pytest.fixture(scope="session")
def inputs(forked: Forked, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write what the jobs read, with every package."""
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "test_all.py").write_text(TESTS)
    program = f"""{MODEL}
import safetensors.torch, shutil
from msprobe_hooks import record
with record("run", level="mix", model=model): step()
shutil.copytree("run/step0", "spool/step0")
open("spool/stop", "w").close()
torch.save(model.state_dict(), "model.pt")
safetensors.torch.save_file(model.state_dict(), "model.safetensors")
"""
    for rank in range(2):
        write_dump(folder / f"ranks/step0/rank{rank}", all_reduce())
    made = forked.run(program, folder)
    assert made.returncode == 0, made.stderr
    (folder / "conftest.py").write_text(
        (EXAMPLES / "faulty_device" / "conftest.py").read_text().replace("softmax", "gelu")
    )
    for words in (
        "--msprobe-save-baseline base.json --msprobe-journal base.jsonl -q",
        "--msprobe-device faulty --msprobe-save-failures cases -k gelu -q",
    ):
        made = run(forked, folder, {"inputs": Job(f"pytest --msprobe-dump run {words}")}, ())
    (folder / "conftest.py").unlink()
    return folder


def run(forked: Forked, folder: Path, jobs: dict[str, Job], missing: tuple[str, ...]) -> dict[str, tuple[int, str]]:
    """Run jobs without these packages; return the status and the output of each."""
    words = json.dumps({name: job.words for name, job in jobs.items()})
    # Plugins of other packages are found by their metadata, which a missing package does not have.
    options = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-p msprobe -c /dev/null --rootdir=."}
    variables = {**os.environ, **options}
    done = forked.run(PROGRAM, folder, words, json.dumps(missing), variables=variables, timeout=600)
    assert done.returncode == 0, done.stderr
    statuses: dict[str, int] = json.loads(done.stdout)
    return {name: (status, (folder / f"{name}.txt").read_text()) for name, status in statuses.items()}


def problem_of(job: Job, status: int, output: str, missing: tuple[str, ...]) -> str:
    """Return what is wrong with how a job ended, empty where nothing is."""
    is_command = job.words.startswith("pytest")
    if "ModuleNotFoundError" in output or (is_command and "Traceback" in output):
        return f"a missing package is a traceback:\n{output}"
    if set(job.needs) & set(missing):
        return "" if "pip install 'pytest-msprobe[" in output else f"the remedy is missing:\n{output}"
    return "" if status == job.status else f"ended with {status}:\n{output}"


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
def test_without_optional_packages_a_job_works_or_names_what_to_install(
    forked: Forked, inputs: Path, tmp_path: Path, name: str
) -> None:
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    status, output = run(forked, tmp_path, {name: JOBS[name]}, PACKAGES)[name]
    assert problem_of(JOBS[name], status, output, PACKAGES) == ""


@pytest.mark.slow
# What workers need, and what reports need.
@pytest.mark.parametrize("package", nightly_but(PACKAGES, "xdist", "xlsxwriter"))
def test_without_one_optional_package_jobs_work_or_name_what_to_install(
    forked: Forked, inputs: Path, tmp_path: Path, package: str
) -> None:
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    jobs = {name: JOBS[name] for name in ONE_OF_EACH_KIND}
    found = run(forked, tmp_path, jobs, (package,))
    problems = {name: problem_of(job, *found[name], (package,)) for name, job in jobs.items()}
    assert problems == dict.fromkeys(jobs, "")


def test_every_optional_package_is_tried() -> None:
    optional = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = {
        re.split(r"[<>=\[]", word)[0]
        for extra, words in optional.items()
        if extra not in ("torch", "mindspore", "all")
        for word in words
    }
    imported = {"pytest-xdist": "xdist", "pillow": "PIL", "XlsxWriter": "xlsxwriter"}
    assert {imported.get(name, name) for name in names} <= set(PACKAGES)
