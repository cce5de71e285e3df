"""Judging of every device by every tool, in processes."""

from __future__ import annotations

import functools
import importlib
import multiprocessing
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

import torch

from benchmarks.tools import calls, msprobe, ours, planted, tolerances
from benchmarks.tools.cases import Cases, Planted
from benchmarks.tools.judged import Judged
from benchmarks.tools.tool import Tool
from tests.corpus.fault import plain_name


def measured_tools(own: Sequence[str]) -> list[Tool]:
    """Return the tools that can be had here, and those of the caller, given as ``module:name``."""
    tools = [*ours.TOOLS, *msprobe.tools(), *tolerances.TOOLS]
    for text in own:
        module, _, name = text.partition(":")
        tools.append(getattr(importlib.import_module(module), name))
    return tools


@functools.cache
def everything() -> list[tuple[Cases, Planted]]:
    """Return all devices, those with many cases first, with the calls that they run."""
    corpus = Cases(calls.of_corpus())
    operators = {dtype: Cases(calls.of_operators(dtype)) for dtype in calls.DTYPES}
    pairs = [(corpus, device) for device in planted.right_devices()]
    for dtype, cases in operators.items():
        pairs += [(cases, device) for device in planted.right_devices_of_operators(dtype)]
    pairs += [(corpus, fault) for fault in planted.faults()]
    for dtype, cases in operators.items():
        names = dict.fromkeys(plain_name(recorded.call.name.api) for recorded in cases.calls)
        pairs += [(cases, fault) for name in names for fault in planted.faults_of(name, dtype)]
    return pairs


def run(units: Sequence[int], own: Sequence[str], jobs: int) -> Iterator[tuple[int, Judged]]:
    """Yield what the tools answered for each of these devices, as they are done."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=start, initargs=(own,)) as pool:
        waiting = {pool.submit(judge, unit): unit for unit in units}
        try:
            for future in as_completed(waiting):
                yield waiting.pop(future), future.result()
        finally:
            # Where one raises, or the caller stops, the others are not waited for.
            pool.shutdown(cancel_futures=True)


_TOOLS: list[Tool] = []


def start(own: Sequence[str]) -> None:
    """Prepare a process that judges."""
    # The calls are small: more threads would mostly wait for each other.
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    _TOOLS[:] = measured_tools(own)


def judge(unit: int) -> Judged:
    """Return what each tool says of a device."""
    cases, device = everything()[unit]
    judged = Judged(device.kind, device.name, device.is_faulty, [], [], {tool.name: [] for tool in _TOOLS})
    for case in cases.of(device):
        judged.calls.append(f"{case.recorded.dump.relative_to(calls.SCRATCH)}::{case.name}")
        judged.draws.append(case.draws)
        for tool in _TOOLS:
            try:
                judged.answers[tool.name].append(tool.judge(case))
            except Exception as error:
                raise RuntimeError(f"{tool.name} raised for {case.name} of {device.name}") from error
    return judged
