"""Records that a terminal would obey."""

from __future__ import annotations

from tests.support.dumps.dump_files import Json

ESCAPES = "\x1b]0;pwned\x07\x1b[31m\u202e\x00\r"


def shapeless(output: str) -> set[str]:
    """Return the characters of an output that have no shape, apart from tabs and line breaks."""
    return {char for char in output if not char.isprintable() and char not in "\n\t"}


def escaping_records(softmax: Json) -> Json:
    """Return records of which one has a name, one a value and one a tensor's type that a terminal would obey."""
    (tensor,) = softmax["input_args"]
    return {
        f"Torch.{ESCAPES}.0.forward": softmax,
        "Functional.softmax.1.forward": softmax | {"input_kwargs": {"dim": {"type": ESCAPES, "value": 1}}},
        "Functional.softmax.2.forward": softmax | {"input_args": [tensor | {"dtype": ESCAPES}]},
        "Functional.softmax.3.forward": softmax | {"input_args": {ESCAPES: 1}},
        "Functional.softmax.4.forward": softmax | {"input_kwargs": {ESCAPES: 1}},
        "Functional.softmax.5.forward": softmax | {"exception": ESCAPES},
        "Functional.softmax.6.forward": softmax | {"output": [tensor | {"Max": "Infinity", "dtype": ESCAPES}]},
    }
