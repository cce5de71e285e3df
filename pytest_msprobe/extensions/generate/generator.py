"""``pytest-msprobe generate``, step by step: choose records, write modules, run them; its messages."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from msprobe_hooks.dump.names import direction_of
from msprobe_hooks.dump.reader import Dump, read_dump
from msprobe_hooks.dump.recording_paths import find_dumps
from msprobe_hooks.messages import counted, listed
from msprobe_standards import built_in_policies
from pytest_msprobe.engine.framework_names import MINDTORCH
from pytest_msprobe.engine.frameworks import missing_piece
from pytest_msprobe.errors import CommandError, KeywordError
from pytest_msprobe.extensions.generate.inputs import (
    Failures,
    SeenInput,
    is_saved,
    read_failures,
    read_saved,
    read_smallest,
)
from pytest_msprobe.extensions.generate.module_plan import (
    Module,
    Plan,
    Provenance,
    make_plan,
    module_text,
    plan_of_inputs,
)
from pytest_msprobe.extensions.generate.output_folder import Content, write_files
from pytest_msprobe.extensions.generate.subprocess_run import Outcome, run_module
from pytest_msprobe.reports.text import echo, printable
from pytest_msprobe.run import marks
from pytest_msprobe.run.keyword_expression import Keywords, parse_keywords
from pytest_msprobe.run.options import BY_API

_SHOWN = 5


def print_plan(plan: Plan, folder: Path, earlier: list[str]) -> None:
    """Print what was written, what was left out and why, and what was there before."""
    records = sum(len(module.records) for module in plan.modules)
    if plan.modules:
        echo(f"{folder}: {counted(records, 'record')} in {counted(len(plan.modules), 'module')}")
    if plan.tensor_files:
        size = sum((folder / name).stat().st_size for name in plan.tensor_files)
        echo(f"{folder}: {counted(len(plan.tensor_files), 'tensor file')}, {_bytes(size)}")
    by_reason: dict[str, list[str]] = {}
    for record, reason in plan.left_out.items():
        by_reason.setdefault(reason, []).append(record)
    for reason, names in by_reason.items():
        echo(f"left out: {_some(names)}: {_shown(reason)}")
    if earlier:
        echo(f"kept from earlier runs: {_some(earlier)}")


def print_outcomes(module: Module, outcomes: Mapping[str, Outcome], *, again: bool) -> None:
    """Print the outcomes of one module's records; ``again`` says that all of them failed before."""
    echo(f"\n{module.file}")
    words = {"failed": "still fails", "passed": "passes now"} if again else {"failed": "fails", "passed": "passes"}
    width = max((len(_shown(label)) for label in outcomes), default=0)
    for label, outcome in outcomes.items():
        reason = f": {_shown(outcome.reason)}" if outcome.reason else ""
        echo(f"  {_shown(label):{width}}  {words.get(outcome.outcome, outcome.outcome)}{reason}")
    if not outcomes:
        echo("  no test was run")


def print_total(outcomes: Mapping[str, Outcome], folder: Path, provenance: Provenance) -> None:
    """Print how many failed, and how to run them again."""
    kinds = [outcome.outcome for outcome in outcomes.values()]
    counts = [f"{kinds.count(kind)} {kind}" for kind in ("failed", "passed", "skipped") if kind in kinds]
    echo(f"\n{', '.join(counts) or 'nothing ran'}")
    echo(f"Run them again: {shlex.join(['pytest', str(folder), *provenance.options])}")


def _shown(text: str) -> str:
    """Return a text as printable ASCII on one line; the escapes that names of records come with stay as they are."""
    return printable(" ".join(text.splitlines())).encode("ascii", "backslashreplace").decode()


def _some(names: Iterable[str]) -> str:
    return listed(map(_shown, names), _SHOWN)


def _bytes(size: int) -> str:
    return f"{size / 2**20:.1f} MiB" if size >= 2**20 else f"{size / 2**10:.1f} KiB" if size >= 2**10 else f"{size} B"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Request of the user, as the command line names it."""

    dump: Path
    output: Path
    keywords: str = ""
    failed: Path | None = None
    direction: str | None = None
    seed: int | None = None
    iterations: int = 1
    real_data: bool | None = None
    no_run: bool = False
    device: str | None = None
    policy: str | None = None
    run_options: str = ""
    patience: float = 300.0


def generate(request: Request) -> int:
    """Write the modules, run each in a fresh process and print the outcomes.

    Returns 0, or 1 where a record fails. Raises UserError or DumpError.
    """
    if is_saved(request.dump):
        return _generate_saved(request)
    request = replace(request, dump=_one_dump(request.dump))
    dump = _read(request)
    failures = None if request.failed is None else read_failures(request.failed, request.dump)
    provenance = _provenance(request, failures)
    if failures is not None and not failures.records:
        echo(f"nothing failed in {request.failed}: no test was written")
        return 0
    selected, real_data = _chosen(dump, request, failures), _real_data(request, failures)
    explored = _explored(dump, selected, request, failures, provenance)
    plan = make_plan(dump, [record for record in selected if record not in explored], real_data=real_data)
    if request.real_data and plan.modules and not plan.tensor_files:
        raise CommandError("no selected record has recorded tensors", file=dump.path, remedy="remove --real-data")
    plan = plan.with_other(plan_of_inputs(explored.values(), "the smallest input that exploring found to fail"))
    return _write(request, plan, provenance, again=failures is not None)


def _generate_saved(request: Request) -> int:
    """Write and run modules for the inputs of saved cases."""
    passed = {
        "--failed": request.failed is not None,
        "-k": bool(request.keywords.strip()),
        "--direction": request.direction is not None,
        "--seed": request.seed is not None,
        "--iterations": request.iterations > 1,
        "--real-data": request.real_data is not None,
    }
    refused = [option for option, is_given in passed.items() if is_given]
    if refused:
        raise CommandError(
            f"{' and '.join(refused)}: not for saved cases, which have their own inputs", file=request.dump
        )
    _check(request)
    saved = read_saved(request.dump)
    settings = {"policy": saved.policy, "level": saved.level or BY_API}
    provenance = _provenance(request, Failures(frozenset(), settings))
    plan = plan_of_inputs(saved.inputs, "the input of the saved case")
    return _write(request, plan, provenance, again=True)


def _explored(
    dump: Dump, selected: Iterable[str], request: Request, failures: Failures | None, provenance: Provenance
) -> dict[str, SeenInput]:
    """Return the smallest inputs that exploring found, of chosen records; none where other inputs were asked for."""
    if failures is None or request.iterations > 1 or request.seed is not None or request.real_data is not None:
        return {}
    (seed,) = provenance.seeds
    smallest_inputs = {record: failures.smallest[record] for record in selected if record in failures.smallest}
    return {record: read_smallest(dump, record, smallest, seed) for record, smallest in smallest_inputs.items()}


def _write(request: Request, plan: Plan, provenance: Provenance, *, again: bool) -> int:
    earlier = write_files(request.output, _contents(plan, provenance)) if plan.modules else []
    print_plan(plan, request.output, earlier)
    if not plan.modules:
        raise CommandError(
            "no test can be written for the selected records", file=request.dump, remedy="see the reasons above"
        )
    return 0 if request.no_run else _run(request, plan, provenance, again=again)


def _run(request: Request, plan: Plan, provenance: Provenance, *, again: bool) -> int:
    """Run each module in a fresh process and return 1 where a record fails."""
    outcomes: dict[str, Outcome] = {}
    for module in plan.modules:
        path = (request.output / module.file).absolute()
        outcomes_of_module = run_module(path, provenance.options, patience=request.patience)
        print_outcomes(module, outcomes_of_module, again=again)
        outcomes |= {f"{module.file} {label}": outcome for label, outcome in outcomes_of_module.items()}
    print_total(outcomes, request.output, provenance)
    return int(any(outcome.outcome == "failed" for outcome in outcomes.values()))


def _one_dump(path: Path) -> Path:
    """Return the dump of a folder that holds one."""
    dumps = find_dumps(path) if path.is_dir() else [path]
    if len(dumps) > 1:
        raise CommandError(f"{len(dumps)} dumps found", file=path, remedy=f"pass one of them, such as {dumps[0]}")
    return dumps[0]


def _check(request: Request) -> None:
    if request.iterations < 1:
        raise CommandError(f"--iterations {request.iterations}: expected a number of at least 1")
    if request.patience <= 0:
        raise CommandError(f"--patience {request.patience:g}: expected a positive number of seconds")
    if request.real_data and request.iterations > 1:
        raise CommandError("--iterations draws new inputs each time, and --real-data draws none; remove one of them")


def _read(request: Request) -> Dump:
    _check(request)
    dump = read_dump(request.dump)
    missing = missing_piece(dump.framework)
    if dump.framework == MINDTORCH:
        missing = "generating tests for MindTorch is not supported"
    if missing is not None:
        raise CommandError(f"recorded with {dump.framework}, but {missing}", file=dump.path)
    return dump


def _chosen(dump: Dump, request: Request, failures: Failures | None) -> list[str]:
    matches = _matcher(request.keywords)
    selected = [
        record
        for record in dump.api_names
        if (failures is None or record in failures.records)
        and (request.direction is None or direction_of(record) == request.direction)
        and (matches is None or matches([record, dump.path.name, *marks.of_record(dump, record)]))
    ]
    if not selected:
        raise CommandError(_why_nothing(dump, request, failures))
    return selected


def _matcher(keywords: str) -> Keywords | None:
    try:
        return parse_keywords(keywords) if keywords.strip() else None
    except KeywordError as error:
        raise CommandError(f"-k {keywords!r}: {error}") from None


def _why_nothing(dump: Dump, request: Request, failures: Failures | None) -> str:
    among = f"the {len(dump.api_names)} API records of {dump.path}"
    if failures is not None:
        among = f"the {len(failures.records)} records of {dump.path} that failed in {request.failed}"
    options = [f"-k {request.keywords!r}"] if request.keywords.strip() else []
    options += [f"--direction {request.direction}"] if request.direction else []
    return f"{' and '.join(options)}: matches none of {among}" if options else f"nothing to write: {among} are none"


def _real_data(request: Request, failures: Failures | None) -> bool:
    if request.real_data is not None:
        return request.real_data
    return failures is not None and failures.settings.get("real_data") == "auto" and request.iterations == 1


def _seeds(request: Request, failures: Failures | None) -> tuple[int, ...]:
    first = request.seed
    if first is None:
        text = "0" if failures is None else failures.settings.get("seed", "0")
        if not text.removeprefix("-").isdecimal():
            raise CommandError(f"invalid seed: {text!r}", file=request.failed, remedy="pass --seed N")
        first = int(text)
    return tuple(range(first, first + request.iterations))


def _run_options(request: Request, failures: Failures | None) -> list[str]:
    """Return pytest's options under which the modules run: those of the journal's run, where the user has no others."""
    settings = {} if failures is None else failures.settings
    values = {
        "device": request.device or _other_than("auto", settings.get("device")),
        "policy": request.policy or _policy(request, settings),
        "level": _other_than(BY_API, settings.get("level")),
    }
    try:
        more = shlex.split(request.run_options)
    except ValueError as error:
        raise CommandError(f"--run-options {request.run_options!r}: {error}") from None
    return [*(f"--msprobe-{name}={value}" for name, value in values.items() if value), *more]


def _policy(request: Request, settings: Mapping[str, str]) -> str | None:
    policy = settings.get("policy", "default")
    if policy not in built_in_policies():
        raise CommandError("the run used a policy file", file=request.failed, remedy="pass --msprobe-policy FILE")
    return _other_than("default", policy)


def _other_than(default: str, value: str | None) -> str | None:
    return None if value == default else value


def _provenance(request: Request, failures: Failures | None) -> Provenance:
    words = ["pytest-msprobe", "generate", request.dump.name]
    words += ["-k", request.keywords] if request.keywords else []
    words += ["--failed", request.failed.name] if request.failed else []
    words += ["--direction", request.direction] if request.direction else []
    words += ["--seed", str(request.seed)] if request.seed is not None else []
    words += ["--iterations", str(request.iterations)] if request.iterations > 1 else []
    if request.real_data is not None:
        words.append("--real-data" if request.real_data else "--no-real-data")
    options = tuple(_run_options(request, failures))
    return Provenance(request.dump.name, shlex.join(words), _seeds(request, failures), options)


def _contents(plan: Plan, provenance: Provenance) -> dict[str, Content]:
    modules: dict[str, Content] = {module.file: module_text(module, provenance) for module in plan.modules}
    return modules | plan.tensor_files
