"""Files that are nearly right: what a program, a disk or an attacker makes of them."""

from __future__ import annotations

import contextlib
import copy
import csv
import io
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from hypothesis import strategies as st

#: Chooses one of several things: by Hypothesis, which then shrinks what it chose, or at random, which is faster.
Pick: TypeAlias = Callable[[Sequence[Any]], Any]

# Markers in a tree, put into its text as what no Python value is written as.
_SPLICED = {
    "@deep list@": "[" * 700 + "]" * 700,
    "@deep object@": '{"a":' * 330 + "1" + "}" * 330,
    "@beyond floats@": "1e999",
    "@many digits@": "1" + "0" * 4999,
    "@nan@": "NaN",
    "@surrogate@": '"\\ud800"',
    "@twice@": '{"type": "int", "type": "float", "value": 1, "value": 2}',
}
_TEXTS = (
    *(
        "",
        "a",
        "../../etc/passwd",
        "/dev/zero",
        "a\0b",
        "\x1b[31m",
        "\u202e",
        "a\r\n::error::b\u2028::error::c",
        "x" * 3000,
        "=1+1",
        "*",
        "nan",
        "-inf",
        "0",
    ),
    *(
        "torch.float32",
        "torch.nothing",
        "Torch.load.0.forward",
        "Torch.relu.0.forward",
        "a.backward.b.0.backward",
        "%s",
    ),
    *(
        "{0}",
        "<script>",
        "é",
        "None",
        "1e400",
        "input.0",
        "Functional.softmax.0.backward",
        "torch.Tensor",
        "slice",
        "int",
    ),
)
_NUMBERS = (0, -1, 1, 2, 3, 7, 2**16, 2**63 - 1, 2**63, -(2**63), 10**30, 10**309, 0.5, -0.0, 1e308, 1e-320)
_TREES = (None, True, False, [], {}, [[]], [{}], {"": {}}, {"type": "int"}, {"value": 1}, [None] * 20)
_VALUES = (*_TEXTS, *_NUMBERS, *_TREES, *_SPLICED)
_BYTES = (
    b"",
    b"\xff",
    b"\0",
    b"\xed\xa0\x80",
    b"{",
    b"]",
    b'"',
    b"\n",
    b"-1",
    b"9" * 30,
    b"NaN",
    b"&a *a",
    b": ",
    b"!!int x",
)


def mutated(tree: Any, pick: Pick) -> Any:
    """Return a tree of JSON with one to three things in it replaced, left out, wrapped, renamed or moved."""
    changed = copy.deepcopy(tree)
    for _ in range(pick((1, 1, 2, 3))):
        places = list(_places(changed))
        if places:
            parent, key = pick(places)
            pick(_CHANGES)(parent, key, pick)
    return changed


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    keys = tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in list(keys):
        yield tree, key
        yield from _places(tree[key])


def _replace(parent: Any, key: Any, pick: Pick) -> None:
    parent[key] = copy.deepcopy(pick(_VALUES))


def _leave_out(parent: Any, key: Any, pick: Pick) -> None:
    del parent[key]


def _wrap(parent: Any, key: Any, pick: Pick) -> None:
    parent[key] = pick(([parent[key]], {"a": parent[key]}, [parent[key], copy.deepcopy(parent[key])]))


def _rename(parent: Any, key: Any, pick: Pick) -> None:
    if isinstance(parent, dict):
        parent[pick(_TEXTS)] = parent.pop(key)
    else:
        parent.insert(key, copy.deepcopy(pick(_VALUES)))


def _swap(parent: Any, key: Any, pick: Pick) -> None:
    other = pick(list(parent) if isinstance(parent, dict) else range(len(parent)))
    parent[key], parent[other] = parent[other], parent[key]


_CHANGES = (_replace, _replace, _leave_out, _wrap, _rename, _swap)


def as_text(tree: Any) -> bytes:
    """Return a mutated tree as JSON, with what only a text can hold put in."""
    text = json.dumps(tree, indent=1)
    for marker, content in _SPLICED.items():
        text = text.replace(json.dumps(marker), content)
    return text.encode()


def damaged(content: bytes, pick: Pick) -> bytes:
    """Return bytes of which a part was cut, overwritten or doubled."""
    start = pick(range(len(content) + 1))
    end = start + pick(range(12))
    part = pick(_BYTES)
    ways = (content[:start] + part + content[end:], content[:start], content[start:], content + content[start:end])
    return bytes(pick((ways[0], *ways)))


def table(content: bytes, pick: Pick) -> bytes:
    """Return a CSV of which a cell was replaced, or a row cut, left out, doubled or put into another place."""
    rows = list(csv.reader(io.StringIO(content.decode("utf-8", "replace"), newline="")))
    if not rows:
        return content
    place = pick(range(len(rows)))
    row = rows[place]
    change = pick(("cell", "cell", "cell", "cut", "gone", "twice", "moved"))
    if change == "cell" and row:
        row[pick(range(len(row)))] = str(pick((*_TEXTS, *_NUMBERS)))
    elif change == "cut":
        rows[place] = row[: pick(range(len(row) + 1))]
    elif change == "twice":
        rows.insert(pick(range(len(rows))), row)
    else:
        del rows[place]
        if change == "moved":
            rows.insert(pick(range(len(rows) + 1)), row)
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().encode("utf-8", "replace")


def changed_file(files: Sequence[Path], pick: Pick) -> None:
    """Change one of a folder's files: its bytes, what they say, or that it is there at all."""
    path = pick(files)
    change = pick(("bytes", "bytes", "content", "content", "content", "empty", "gone", "folder", "other"))
    if change == "gone":
        path.unlink()
    elif change == "folder":
        path.unlink()
        path.mkdir()
    elif change == "other":
        other = pick(files)
        if other != path and other.is_file():
            shutil.copy(other, path)
    elif path.is_file():
        content = path.read_bytes()
        changed = b"" if change == "empty" else damaged(content, pick)
        if change == "content":
            with contextlib.suppress(ValueError):
                changed = _said_otherwise(path, content, pick)
        path.write_bytes(changed)


def _said_otherwise(path: Path, content: bytes, pick: Pick) -> bytes:
    """Return a file of which an entry is another; raises ValueError where it has none."""
    if path.suffix == ".json":
        return as_text(mutated(json.loads(content), pick))
    if path.suffix == ".jsonl":
        lines = content.splitlines()
        place = pick(range(len(lines)))
        lines[place] = as_text(mutated(json.loads(lines[place]), pick)).replace(b"\n", b"")
        return b"\n".join([*lines, b""])
    if path.suffix == ".csv":
        return table(content, pick)
    raise ValueError(path)


@st.composite
def picks(draw: st.DrawFn) -> Pick:
    """Return what chooses by the example that Hypothesis tries."""
    return lambda options: draw(st.sampled_from(options))


@st.composite
def random_picks(draw: st.DrawFn) -> Pick:
    """Return what chooses at random, as often as one likes, by a seed that Hypothesis gives."""
    return draw(st.randoms(use_true_random=True)).choice
