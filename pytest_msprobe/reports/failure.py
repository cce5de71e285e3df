"""The text of a failing item: what is wrong, how much, where, what was allowed, and how to run it again."""

from __future__ import annotations

from pytest_msprobe.results.result import DirectionResult, OutputResult


def failure_text(result: DirectionResult, rerun: str, verbosity: int = 0) -> str:
    """Return the failure as text.

    At verbosity 0 the deciding output is shown, at 1 every output, at 2 with every number that was measured.
    """
    lines = [f"{result.record} is wrong" if result.outputs else f"{result.record} failed{_how(result)}"]
    shown = result.outputs if verbosity > 0 else _deciding(result)
    for output in shown:
        lines += ["", *_output_lines(output, numbers=verbosity > 1)]
    if not result.outputs:
        lines += ["", result.verdict.reason]
    hidden = sum(output.verdict.outcome == "fail" for output in result.outputs) - len(_deciding(result))
    if hidden > 0 and verbosity == 0:
        lines += ["", f"{hidden} more wrong; -v shows every output"]
    for note in result.notes:
        lines += ["", note]
    return "\n".join([*lines, "", f"Run this item alone: {rerun}"])


def _how(result: DirectionResult) -> str:
    kind = result.breakdown
    return f" ({kind.value})" if kind is not None and kind.did_not_end else ""


def _deciding(result: DirectionResult) -> list[OutputResult]:
    return [output for output in result.outputs if output.verdict == result.verdict][:1]


def _output_lines(output: OutputResult, *, numbers: bool) -> list[str]:
    verdict = output.verdict
    tensor = f" {output.target_dtype} {output.shape}" if output.target_dtype else ""
    lines = [f"{output.path}{tensor}: {verdict.outcome} by {verdict.standard}"]
    lines += _indented(output.difference) + _indented(verdict.reason)
    if numbers:
        for name, value in verdict.metrics.items():
            allowed = f" (up to {verdict.limits[name]:.6g} allowed)" if name in verdict.limits else ""
            lines.append(f"    {name}: {value:.6g}{allowed}")
    return lines


def _indented(text: str) -> list[str]:
    return [f"  {line}" for line in text.splitlines()]
