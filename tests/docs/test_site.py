"""What the site says is what is there."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from website.links import MOVED

ROOT = Path(__file__).parents[2]
WRITTEN = sorted(path for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
DECISIONS = sorted((ROOT / "docs/adr").glob("[0-9]*.md"))
MODULES = {
    f"/{path.relative_to(ROOT)}"
    for folder in "standards hook_lib pytest_msprobe tests benchmarks examples website".split()
    for path in (ROOT / folder).rglob("*.py")
}


@pytest.mark.parametrize(("page", "program"), [("first-check", "train.py"), ("your-functions", "test_gelu.py")])
def test_a_page_for_newcomers_shows_the_program_that_is_run(page: str, program: str) -> None:
    text = (ROOT / "examples/first_check" / program).read_text().partition("\n\n")[2]
    assert f"```python\n{text}```" in (ROOT / "docs" / f"{page}.md").read_text()


@pytest.mark.parametrize("page", WRITTEN, ids=lambda path: path.name)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize(("old", "new"), MOVED.items(), ids=MOVED)
def test_an_old_address_leads_to_the_section_that_has_its_text(old: str, new: str) -> None:
    page, _, anchor = new.partition("#")
    assert not (ROOT / "docs" / f"{old}.md").exists()
    tokens = MarkdownIt().parse((ROOT / "docs" / f"{page}.md").read_text())
    headings = [text.content for tag, text in pairwise(tokens) if tag.type == "heading_open"]
    assert anchor in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_the_index_of_decisions_lists_every_page_of_them() -> None:
    listed = re.findall(r"\]\((\d{4}-.+\.md)\)", (ROOT / "docs/adr/index.md").read_text())
    assert listed == [path.name for path in DECISIONS]


@pytest.mark.parametrize("page", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_has_context_decision_and_cost(page: Path) -> None:
    headings = re.findall(r"^## (.+)", page.read_text(), re.MULTILINE)
    assert headings == ["Context", "Decision", "Cost"]


# The page of frameworks names their modules.
@pytest.mark.parametrize(
    "page", [page for page in WRITTEN if page.name != "integrations.md"], ids=lambda path: path.name
)
def test_modules_named_with_their_folder_exist(page: Path) -> None:
    named = sorted(set(re.findall(r"`((?:\w+/)+\w+\.py)`", page.read_text())))
    assert [name for name in named if not any(path.endswith(f"/{name}") for path in MODULES)] == []


def test_modules_named_by_the_architecture_and_its_decisions_exist() -> None:
    pages = [ROOT / "docs/architecture.md", *DECISIONS]
    named = {name for page in pages for name in re.findall(r"`(\w+\.py)`", page.read_text())}
    assert named
    assert [name for name in sorted(named) if not any(path.endswith(f"/{name}") for path in MODULES)] == []
