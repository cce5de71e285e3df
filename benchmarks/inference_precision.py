"""Small faults of an engine in bfloat16: which a comparison with its trainer finds, and where it alarms without one.

Decoders of several kinds and depths, each with a trainer in float32 and in bfloat16 and an engine in bfloat16, healthy
or with one fault; compared by the formula, by the trainer's other precision as the profile, and by the report that is
kept of it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from measure import ROOT, quote, table

sys.path.insert(0, str(ROOT))

from pytest_msprobe.extensions.inference.inference_pair import InferencePair
from pytest_msprobe.extensions.inference.inference_reports import InferenceJson
from pytest_msprobe.extensions.model_names.model_names import model_names
from pytest_msprobe.results.result import as_json
from tests.support.dumps.served_decoders import make_engine, serve
from tests.support.dumps.trained_decoders import HEALTHY, KINDS, Decoder, Fault, make_trainer, train

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Outcome:
    """The first module that a comparison of a decoder with a fault names, empty where it passes, and wrong weights."""

    decoder: Decoder
    fault: str
    golden: str
    way: str
    first: str
    warned: int
    weights: int

    @property
    def in_words(self) -> str:
        """What the comparison says."""
        if self.fault == HEALTHY.name:
            passed = f"passes, {self.warned} warned" if self.warned else "passes"
            return f"**alarm** at {self.first}" if self.first else passed
        named = f"; {self.weights} weights named" if self.weights else ""
        return (self.first or "hidden") + named


def faults(decoder: Decoder) -> Iterator[Fault]:
    middle = decoder.layers // 2
    yield HEALTHY
    yield Fault("scale 3 % off", scale=1.03)
    yield Fault("epsilon 1e-3 for 1e-6", epsilon=1e-3)
    yield Fault("one layer 1 % stale", stale=0.01, layer=middle)
    if decoder.window:
        yield Fault("window of 9 for 8", wider=1)
        yield Fault("window of 9 in one layer", wider=1, layer=middle)
    if decoder.kind == "moe":
        yield Fault("bias of the router 0.1 in one layer", bias=0.1, layer=middle)


def report(profile: Path, golden: Path) -> Path:
    """Return the report of a profile's comparison with the golden run, as ``--msprobe-json`` writes it."""
    path = profile / f"against-{golden.name}.json"
    pair = InferencePair(profile, golden, model_names(()))
    calls = [pair.compare(name) for name in pair.orders]
    path.write_text(json.dumps(as_json(InferenceJson(path, pair, calls).content())))
    return path


def outcomes(decoder: Decoder, wanted: set[str]) -> Iterator[Outcome]:
    is_float8 = decoder.kind == "kv8"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trained = {dtype: train(make_trainer(decoder, DTYPES[dtype]), folder / dtype) for dtype in DTYPES}
        profiles = {"float32": trained["bfloat16"], "bfloat16": trained["float32"]}
        if is_float8:
            # What the engine does on purpose belongs into the profile: keys and values in float8.
            rounded = train(make_trainer(decoder, torch.bfloat16, float8=True), folder / "float8")
            profiles = dict.fromkeys(profiles, rounded)
        reports = {golden: report(profile, trained[golden]) for golden, profile in profiles.items()}
        for fault in faults(decoder):
            if wanted and fault.name.split()[0] not in wanted:
                continue
            served = serve(make_engine(decoder, torch.bfloat16, fault), folder / fault.name.replace(" ", "-"))
            for golden in DTYPES:
                ways = {"formula": None, "profile": profiles[golden], "report": reports[golden]}
                for way, profile in ways.items():
                    pair = InferencePair(served, trained[golden], model_names(()), profile=profile)
                    calls = [pair.compare(value) for value in pair.values]
                    warned = sum(call.outcome == "warn" for call in calls)
                    weights = sum(row.group == "parameters" and row.differs for call in calls for row in call.rows)
                    yield Outcome(decoder, fault.name, golden, way, pair.first_culprit, warned, weights)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="*", default=KINDS, choices=KINDS)
    parser.add_argument("--layers", nargs="*", type=int, default=[2, 12, 48])
    parser.add_argument("--faults", nargs="*", default=[], help="first words: healthy scale epsilon one window bias")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    options = parser.parse_args()
    torch.set_num_threads(1)
    decoders = [
        Decoder(kind, depth, seed) for kind in options.kinds for depth in options.layers for seed in options.seeds
    ]
    found = []
    for decoder in decoders:
        for outcome in outcomes(decoder, set(options.faults)):
            found.append(outcome)
            print(f"{decoder}, golden {outcome.golden}, {outcome.way}: {outcome.fault}: {outcome.in_words}", flush=True)
    print(table(["fault", "golden run", "by the formula", "by a profile", "by its report"], list(rows(found))))
    alarms = sum(one.fault == HEALTHY.name and bool(one.first) for one in found)
    quote("healthy engines in bfloat16 that alarm", alarms, unit="engines", wanted="0")


def rows(found: list[Outcome]) -> Iterator[list[str]]:
    counts = defaultdict[tuple[str, str, str], Counter[bool]](Counter)
    for one in found:
        counts[one.fault, one.golden, one.way][bool(one.first)] += 1
    for fault, golden in dict.fromkeys((one.fault, one.golden) for one in found):
        ways = [counts[fault, golden, way] for way in ("formula", "profile", "report")]
        yield [fault, golden, *(f"{each[True]} of {each.total()}" for each in ways)]


if __name__ == "__main__":
    main()
