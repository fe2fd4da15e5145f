"""The notebook runs as it is, in an empty directory, and its cells do what they say."""

import json
import re
from html import unescape

import pytest
from kits.paths import ROOT

PATH = ROOT / "docs/start.ipynb"
STEPS = 60  # in place of the notebook's


def test_the_notebook_has_no_outputs_and_its_links_lead_to_files():
    cells = json.loads(PATH.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in code)
    links = re.findall(r"\]\(([^)#]+)", "".join(sum((cell["source"] for cell in cells), [])))
    assert links and not [link for link in links if not (PATH.parent / link).exists()]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """(directory, {id of a cell: its text, or else its HTML}) after all cells have run. A cell that fails raises."""
    import nbclient
    import nbformat

    directory = tmp_path_factory.mktemp("notebook")
    book = nbformat.read(PATH, as_version=4)
    cells = {cell["id"]: cell for cell in book.cells if cell.cell_type == "code"}
    settings, number = re.subn(r"STEPS = \d+", f"STEPS = {STEPS}", cells["settings"].source)
    assert number == 1
    cells["settings"].source = settings
    resources = {"metadata": {"path": str(directory)}}
    nbclient.NotebookClient(book, timeout=None, resources=resources).execute()
    return directory, {name: "".join(map(read, cell.outputs)) for name, cell in cells.items()}


def read(output) -> str:
    data = output.get("data", {})
    return output.get("text") or data.get("text/html") or data["text/plain"]


def page_in(text: str) -> str:
    """Returns the page that a cell shows inside the notebook."""
    [page] = re.findall(r'srcdoc="([^"]*)"', text)
    return unescape(page)


@pytest.mark.full
@pytest.mark.slow
def test_a_model_is_trained_and_its_report_shown(outputs):
    directory, texts = outputs
    assert f"done, step {STEPS} of {STEPS}" in texts["status"] and "loss █" in texts["status"]
    assert page_in(texts["report"]) == (directory / "start/run/report.html").read_text()
    assert "Predictions at each mask" in page_in(texts["attention"])


@pytest.mark.full
@pytest.mark.slow
def test_transformers_computes_the_same(outputs):
    _, texts = outputs
    assert texts["vectors"].startswith("(3, 128)\n")
    assert "fork" not in texts["export"] + texts["finetune"]
    difference, best = re.findall(r"^(?:largest|most) .*?: (.+)", texts["transformers"], re.M)
    assert float(difference) < 1e-4
    assert best.split() == re.findall(r"^.*?  (\S+) 0\.", texts["fill"], re.M)


@pytest.mark.full
@pytest.mark.slow
def test_a_classifier_is_trained(outputs):
    _, texts = outputs
    assert re.search(r"dev .* accuracy \S+ .* majority 0\.", texts["finetune"])
    assert texts["predict"].count("'prediction': ") == 2
