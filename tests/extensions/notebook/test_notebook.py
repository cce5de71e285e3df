"""The notebook of the examples is run, as a server of notebooks would run it."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support.requirements import require

NOTEBOOK = Path(__file__).parents[3] / "examples" / "notebook" / "check.ipynb"


@pytest.mark.slow
def test_the_notebook_of_the_examples_shows_its_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("nbclient", "ipykernel", "pandas"):
        require(find_spec(package), package)
    for variable in ("TMPDIR", "IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(variable, str(tmp_path))
    first, *others = shown_by_cells(tmp_path)
    assert "recorded 11 calls, 10 backward records, 6 module records" in first
    records, checked, failures, compared, culprits, outcomes, numbers = others
    assert "0 of 21 records judged" in records
    assert "21 records: 19 pass, 2 fail" in checked
    assert "<td>Torch.softmax.0.forward</td><td>fail</td>" in checked
    assert "Torch.softmax.0.backward" in failures
    assert "Torch.linear" not in failures
    assert "<td>Functional.linear.0.forward</td><td>fail</td>" in compared.partition("culprit")[0]
    assert "Module.mix.Linear.forward.0" in culprits
    assert "fail" in outcomes
    assert "backwards" in numbers


def shown_by_cells(folder: Path) -> list[str]:
    """Run the notebook in a folder; return what each cell shows, as HTML where it has that. An error is raised."""
    with warnings.catch_warnings():
        # These packages warn of each other's versions.
        warnings.simplefilter("ignore")
        import nbformat
        from nbclient import NotebookClient

        notebook: Any = nbformat.read(NOTEBOOK, as_version=4)
        client = NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": folder}})
        client.execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert {output.output_type for output in outputs} == {"execute_result"}
    return [output.data.get("text/html", output.data["text/plain"]) for output in outputs]
