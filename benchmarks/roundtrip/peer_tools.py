"""Run msprobe's own tools, and our plugin, on recordings of both sides and say what each made of them.

python benchmarks/roundtrip/peer_tools.py [--family lstm ...] [--version 1.2.2 26.2.0]
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from record_all import ENVIRONMENTS, RECORDINGS, ROOT, TOOLS, environment, record

OUTPUT = ROOT / ".bench" / "roundtrip-tools"


def rank_folder(version: str, tool: str, family: str, level: str, task: str) -> Path:
    """Return the folder that holds a recording's ``dump.json``."""
    (path,) = record(version, tool, family, level, task).glob("step0/*/dump.json")
    return path.parent


def run(name: str, *words: object) -> Path | None:
    """Run a tool with a fresh output folder at the end of its command line; return the folder, None where it failed."""
    folder = OUTPUT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run([*map(str, words), "-o", str(folder)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(done.stdout[-1500:], done.stderr[-1500:])
        return None
    return folder


def paths_file(name: str, **paths: Path) -> Path:
    """Write the JSON file that names the inputs of version 1.2.2's tools."""
    path = OUTPUT / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({key: str(value) for key, value in paths.items()}))
    path.chmod(0o640)
    return path


def compare(version: str, family: str, level: str, task: str) -> str:
    """Compare our recording (target) with msprobe's (golden) by msprobe's ``compare``."""
    ours, peer = (rank_folder(version, tool, family, level, task) / "dump.json" for tool in reversed(TOOLS))
    program = environment(version).with_name("msprobe")
    name = f"{version}-compare-{family}-{level}-{task}"
    if version == "1.2.2":
        inputs = paths_file(name, npu_path=ours, bench_path=peer)
        folder = run(name, program, "-f", "pytorch", "compare", "-i", inputs)
    else:
        folder = run(name, program, "compare", "-tp", ours, "-gp", peer)
    if folder is None:
        return "FAILED"
    rows = _table(version, next(folder.glob("compare_result*")))
    verdicts = Counter(row.get("Result", row.get("Accuracy Reached or Not", "")) for row in rows)
    matched = sum(row["Bench Name"] != "N/A" for row in rows)
    return f"{len(rows)} rows, {matched} matched, " + ", ".join(f"{n} {v or 'pass'}" for v, n in verdicts.items())


def _table(version: str, path: Path) -> list[dict[str, str]]:
    if path.suffix == ".xlsx":
        script = "import pandas, sys; pandas.read_excel(sys.argv[1], keep_default_na=False).to_csv(sys.argv[2])"
        converted = path.with_suffix(".csv")
        subprocess.run([environment(version), "-c", script, path, converted], check=True)
        path = converted
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def graph(version: str, family: str, level: str, *, of: tuple[str, ...]) -> str:
    """Build the graph of one recording, or compare those of two."""
    folders = [rank_folder(version, tool, family, level, "statistics") for tool in of]
    program = environment(version).with_name("msprobe")
    name = f"{version}-graph-{family}-{level}-{'-'.join(of)}"
    if version == "1.2.2":
        inputs = paths_file(name, **dict(zip(("npu_path", "bench_path"), folders, strict=False)))
        # Without -cs it wants one stack per record, and fails on 26.x's grouped ones just as on ours.
        folder = run(name, program, "-f", "pytorch", "graph", "-i", inputs, "-cs")
    else:
        options = [word for pair in zip(("-tp", "-gp"), folders, strict=False) for word in pair]
        folder = run(name, program, "graph_visualize", *options)
    return "FAILED" if folder is None else ", ".join(path.name.partition("_")[0] for path in folder.glob("*.vis*"))


def check(version: str, tool: str, family: str, level: str, task: str) -> str:
    """Run msprobe's accuracy check on a recording."""
    path = rank_folder(version, tool, family, level, task) / "dump.json"
    name = f"{version}-check-{tool}-{family}-{level}-{task}"
    if version == "1.2.2":
        words = [ROOT / "benchmarks" / "peer" / "run_ut_on_cpu.py", "--no-collection", "-f", "pytorch", "run_ut"]
    else:
        words = [ROOT / "benchmarks" / "peer" / "acc_check_on_cpu.py", "acc_check"]
    folder = run(name, environment(version), *words, "-api_info", path)
    if folder is None:
        return "FAILED"
    with next(folder.glob("*result*.csv")).open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.reader(file))[1:]
    verdicts = Counter(f"{row[1].strip() or '-'}/{row[2].strip() or '-'}" for row in rows)
    return f"{len(rows)} calls (forward/backward): " + ", ".join(f"{n} {v}" for v, n in verdicts.most_common())


def plugin(version: str, tool: str, family: str, level: str, task: str) -> str:
    """Run our plugin on a recording."""
    path = rank_folder(version, tool, family, level, task) / "dump.json"
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--msprobe-dump", path]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    return done.stdout.strip().rpartition("\n")[2]


def main() -> None:
    """Run everything and print one line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", nargs="*", default=["lstm", "spellings"])
    parser.add_argument("--version", nargs="*", default=list(ENVIRONMENTS))
    options = parser.parse_args()
    for version in options.version:
        for family in options.family:
            for level, task in RECORDINGS:
                kind = f"{version} {family} {level} {task}"
                print(kind, "compare:", compare(version, family, level, task), flush=True)
                if level == "L0" or task == "md5":
                    continue
                for tool in TOOLS:
                    print(kind, f"our plugin on {tool}:", plugin(version, tool, family, level, task), flush=True)
                    if level == "L1":
                        print(kind, f"check of {tool}:", check(version, tool, family, level, task), flush=True)
            for level in ("mix", "L0"):
                for of in (TOOLS[1:], TOOLS[::-1]):
                    made = graph(version, family, level, of=of)
                    print(f"{version} {family} {level} graph of {' and '.join(of)}: {made}", flush=True)


if __name__ == "__main__":
    main()
