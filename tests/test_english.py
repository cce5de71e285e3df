"""Plain English inside of the packages, with a baseline that only shrinks.

``python tests/test_english.py`` writes the baseline anew. It refuses where the sum would grow.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
PACKAGES = ("standards/msprobe_standards", "hook_lib/msprobe_hooks", "pytest_msprobe")
BASELINE = Path(__file__).with_name("english_baseline.json")
COMMAND = f"python tests/{Path(__file__).name}"

# A question or a pronoun in the place of the subject.
_QUESTION = re.compile(
    r"(What|Which|How|Where|When|Why|Whether|Who|Whose|Whatever|Something|Everything|Anything|Nothing|That|Those)\b"
)
# Of a module, which has a subject, neither a preposition nor a numeral without its noun.
_NO_SUBJECT = re.compile(r"(From|Of|In|As|By|Done|Looks|Opens|Telling|Bringing|Putting|Giving|Saying)\b")
# Participles and pronouns that name a value by what happened to it, not by what it is.
PARTICIPLES = frozenset(
    "asked brought chosen each found given held kept known made meant of_whole said seen taken told wanted".split()
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DOCUMENTED = (ast.ClassDef, *_FUNCTIONS)


def test_docstrings_of_modules_begin_with_their_subject() -> None:
    assert _survey().modules == []


def test_docstrings_of_functions_begin_with_no_question() -> None:
    assert _survey().functions == []


def test_names_and_docstrings_become_no_vaguer() -> None:
    assert grown(_survey().counts, json.loads(BASELINE.read_text())) == []


def test_the_baseline_is_no_larger_than_the_counts() -> None:
    assert grown(json.loads(BASELINE.read_text()), _survey().counts) == [], f"the baseline has more; run: {COMMAND}"


def test_a_docstring_without_a_subject_is_found() -> None:
    openings = ["What a module has.", "From a record to a verdict.", "Memory layout of tensors.", "Whatever comes."]
    assert [text.split()[0] for text in openings if has_no_subject(text)] == ["What", "From", "Whatever"]


def test_a_vague_name_is_counted_wherever_it_is_bound() -> None:
    source = """
def first(given, *, known=0):
    found = given
    for each in found:
        chosen: int = each
    return [(each, kept) for each, kept in found if (wanted := each)]
"""
    assert vague_names(ast.parse(source)) == 8


def test_a_question_in_place_of_a_docstring_is_found() -> None:
    source = 'class A:\n    """What it is."""\ndef f():\n    """Whether it is."""\n'
    assert list(questions_of(ast.parse(source), (ast.ClassDef,))) == ["A"]
    assert list(questions_of(ast.parse(source), _FUNCTIONS)) == ["f"]


def test_a_count_that_grows_in_one_folder_is_found() -> None:
    assert grown({"names in a": 2, "names in b": 1}, {"names in a": 1, "names in b": 3}) == ["names in a: 2, not 1"]


def has_no_subject(text: str) -> bool:
    """Return whether the docstring of a module begins with something else than its subject."""
    return bool(_QUESTION.match(text) or _NO_SUBJECT.match(text))


def questions_of(tree: ast.AST, kinds: tuple[type[ast.AST], ...]) -> Iterator[str]:
    """Yield the names of functions, or of classes, whose docstrings begin with a question or a pronoun."""
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and isinstance(node, kinds) and _QUESTION.match(ast.get_docstring(node) or ""):
            yield node.name


def vague_names(tree: ast.AST) -> int:
    """Return how often a value is bound to a vague name, as a variable or as a parameter."""
    bound = (
        node.id if isinstance(node, ast.Name) else node.arg
        for node in ast.walk(tree)
        if isinstance(node, ast.arg) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    )
    return sum(name in PARTICIPLES for name in bound)


def grown(counts: Mapping[str, int], baseline: Mapping[str, int]) -> list[str]:
    """Return a line for each count that is larger than the baseline allows."""
    allowed = Counter(baseline)
    return [f"{what}: {count}, not {allowed[what]}" for what, count in counts.items() if count > allowed[what]]


@dataclass
class _Survey:
    modules: list[str]
    functions: list[str]
    counts: Counter[str]


@cache
def _survey() -> _Survey:
    """Return the modules and functions that begin otherwise than they shall, and counts by folder."""
    survey = _Survey([], [], Counter())
    for package in PACKAGES:
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            tree = ast.parse(path.read_text())
            name, folder = path.relative_to(REPOSITORY).as_posix(), _folder(path, REPOSITORY / package)
            if has_no_subject(ast.get_docstring(tree) or ""):
                survey.modules.append(name)
            survey.functions += (f"{name}: {function}" for function in questions_of(tree, _FUNCTIONS))
            survey.counts[f"vague names in {folder}"] += vague_names(tree)
            survey.counts[f"questions of classes in {folder}"] += len([*questions_of(tree, (ast.ClassDef,))])
    survey.counts = +survey.counts
    return survey


def _folder(path: Path, package: Path) -> str:
    """Return the folder that a module is counted in: a part of a package, or one extension."""
    parts = path.relative_to(package).parts[:-1]
    return package.joinpath(*parts[: 2 if parts[:1] == ("extensions",) else 1]).relative_to(REPOSITORY).as_posix()


def _write_baseline() -> str | None:
    """Write the baseline, or return why not."""
    counts = _survey().counts
    if BASELINE.exists() and counts.total() > sum(json.loads(BASELINE.read_text()).values()):
        return "there are more than the baseline has; rename or rewrite the new ones"
    BASELINE.write_text(json.dumps(counts, indent=2, sort_keys=True) + "\n")
    return None


if __name__ == "__main__":
    sys.exit(_write_baseline())
