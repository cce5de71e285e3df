"""Names on the command line that no record has: which are unknown, and which records there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from msprobe_hooks.dump.names import parse_api_name
from msprobe_hooks.messages import closest, did_you_mean, id_name, listed
from pytest_msprobe.run.options import Options

# With what msprobe's configuration calls them.
_FLAGS = (("--msprobe-only", "white_list"), ("--msprobe-skip", "black_list"))
_NAMES_SHOWN = 3

_lines_key = pytest.StashKey[list[str]]()


def check_patterns(config: pytest.Config, options: Options, dumps: Iterable[Any]) -> None:
    """Note for the header the patterns of ``--msprobe-only`` and ``--msprobe-skip`` that match no API of the dumps.

    Lists of msprobe's configuration, by their own names, are looked at as well.
    """
    wanted_by = {
        flag if config.getoption(flag.strip("-").replace("-", "_")) else in_config: patterns
        for (flag, in_config), patterns in zip(_FLAGS, (options.only, options.skip), strict=True)
    }
    if not any(wanted_by.values()):
        return
    config.stash[_lines_key] = lines = list[str]()
    apis = _spellings(name for dump in dumps for name in getattr(dump, "api_names", ()))
    for flag, patterns in wanted_by.items():
        unknown = (
            [pattern for pattern in patterns if not any(fnmatchcase(api, pattern) for api in apis)] if apis else []
        )
        if unknown:
            names = ", ".join(map(repr, unknown))
            qualified = sorted(api for api in apis if "." in api)
            hint = did_you_mean(unknown[0], apis) or f"; the records are of {listed(qualified, _NAMES_SHOWN)}"
            lines.append(f"msprobe: warning: {flag}: no record matches {names}{hint}")


def header(config: pytest.Config) -> list[str]:
    """Return the lines of a run's header on patterns that match nothing."""
    return config.stash.get(_lines_key, [])


def summary_lines(config: pytest.Config) -> list[str]:
    """Return the same lines for the end of a run whose header is not shown."""
    return header(config) if config.option.verbose < 0 else []


def _spellings(names: Iterable[str]) -> set[str]:
    """Return the APIs of records as patterns may spell them: ``Functional.conv2d`` and ``conv2d``."""
    apis = set[str]()
    # Records of one API differ in call and direction alone.
    for name in {name.rsplit(".", 2)[0]: name for name in names}.values():
        try:
            parsed = parse_api_name(name)
        except ValueError:
            continue
        apis |= {parsed.api, parsed.qualified_api}
    return apis


def with_record_names(error: pytest.UsageError, dumps: dict[Path, Any]) -> pytest.UsageError:
    """Return pytest's error on ids that were not found, with names that the dumps have."""
    return pytest.UsageError(*(f"{text}{_hint(str(text), dumps)}" for text in error.args))


def _hint(text: str, dumps: dict[Path, Any]) -> str:
    argument = text.partition("\n")[0].removeprefix("not found: ")
    path, _, requested = argument.partition("::")
    names = [id_name(name) for name in getattr(dumps.get(Path(path)), "api_names", ())]
    if not text.startswith("not found: ") or not names:
        return ""
    return f"; the dump has {listed(_near(requested, names), _NAMES_SHOWN)}"


def _near(requested: str, names: Sequence[str]) -> list[str]:
    """Return the names of the same API, or of that which has the most similar name; all where there is neither."""
    apis = {name.rsplit(".", 2)[0] for name in names}
    api = requested.rsplit(".", 2)[0]
    nearest = api if api in apis else closest(api, apis)
    return [name for name in names if name.rsplit(".", 2)[0] == nearest] or list(names)
