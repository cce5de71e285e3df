"""Write ``docs/command-line.md``, the page of every option, setting and command: ``make command-line``.

All of it comes from the parsers, so that the page says what ``--help`` says; a test compares the two.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import pytest_msprobe.plugin
from pytest_msprobe.commands.main import listed_commands, make_parser
from pytest_msprobe.commands.registry import MSPROBE, commands

PAGE = Path(__file__).parents[1] / "docs" / "command-line.md"

# The page that says more of a group of options.
_PAGES = {
    "what to check": "user-guide.md",
    "how to check": "standards.md",
    "devices and workers": "containment.md",
    "results and reports": "tools.md",
    "journal and resume": "journal.md",
    "compare": "comparing.md",
    "overflow": "overflow.md",
    "monitor": "monitor.md",
    "communication": "communication.md",
    "environment": "environment.md",
    "checkpoint": "environment.md",
    "record": "recording.md",
}
_START = """\
# Command line

The options of pytest by job, the settings of its configuration file, and the commands of `pytest-msprobe`.
`pytest --help` and `pytest-msprobe COMMAND --help` show the same texts.

<!-- Written by `make command-line` from the parsers: change the texts there. -->

See also [pytest-msprobe](#pytest-msprobe) for its commands, and [shell completion](#shell-completion).
"""
_SETTINGS = """\
## Settings

For `pytest.ini`, or `[tool.pytest.ini_options]` in `pyproject.toml`.
`-o SETTING=VALUE` sets one for a single run; paths are then relative to the folder in which pytest starts, not to that
of the ini file.
Options have no settings: `addopts` holds those of every run.
"""
_COMPLETION = """\
## Shell completion

Shells complete the options of pytest, and the commands, options and values of `pytest-msprobe`,
with [argcomplete](https://kislyuk.github.io/argcomplete/) in the same environment:

    pip install 'pytest-msprobe[completion]'
    eval "$(register-python-argcomplete pytest pytest-msprobe)"

Add the second line to `~/.bashrc` or `~/.zshrc` to have it in every shell.
"""
# What Markdown would read as its own, and names of files, fields, options and arguments.
_CODE = re.compile(
    r".*[*<>\[\]=_|].*|--?[\w-]*|[A-Za-z]\w*(\.\w+)+|\.\w[\w.]*|\w+:[\w-]+|\S+::\S+|\S+/\S+\.\w+|[A-Z]{3,}\d?|'.*'"
)
_PLAIN = frozenset(("API", "CPU", "CSV", "GPU", "HTML", "JSON", "NPU", "XML", "YAML"))
_TOKEN = re.compile(r"(?<!\w)'[^']+'(?!\w)|\S+")
_PARTS = re.compile(r"(\(?)(.*?)([,;:.)]*)")


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """Return the page."""
    parser = _pytest_parser()
    settings = parser._inidict
    options = (_group(group) for group in parser._groups if group.options)
    return "\n".join([_START, *options, _settings(settings), *_commands(), _COMPLETION])


def _pytest_parser() -> Any:
    """Return a parser of pytest that has our options and settings alone."""
    manager = pytest.PytestPluginManager()
    parser = pytest.Parser(_ispytest=True)
    manager.hook.pytest_addhooks.call_historic(kwargs={"pluginmanager": manager})
    manager.hook.pytest_addoption.call_historic(kwargs={"parser": parser, "pluginmanager": manager})
    manager.register(pytest_msprobe.plugin)
    return parser


def _group(group: Any) -> str:
    # A group's title is that of its section in --help.
    job = group._arggroup.title.removeprefix("msprobe: ")
    rows = [_option_row(option.attrs()) for option in group.options]
    # The option that chooses a kind of run comes first.
    rows.sort(key=lambda row: "`--msprobe-dump" not in row[0] and "`--msprobe-compare PATH" not in row[0])
    table = _table(("option", "meaning"), rows)
    return f"## {job.capitalize()}\n\n{_more(_PAGES[job])}\n\n{table}"


def _more(page: str) -> str:
    return f"More: [{page.removesuffix('.md').replace('-', ' ')}]({page})."


def _option_row(option: Mapping[str, Any]) -> tuple[str, str]:
    return _usage(option), _prose(option["help"])


def _usage(option: Mapping[str, Any]) -> str:
    """Return an option, or an argument, as one writes it."""
    metavar = option["metavar"] or option["dest"].upper()
    if option["choices"] is not None:
        metavar = option["metavar"] or "|".join(option["choices"])
    value = {0: "", "?": f"[={metavar}]"}.get(option["nargs"], f" {metavar}")
    names = option["option_strings"]
    return ", ".join(f"`{name}{value}`" for name in names) if names else f"`{metavar}`"


def _settings(settings: Mapping[str, Any]) -> str:
    rows = [(f"`{name}`", kind, _prose(text)) for name, (text, kind, _) in sorted(settings.items())]
    return f"{_SETTINGS}\n{_table(('setting', 'type', 'meaning'), rows)}"


def _commands() -> Iterator[str]:
    parser = make_parser([word for name, _ in commands() for word in name.split()])
    rows = [
        (f"[{name}](#pytest-msprobe-{name})", job, _prose(text))
        for job, texts in listed_commands().items()
        for name, text in texts.items()
    ]
    yield f"## pytest-msprobe\n\n{_prose(parser.description or '')}\n\n{_table(('command', 'about', 'meaning'), rows)}"
    for name, command in commands():
        yield from _below(name)
        shown = parser
        for word in name.split():
            shown = _choices(shown)[word]
        rows = [_argument_row(action) for action in shown._actions if action.dest != "help"]
        yield (
            f"### pytest-msprobe {name}\n\n{shown.description}\n{_more(command.page)}\n\n"
            f"    pytest-msprobe {name} {command.example}\n\n{_table(('argument', 'meaning'), rows)}"
        )


def _below(name: str) -> Iterator[str]:
    """Yield the table of msprobe's own commands before the first of them."""
    below = commands().of_msprobe
    if below and name == f"{MSPROBE} {next(iter(below))}":
        rows = [(f"[{each}](#pytest-msprobe-msprobe-{each})", _prose(command.help)) for each, command in below.items()]
        yield f"### pytest-msprobe {MSPROBE}\n\n{_table(('command', 'meaning'), rows)}"


def _choices(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    (choices,) = (action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return choices


def _argument_row(action: argparse.Action) -> tuple[str, str]:
    return _usage(vars(action)), _prose((action.help or "") % vars(action))


def _table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    titles = list(titles)
    lines = [titles, *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    head, *body = (f"| {' | '.join(line)} |\n" for line in lines)
    return "".join([head, f"|{'---|' * len(titles)}\n", *body])


def _prose(text: str) -> str:
    """Return a help text with options, file names and patterns as code."""
    return _TOKEN.sub(lambda found: _token(found[0]), text).replace("` `", " ")


def _token(token: str) -> str:
    if token.startswith("'"):
        return f"`{token}`"
    found = _PARTS.fullmatch(token)
    assert found is not None
    start, core, end = found.groups()
    if core in _PLAIN or not _CODE.fullmatch(core):
        return token
    return f"{start}`{core}`{end}"


if __name__ == "__main__":
    main()
