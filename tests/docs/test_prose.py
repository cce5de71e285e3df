"""How the documentation is written."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
RULES = ("long lines", "long paragraphs", "sentences that begin with Of")
MOST_CHARACTERS = 120
MOST_WORDS = 120

_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_BEGINS_WITH_OF = re.compile(r"""(?:\A|[.!?]['")*_]*\s+)['"(*_]*Of\s""")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


@pytest.mark.parametrize("rule", RULES)
def test_pages_keep_to_a_rule_of_prose(rule: str) -> None:
    pages = (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    found = {page.relative_to(ROOT).as_posix(): offences(page.read_text())[rule] for page in pages}
    assert +Counter(found) == {}


def test_a_long_line_is_found_in_paragraphs_lists_and_headings() -> None:
    line = f"{'word ' * 24}x"
    assert len(line) == MOST_CHARACTERS + 1
    assert offences(f"{line}\n\nshort\n{line}\n\n* {line}\n\n# {line}\n")["long lines"] == 4
    assert offences(line[:-1].ljust(MOST_CHARACTERS, "x"))["long lines"] == 0


def test_code_tables_comments_and_front_matter_may_be_long() -> None:
    line = f"Of {'word ' * 120}x"
    code = f"```sh\n{line}\n```\n\n    {line}\n\n* item\n\n      {line}\n"
    table = f"| a | b |\n|---|---|\n| {line} | {line} |\n"
    assert offences(f"---\ntitle: {line}\n---\n\n{code}\n{table}\n<!-- {line} -->\n") == {}


def test_a_long_paragraph_is_found_by_its_words() -> None:
    lines = f"{'word ' * 20}\n" * 6
    assert offences(lines) == {}
    assert offences(f"{lines}more\n") == {"long paragraphs": 1}
    assert offences(f"* {lines.strip()}\n* {lines.strip()}\n") == {}


def test_a_sentence_that_begins_with_of_is_found() -> None:
    text = "Of two runs, one is golden. Of **three**, two.\nWhat of it? (Of one.) Often a part of\nOf Mice and Men."
    assert offences(text) == {"sentences that begin with Of": 3}


def offences(text: str) -> Counter[str]:
    """Return how often a page breaks each rule, code, tables, comments and front matter aside."""
    text = _FRONT_MATTER.sub("", text)
    lines = text.splitlines()
    found = Counter[str]()
    for first, last, prose in _prose(text):
        found["long lines"] += sum(len(line) > MOST_CHARACTERS for line in lines[first:last])
        found["long paragraphs"] += len(prose.split()) > MOST_WORDS
        found["sentences that begin with Of"] += len(_BEGINS_WITH_OF.findall(prose))
    return +found


def _prose(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the first line, the line after the last, and the text of each paragraph and heading."""
    cells = {"th_open", "td_open"}
    before = ""
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "inline" and token.map and before not in cells:
            yield *token.map, _COMMENT.sub("", token.content)
        before = token.type
