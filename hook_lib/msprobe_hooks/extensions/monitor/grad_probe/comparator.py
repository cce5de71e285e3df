"""Two probed runs compared by the signs of their gradients: ``GradComparator``, with msprobe's names and files.

The package exports it, so that numpy is imported where runs are compared and not here.
"""

from __future__ import annotations

import csv
import logging
import math
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe_hooks.errors import MonitorError

if TYPE_CHECKING:
    from msprobe_hooks.extensions.monitor.grad_probe.sign_maps import SignSimilarity

_log = logging.getLogger("msprobe_hooks")

_PICTURES = "similarities_picture"


class GradComparator:
    """Writes how much the gradients of two runs agree in sign, step by step."""

    @classmethod
    def compare_distributed(cls, path1: str | Path, path2: str | Path, output_dir: str | Path) -> None:
        """Compare each rank that two runs have in common, into a folder ``rank<N>`` each.

        Args:
            path1: The ``dump_path`` of a run with task ``grad_probe``.
            path2: The ``dump_path`` of the other run.
            output_dir: The folder of the results.

        Raises:
            MonitorError: The runs cannot be compared; the text names the file and what to do.
        """
        from msprobe_hooks.extensions.monitor.grad_probe.sign_maps import rank_folders

        first, second = rank_folders(path1), rank_folders(path2)
        ranks = sorted(first.keys() & second.keys())
        if not ranks:
            raise MonitorError(
                f"no rank is in both runs: {path1} has {sorted(first)}, {path2} has {sorted(second)}; "
                "pass the dump_path of two runs of the same layout"
            )
        alone = sorted(first.keys() ^ second.keys())
        if alone:
            _log.warning("ranks left out, as only one of %s and %s has them: %s", path1, path2, alone)
        for rank in ranks:
            cls.compare(first[rank], second[rank], Path(output_dir, f"rank{rank}"))

    @classmethod
    def compare(cls, path1: str | Path, path2: str | Path, output_dir: str | Path) -> None:
        """Compare the folders of one rank: write ``similarities.csv`` and a picture for each parameter.

        Pictures are left out where matplotlib is not installed.

        Args:
            path1: The folder of a rank of a run with task ``grad_probe``.
            path2: The folder of a rank of the other run.
            output_dir: The folder of the results.

        Raises:
            MonitorError: The ranks cannot be compared; the text names the file and what to do.
        """
        from msprobe_hooks.extensions.monitor.grad_probe.sign_maps import sign_similarity

        similarity, folder = sign_similarity(path1, path2), Path(output_dir)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _write_table(similarity, folder / "similarities.csv")
            if find_spec("matplotlib") is None:
                _log.warning(
                    "%s: not written, as matplotlib is not installed; pip install pytest-msprobe[pictures]",
                    folder / _PICTURES,
                )
            else:
                _draw(similarity, folder / _PICTURES)
        except OSError as error:
            raise MonitorError(f"{folder}: cannot be written: {error}; pass another folder") from None


def _series(similarity: SignSimilarity) -> dict[str, list[float]]:
    rows = dict(zip(similarity.parameters, similarity.shares.tolist(), strict=True))
    return {**rows, "summary": similarity.summary.tolist()}


def _write_table(similarity: SignSimilarity, path: Path) -> None:
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["step", *similarity.steps])
        rows.writerows(
            [name, *("" if math.isnan(share) else share for share in row)] for name, row in _series(similarity).items()
        )


def _draw(similarity: SignSimilarity, folder: Path) -> None:
    from matplotlib.figure import Figure

    from msprobe_hooks.extensions.monitor.grad_probe.sign_maps import as_file_name

    folder.mkdir(exist_ok=True)
    for name, shares in _series(similarity).items():
        figure = Figure()
        axes = figure.add_subplot(xlabel="steps", ylabel="similarities", title=f"{name}_similarities")
        axes.plot(similarity.steps, shares, marker="." if len(similarity.steps) == 1 else None)
        figure.savefig(folder / f"{as_file_name(name)}_similarities.png")
