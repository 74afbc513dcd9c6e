"""The notebook runs from its first cell to its last, and draws what it says.

It is stored without outputs: they would hold times, the SIMD level of a machine, and pictures that differ with versions
of Matplotlib and Graphviz, and any change would rewrite them all. docs/examples.md shows outputs of the same steps.
"""

from __future__ import annotations

import ast
import base64
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "examples"
NOTEBOOK = FOLDER / "from_a_derivative_to_mnist.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
UNREACHABLE = "http://127.0.0.1:9"  # a proxy: where MNIST is not on this machine, the built-in digits take its place


def source(cell: dict) -> str:
    return "".join(cell["source"])


def test_it_is_stored_without_outputs():
    code = [cell for cell in CELLS if cell["cell_type"] == "code"]
    assert len(code) > 15
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


def test_its_code_is_python():
    for cell in CELLS:
        if cell["cell_type"] == "code":
            ast.parse(re.sub(r"^%.*$", "", source(cell), flags=re.MULTILINE))


def test_its_links_lead_somewhere():
    text = "".join(source(cell) for cell in CELLS if cell["cell_type"] == "markdown")
    links = re.findall(r"\]\(([^):]+)\)", text)
    assert links
    for link in links:
        assert (FOLDER / link).exists(), link


@pytest.fixture
def executed(tmp_path_factory) -> list[dict]:
    """The cells after `jupyter nbconvert --execute`."""
    for package in ("nbconvert", "ipykernel", "matplotlib", "graphviz"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}: pip install '.[notebook]'")
    if shutil.which("dot") is None:
        pytest.skip("needs Graphviz's program dot")
    folder = tmp_path_factory.mktemp("notebook")
    environment = os.environ | {
        "HOME": str(folder),
        "IPYTHONDIR": str(folder),
        "JUPYTER_RUNTIME_DIR": str(folder),
        "MICROGRAD_CACHE": str(folder),
    }
    environment.pop("MPLBACKEND", None)
    if data := environment.get("MICROGRAD_MNIST"):
        environment["MICROGRAD_MNIST"] = os.path.abspath(data)
    else:
        environment |= {"https_proxy": UNREACHABLE, "HTTPS_PROXY": UNREACHABLE, "http_proxy": UNREACHABLE}
    words = ["--to", "notebook", "--execute", "--ExecutePreprocessor.timeout=120", "--output-dir", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "nbconvert", *words, NOTEBOOK],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    cells: list[dict] = json.loads((folder / NOTEBOOK.name).read_text(encoding="utf-8"))["cells"]
    return cells


def printed(cells: list[dict]) -> str:
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    return "".join("".join(output["text"]) for output in outputs if output.get("name") == "stdout")


def pictures(cells: list[dict], kind: str) -> list[str]:
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    return ["".join(output["data"][kind]) for output in outputs if kind in output.get("data", {})]


@pytest.mark.slow
def test_every_cell_runs_and_its_pictures_are_drawn(executed):
    """The cells assert what they show; this looks for what they print and draw. One test, as it takes a while."""
    code = [cell for cell in executed if cell["cell_type"] == "code"]
    assert all(cell["execution_count"] for cell in code)
    assert not [output for cell in code for output in cell["outputs"] if output["output_type"] == "error"]
    text = printed(executed)
    assert re.search(r"the same 20 losses, \d+ times faster", text)
    assert "group_0[4i + j] = tanh(layers.0.bias[j] + sum_k(" in text
    assert len(re.findall(r"^epoch \d: loss 0\.\d+, 9\d\.\d+% of the test set right", text, flags=re.MULTILINE)) == 3
    plots = [base64.b64decode(picture) for picture in pictures(executed, "image/png")]
    assert len(plots) == 5
    assert all(plot.startswith(b"\x89PNG") and len(plot) > 2000 for plot in plots)
    graphs = pictures([cell for cell in code if "\ndraw_dot(" in f"\n{source(cell)}"], "image/svg+xml")
    expression, neuron, groups = map(ElementTree.fromstring, graphs)
    for picture, some in ((expression, {"L", "a", "data -8", "grad -4"}), (neuron, {"tanh", "bias", "grad -1.5"})):
        assert some <= {"".join(node.itertext()).strip() for node in picture.iter() if node.tag.endswith("text")}
    assert "16 x tanh(sum(P, 4 x mul(P, R)))" in "".join(groups.itertext())
