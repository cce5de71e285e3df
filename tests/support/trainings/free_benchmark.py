"""Programs run under the free benchmark of either framework."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def run_free_benchmark(
    debugger_type: Any, folder: Path, programs: Iterable[Callable[[], Any]], section: dict[str, Any], model: Any = None
) -> Any:
    """Run programs, a step each, with this section of a configuration; return the summary of the session.

    Tables are written below ``dump`` of the folder.
    """
    config = folder / "config.json"
    content = {"task": "free_benchmark", "dump_path": str(folder / "dump"), "free_benchmark": section}
    config.write_text(json.dumps(content))
    debugger = debugger_type(config_path=config)
    try:
        for program in programs:
            debugger.start(model)
            program()
            debugger.stop()
            debugger.step()
        assert debugger._session is not None
        return debugger._session.summary
    finally:
        debugger._finish()
