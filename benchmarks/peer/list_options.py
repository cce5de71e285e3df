"""Commands and options of the installed msprobe 26, as JSON; a test wants a row in docs/from-msprobe.md of each.

    .peer26/bin/python benchmarks/peer/list_options.py tests/data/msprobe_26_options.json

Its parsers are built and asked, and parse nothing. That of ``multi_acc_check`` has those of ``acc_check`` and ``-n``.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
from pathlib import Path

from msprobe import msprobe
from msprobe.pytorch.api_accuracy_checker.acc_check.acc_check import _acc_check_parser


def options_of(parser: argparse.ArgumentParser) -> list[str]:
    """Return the long spelling of each option, or its only one."""
    spellings = [action.option_strings for action in parser._actions if action.dest != "help" and action.option_strings]
    return sorted({max(each, key=len) for each in spellings})


def main() -> None:
    path, found = Path(sys.argv[1]), dict[str, list[str]]()

    def stop(parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                found.update((name, options_of(command)) for name, command in action.choices.items())
        raise SystemExit

    argparse.ArgumentParser.parse_args = stop
    sys.argv = ["msprobe", "compare"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        msprobe.main()
    own = argparse.ArgumentParser()
    _acc_check_parser(own)
    found["acc_check"] = options_of(own)
    path.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
