r"""JSON that others wrote, as data: a text is decoded, or one JsonError says in a line why not.

All JSON of the project is read here. What Python's own JSON writer adds to the standard is understood: the bare tokens
NaN and Infinity become strings, and half of a surrogate pair, which no text can hold, becomes its escape (``\ud800``)
as text.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, overload

import msgspec

from msprobe_hooks.messages import clipped
from msprobe_hooks.regular_files import read_regular

T = TypeVar("T")


class JsonError(ValueError):
    """A text cannot be decoded; the message says why, as a part of a sentence that names the file."""


class JsonFormError(JsonError):
    """A text is JSON, but not of the form that was asked for."""


class JsonDepthError(JsonError):
    """A text is nested too deeply to be decoded."""


_decode_value = msgspec.json.Decoder().decode


@overload
def decode_json(text: bytes | msgspec.Raw) -> Any: ...
@overload
def decode_json(text: bytes | msgspec.Raw, kind: type[T], *, strict: bool = True) -> T: ...
def decode_json(text: bytes | msgspec.Raw, kind: Any = Any, *, strict: bool = True) -> Any:
    """Return the value of a JSON text, as data of the ``kind`` that msgspec is to make of it.

    Where not ``strict``, strings stand for numbers too, since JSON has no infinity. Raises JsonError.
    """
    decode = _decode_value if kind is Any else _decoder(kind, strict).decode
    try:
        try:
            return decode(text)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            # Few texts need it, and looking takes longer than decoding.
            return decode(_standard(bytes(text)))
    except msgspec.ValidationError as error:
        # msgspec quotes a value that it does not expect, however long that is.
        raise JsonFormError(clipped(str(error))) from None
    except msgspec.DecodeError as error:
        raise JsonError(_syntax_problem(str(error), bytes(text))) from None
    except UnicodeDecodeError:
        raise JsonError("not UTF-8 text") from None
    except RecursionError:
        raise JsonDepthError("nested too deeply") from None


def read_json_lines(path: Path, kind: type[T]) -> tuple[list[T], list[str]]:
    """Return the lines of a file as data of the ``kind``, in their order, and a sentence for each that is no such line.

    A file that is not there has no lines. The last line of a process that was killed has no end and does not count;
    a file that cannot be read is one sentence.
    """
    try:
        *lines, last = read_regular(path).split(b"\n")
    except FileNotFoundError:
        return [], []
    except OSError as error:
        return [], [f"{path}: cannot be read: {error.strerror or error}"]
    values: list[T] = []
    problems = []
    for number, line in enumerate(lines, 1):
        try:
            values.append(decode_json(line, kind))
        except JsonError as error:
            problems.append(f"{path}:{number}: {str(error).replace(' at line 1:', ':')}")
    with suppress(JsonError):
        values.append(decode_json(last, kind))
    return values, problems


@cache
def _decoder(kind: Any, strict: bool) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, strict=strict)


def _syntax_problem(problem: str, text: bytes) -> str:
    if "truncated" in problem:
        return "the JSON ends too early"
    place = re.search(r"\(byte (\d+)\)", problem)
    line = text.count(b"\n", 0, int(place[1])) + 1 if place else 1
    return f"not valid JSON at line {line}: {problem}"


# The closing quote is optional, so that the search never comes back from the end of the text to try the next quote.
_STRING = rb'"[^"\\]*(?:\\.?[^"\\]*)*"?'
_NON_FINITE = re.compile(rb"NaN|Infinity")
_STRING_OR_NON_FINITE = re.compile(_STRING + rb"|(-?Infinity|NaN)", re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_PAIR = rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_PAIR_HALF_OR_ESCAPE = re.compile(_PAIR + rb"|\\(u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.", re.DOTALL)
_STRING_OR_BRACKET = re.compile(_STRING + rb"|([\[{])|([\]}])", re.DOTALL)


def _standard(text: bytes) -> bytes:
    """Spell what Python's JSON writer adds to the standard as strings that the standard allows."""
    text = _quote_non_finite(text)
    return _PAIR_HALF_OR_ESCAPE.sub(_escape_half, text) if _SURROGATE.search(text) else text


def _quote_non_finite(text: bytes) -> bytes:
    """Turn the bare tokens NaN and Infinity into strings.

    Strings cannot span lines in JSON, so only the lines that hold a token are looked at.
    """
    pieces: list[bytes] = []
    done = 0
    for match in _NON_FINITE.finditer(text):
        if match.start() < done:
            continue
        start = max(text.rfind(b"\n", done, match.start()), done)
        end = text.find(b"\n", match.end())
        end = len(text) if end < 0 else end
        pieces += [text[done:start], _STRING_OR_NON_FINITE.sub(_quote, text[start:end])]
        done = end
    if not pieces:
        return text
    pieces.append(text[done:])
    return b"".join(pieces)


def _quote(match: re.Match[bytes]) -> bytes:
    return b'"%s"' % match[1] if match[1] else match[0]


def _escape_half(match: re.Match[bytes]) -> bytes:
    return rb"\\" + match[1] if match[1] else match[0]


def cut_to_depth(text: bytes, levels: int) -> bytes:
    """Return a JSON text with null in place of what is nested deeper than so many levels."""
    pieces: list[bytes] = []
    depth = done = 0
    for token in _STRING_OR_BRACKET.finditer(text):
        if token[1]:
            depth += 1
            if depth == levels + 1:
                pieces += [text[done : token.start()], b"null"]
        elif token[2]:
            if depth == levels + 1:
                done = token.end()
            depth -= 1
    if depth <= levels:
        pieces.append(text[done:])
    return b"".join(pieces)
