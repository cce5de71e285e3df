"""What a comparison with an engine found, as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_msprobe.extensions.inference.inference_pair import LOG_PROBABILITIES
from pytest_msprobe.extensions.inference.options import JSON
from pytest_msprobe.modes.compare.rows import ComparedCall, ComparedCalls
from pytest_msprobe.reports.write_errors import cannot_be_written, end_as_incomplete
from pytest_msprobe.results.result import as_json
from pytest_msprobe.storage.atomic_write import atomic_write

if TYPE_CHECKING:
    from pytest_msprobe.extensions.inference.inference_pair import InferencePair

# So many of the tokens whose log probabilities differ most are listed.
_WORST = 20


class InferenceJson:
    """Writes the file when all items have finished."""

    def __init__(self, path: Path, pair: InferencePair, calls: ComparedCalls) -> None:
        self._path = path
        self._pair = pair
        self._calls = calls
        self._line = f"msprobe inference JSON: {path}"

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the file."""
        if session.config.option.collectonly:
            return
        try:
            with atomic_write(self._path) as part:
                part.write_text(json.dumps(as_json(self._found()), indent=4), encoding="utf-8")
        except OSError as error:
            self._line = f"ERROR: {JSON}: {cannot_be_written(self._path, error)}"
            end_as_incomplete(session)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say where the file is."""
        if not terminalreporter.config.option.collectonly:
            terminalreporter.line(self._line)

    def _found(self) -> dict[str, Any]:
        calls = list(self._calls)
        culprits = [call.record for call in calls if call.cause == "culprit" and call.outcome == "fail"]
        weights = [row.place for call in calls for row in call.rows if row.group == "parameters" and row.differs]
        pairs = self._pair.pairs
        return {
            "first_module": culprits[0] if culprits else None,
            "culprits": culprits,
            "weights_that_differ": weights,
            "tokens": {
                "compared": len(pairs),
                "requests": list(pairs.requests),
                "target_only": pairs.target_only,
                "golden_only": pairs.golden_only,
            },
            "log_probabilities": self._log_probabilities(calls),
            "notes": list(self._pair.evidence_notes),
            "values": [self._value(call) for call in calls if call.record != LOG_PROBABILITIES],
        }

    def _value(self, call: ComparedCall) -> dict[str, Any]:
        rows = [row for row in call.rows if row.group != "parameters"]
        plain: dict[str, Any] = {"name": call.record, "outcome": call.outcome, "cause": call.cause}
        plain["target"], plain["golden"] = call.target, call.golden
        plain["reasons"] = [message for row in call.rows for message in row.messages]
        if rows:
            plain |= rows[0].metrics
            plain["worst_token"] = self._token(*rows[0].worst) if rows[0].worst else None
        return plain

    def _log_probabilities(self, calls: list[ComparedCall]) -> dict[str, Any] | None:
        call = next((each for each in calls if each.record == LOG_PROBABILITIES), None)
        found = self._pair.log_probabilities if call is not None and call.outcome != "skip" else None
        if call is None or found is None:
            return None
        pairs = self._pair.pairs
        divergence = float(found.divergence.mean()) if len(found.divergence) else None
        return {
            **call.rows[0].metrics,
            "clip": self._pair.clip,
            "tokens": len(found.pairs),
            "source": found.source,
            "divergence": divergence,
            "worst": [
                {
                    **self._token(
                        int(pairs.request[found.pairs[place]]), int(pairs.position[found.pairs[place]]) + found.ahead
                    ),
                    "target": float(found.target[place]),
                    "golden": float(found.golden[place]),
                }
                for place in found.worst(_WORST)
            ],
        }

    def _token(self, request: int, position: int) -> dict[str, Any]:
        return {"request": self._pair.pairs.requests[request], "position": position}
