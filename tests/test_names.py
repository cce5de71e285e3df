"""Names and words that every module and page keeps to."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PACKAGES = ("standards/msprobe_standards", "hook_lib/msprobe_hooks", "pytest_msprobe")

# Parts that several folders of one package have in the same sense: the folder says whose.
ROLES = frozenset(
    "__init__ arguments config csv errors factory html items journal judge judging messages mindspore_recorder "
    "mode model opening operators options policy reader recorder registry report reporter reporting rows rules session "
    "start summary text torch_recorder writer writers".split()
)
# Families of operators, each with a module in the folders of references, inputs and screens.
FAMILIES = frozenset("activation attention convolution layers loss moe_routing normalization optimizer".split())
# What a framework does in its own way has the same name in each of these folders, and where it is declared for all.
# A sub-command's module has the sub-command's name.
COUNTERPARTS = re.compile(r"/(torch|mindspore|mindtorch|frameworks|commands)/")
MOST_MODULES = 20
# One module per operator family, framework part, standard, or hook of pytest.
LARGE_FOLDERS = {
    "hook_lib/msprobe_hooks/recording",
    "pytest_msprobe/run",
    "standards/msprobe_standards",
}
VERBS = frozenset(
    """
    Abandon Accept Activate Add Admit Adopt Align Allocate Allow Append Arrange Ask Assemble Assign Attach Begin
    Broadcast Build Call Cast Change Check Choose Clear Close Collect Colour Compare Complete Compute Copy Count Create
    Cut Declare Decode Delete Describe Deselect Detach Distinguish Do Draw Drop Dump Emit Encode End Enter Explore Fail
    Feed Fetch Fill Find Finish Fit Flush Follow Forget Fork Free Gather Go Group Hand Hold Ignore Import Index Join
    Judge Keep Kill Launch Leave Lift Link Load Lock Log Look Lower Make Map Mark Match Measure Merge Move Multiply
    Name Normalise Note Notify Observe Open Order Pack Pair Pass Pause Permute Perturb Place Plan Post Prepare Print
    Push Quantize Queue Raise Read Rebuild Record Refuse Register Release Remember Remove Repeat Replace Replay Report
    Request Reserve Reshape Restart Restore Return Round Run Save Schedule Search Seed Send Serve Set Share Show Shut
    Skip Slice Sort Spell Split Spread Start Stop Subtract Take Transpose Try Turn Undo Unpack Wait Walk Watch Weigh
    Widen Write Yield
    """.split()
)
# Openings that say what shall hold, not what the function does.
_NO_OPENING = re.compile(r"(Tell|Let|Have|Know|Be|See|Take that)\b")
_WORDS = re.compile(r"\b(told|tells|beside|nobody|whoever|elsewhere|stands)\b", re.IGNORECASE)
_DOCUMENTED = (ast.FunctionDef, ast.AsyncFunctionDef)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_two_modules_of_a_package_share_a_name(package: str) -> None:
    assert shared_names(_name(path) for path in _modules_of(package)) == []


def test_a_name_that_two_folders_share_is_found() -> None:
    modules = ["p/a/plan.py", "p/b/plan.py", "p/a/options.py", "p/b/options.py", "p/torch/seeds.py", "p/a/seeds.py"]
    assert shared_names(modules) == ["plan"]


def test_no_folder_but_the_listed_ones_holds_more_modules_than_one_can_survey() -> None:
    large = large_folders(_name(path) for path in _modules())
    assert large == LARGE_FOLDERS, "split a new large folder; remove one that is no longer large from LARGE_FOLDERS"


def test_a_folder_of_too_many_modules_is_found() -> None:
    modules = [f"p/{folder}/m{number}.py" for folder, count in (("a", 21), ("b", 20)) for number in range(count)]
    assert large_folders([*modules, "p/b/__init__.py"]) == {"p/a"}


def test_docstrings_of_functions_begin_with_an_imperative() -> None:
    found = ((path, _unlike_an_imperative(ast.parse(path.read_text()))) for path in _modules())
    assert [f"{_name(path)}: {name}" for path, unlike in found for name, _ in unlike] == []


def test_literals_and_pages_use_plain_words() -> None:
    found = {_name(path): _count_words(ast.parse(path.read_text())) for path in _modules()}
    found |= {_name(page): len(_WORDS.findall(page.read_text())) for page in _pages()}
    assert +Counter(found) == {}


def test_a_docstring_that_states_a_wish_is_found() -> None:
    functions = '''
def first(): """Tell whether it is so."""
def second(): """Return whether it is so."""
def third(): """Take that which is there."""
def fourth(): """The size of it."""
@property
def fifth(): """The size of it."""
@property
def sixth(): """Tell the size of it."""
class Size:
    def __init__(self, size): """``size`` is in bytes."""
'''
    assert [name for name, _ in _unlike_an_imperative(ast.parse(functions))] == ["first", "third", "fourth", "sixth"]


def test_a_word_is_found_in_the_pieces_of_a_formatted_string_and_not_in_comments() -> None:
    assert _count_words(ast.parse('f"{name} stands here"\nnote = "Nobody"  # told elsewhere')) == 2


def shared_names(modules: Iterable[str]) -> list[str]:
    """Return the names that two modules have which are neither roles, families nor counterparts."""
    stems = Counter(Path(module).stem for module in modules if not COUNTERPARTS.search(module))
    return [stem for stem, count in stems.items() if count > 1 and stem not in ROLES | FAMILIES]


def large_folders(modules: Iterable[str]) -> set[str]:
    """Return the folders that hold more modules than one can survey."""
    held = Counter(str(Path(module).parent) for module in modules if Path(module).stem != "__init__")
    return {folder for folder, count in held.items() if count > MOST_MODULES}


def _unlike_an_imperative(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield name and docstring of each function whose docstring does not say what the function does.

    A property is read like an attribute, so a noun may describe it. ``__init__`` is described by its class; what it
    says itself is about its arguments.
    """
    for node in ast.walk(tree):
        text = ast.get_docstring(node) if isinstance(node, _DOCUMENTED) else None
        if not isinstance(node, _DOCUMENTED) or text is None:
            continue
        is_free = node.name == "__init__" or any("property" in ast.unparse(each) for each in node.decorator_list)
        first = re.match(r"[A-Za-z]*", text)
        is_imperative = first is not None and first[0] in VERBS
        if _NO_OPENING.match(text) or not (is_free or is_imperative):
            yield node.name, text


def _count_words(tree: ast.AST) -> int:
    constants = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return sum(len(_WORDS.findall(value)) for value in constants if isinstance(value, str))


def _modules() -> Iterator[Path]:
    for package in PACKAGES:
        yield from _modules_of(package)


def _modules_of(package: str) -> Iterator[Path]:
    return (REPOSITORY / package).rglob("*.py")


def _pages() -> Iterator[Path]:
    yield REPOSITORY / "README.md"
    yield from (REPOSITORY / "docs").rglob("*.md")
    for package in PACKAGES:
        yield from (path for suffix in ("html", "js", "yaml") for path in (REPOSITORY / package).rglob(f"*.{suffix}"))


def _name(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()
