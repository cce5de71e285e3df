"""Recording functions that no table lists, because a user asked for them by name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

from msprobe_hooks.recording.interposition import Interposition
from msprobe_hooks.torch.call_mode import is_traced
from msprobe_hooks.torch.recorder import TorchRecorder


class CustomApi:
    """Records calls of ``module.api`` between ``begin`` and ``end``; what it calls inside is not recorded again.

    ``qualified`` is the name that they get. A Python function stays the same object. Any other callable is replaced in
    its module for that time.
    """

    def __init__(self, recorder: TorchRecorder, module: Any, api: str, qualified: str) -> None:
        self._recorder = recorder
        self._module = module
        self._api = api
        self._name = qualified
        self._interposed: Interposition | None = None
        self._replaced: Any = None

    def begin(self) -> None:
        """Watch the function."""
        function = getattr(self._module, self._api)
        if isinstance(function, FunctionType) and not function.__closure__:
            self._interposed = Interposition(function, self._around)
            return
        self._replaced = function

        def recording(*args: Any, **kwargs: Any) -> Any:
            return self._around(function, args, kwargs)

        setattr(self._module, self._api, recording)

    def end(self) -> None:
        """Leave the function as it was."""
        if self._interposed is not None:
            self._interposed.remove()
            self._interposed = None
        elif self._replaced is not None:
            setattr(self._module, self._api, self._replaced)
            self._replaced = None

    def _around(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        recorder = self._recorder
        if not recorder.is_recording or recorder.is_suspended or is_traced():
            return function(*args, **kwargs)
        call = recorder.api_call(f"{self._name}.{recorder.number(self._name)}.forward", sys._getframe(2))
        call.begin(args, kwargs)
        return call.run_as_a_whole(function, args, kwargs)
