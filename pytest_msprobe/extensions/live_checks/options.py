"""Options of a live check."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypedDict, get_args

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.messages import parse_size
from msprobe_hooks.record import Framework, require_framework
from msprobe_hooks.recording.config import Settings, settings
from msprobe_hooks.recording.session import Model
from msprobe_hooks.recording.validators import one_of
from pytest_msprobe.engine.frameworks import missing_piece
from pytest_msprobe.storage.limits import DEFAULT_LIMITS, SaveOptions, parse_limits

# A choice: calls that are alike mostly fail alike; more of them cost more of the training's time.
_PER_API: Final = 3

Level = Literal["L1", "aten"]
OnFailure = Literal["warn", "fail", "stop"]


class LiveKeywords(TypedDict, total=False):
    """The fields of `LiveOptions` as keywords."""

    apis: Sequence[str]
    exclude: Sequence[str]
    level: Level
    sample: float
    per_api: int | None
    share: float | None
    backward: bool
    repeat: bool
    waiting: str
    on_failure: OnFailure
    journal: str | Path | None
    save_failures: str | Path | None
    seed: int
    framework: Framework
    model: Model | None


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveOptions:
    """Selection of checked calls, and the fate of wrong ones. Raises ConfigError where a value cannot be used.

    ``apis`` are parts of the names of records, such as ``Torch.matmul`` or ``linear``; none means all. ``exclude`` are
    APIs that are left out. ``level`` is that of a recording. A share ``sample`` of the calls is checked: at most
    ``per_api`` that are alike (None for all), or with a ``share`` as many as a share of the time pays for.
    ``waiting`` is the most memory, as ``500MiB``, that copies may take while calls wait for their gradients.
    ``journal`` and ``save_failures`` are a file and a folder to write. ``seed`` is that of the sample. ``framework`` is
    the one whose calls are checked; with MindSpore's those of the primitives that a ``model`` holds. With ``repeat``
    each result that is judged must have the same bits when the call is made once more.
    """

    apis: Sequence[str] = ()
    exclude: Sequence[str] = ()
    level: Level = "L1"
    sample: float = 1.0
    per_api: int | None = _PER_API
    share: float | None = None
    backward: bool = True
    repeat: bool = False
    waiting: str = "4GiB"
    on_failure: OnFailure = "warn"
    journal: str | Path | None = None
    save_failures: str | Path | None = None
    seed: int = 0
    framework: Framework = "pytorch"
    model: Model | None = None

    def __post_init__(self) -> None:
        _require_share("sample", self.sample)
        if self.share is not None:
            _require_share("share", self.share)
        if self.per_api is not None and (type(self.per_api) is not int or self.per_api < 1):
            raise ConfigError("per_api", self.per_api, "a whole number from 1, or None for all calls")
        if self.share is not None and self.per_api not in (None, _PER_API):
            raise ConfigError("per_api", self.per_api, "None where share is set, with which kinds of calls take turns")
        if type(self.repeat) is not bool:
            raise ConfigError("repeat", self.repeat, "True, False")
        require_framework(self.framework)
        missing = missing_piece(self.framework)
        if missing is not None:
            raise ConfigError("framework", self.framework, f"pytorch ({missing})")
        one_of(get_args(Level))("level", self.level)
        if self.repeat and self.framework != "pytorch":
            raise ConfigError("repeat", self.repeat, f"False with {self.framework}, whose calls torch judges")
        if self.level == "aten" and self.framework != "pytorch":
            raise ConfigError("level", self.level, f"L1 with {self.framework}")
        one_of(get_args(OnFailure))("on_failure", self.on_failure)
        if self.save_failures is not None and importlib.util.find_spec("safetensors") is None:
            raise ConfigError(
                "save_failures", str(self.save_failures), "only with safetensors: pip install 'pytest-msprobe[cases]'"
            )
        self.recording()
        self.waiting_bytes()

    def choice_in_words(self) -> dict[str, str]:
        """Return which calls are checked, as settings of a journal; what is as by default is left out."""
        quota = str(self.per_api or "all") if self.share is None else ""
        words = {
            "apis": ", ".join(self.apis),
            "exclude": ", ".join(self.exclude),
            "operators": "yes" if self.level == "aten" else "",
            "sample": f"{self.sample:g}" if self.sample < 1 else "",
            "per_api": quota,
            "share": "" if self.share is None else f"{self.share:g}",
            "gradients": "" if self.backward else "no",
            "repeat": "yes" if self.repeat else "",
        }
        return {name: word for name, word in words.items() if word}

    def recording(self) -> Settings:
        """Return what calls are seen, as of a recording. Raises ConfigError."""
        modes = ["all"] if self.backward else ["forward"]
        return settings(".", task="tensor", level=self.level, list=self.apis, exclude=self.exclude, data_mode=modes)

    def waiting_bytes(self) -> int:
        """Return how many bytes copies may take while calls wait for their gradients. Raises ConfigError."""
        size = parse_size(self.waiting) if isinstance(self.waiting, str) else None
        if size is None:
            raise ConfigError("waiting", self.waiting, "a size such as 500MiB or 4GiB")
        return size

    def saving(self) -> SaveOptions | None:
        """Return where failing cases are saved, None where they are not."""
        if self.save_failures is None:
            return None
        return SaveOptions(Path(self.save_failures).absolute(), *parse_limits(DEFAULT_LIMITS))


def _require_share(key: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
        raise ConfigError(key, value, "a number above 0 and up to 1")
