import base64
import re
from pathlib import Path
from typing import Any

import pytest
from bs4 import BeautifulSoup
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course_lib.teach.running.page import write_page

PIXEL = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
        "1f15c4890000000d49444154789c636001000000050001"
        "0d0a2db40000000049454e44ae426082"
    )
).decode()


def page_of(tmp_path: Path, notebook: NotebookNode, **settings: object) -> BeautifulSoup:
    write_page(notebook, tmp_path / "page.html", title="00_start", **settings)  # type: ignore[arg-type]
    return BeautifulSoup((tmp_path / "page.html").read_text(encoding="utf-8"), "html.parser")


def with_output(**data: Any) -> NotebookNode:
    names = {"html": "text/html", "text": "text/plain", "widget": "application/vnd.jupyter.widget-view+json"}
    bundle = {names[name]: value for name, value in data.items()}
    cell = new_code_cell("lab()", outputs=[new_output("display_data", data=bundle)])
    notebook = new_notebook(cells=[new_markdown_cell("# Title"), cell])
    notebook.metadata.widgets = {"application/vnd.jupyter.widget-state+json": {"state": {}}}
    return notebook


def test_the_page_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "dot.png").write_bytes(base64.b64decode(PIXEL))
    notebook = with_output(text="IntSlider()")
    notebook.cells.append(new_markdown_cell("It costs $3 or $5.\n\n![a dot](dot.png)"))
    page = page_of(tmp_path, notebook, images_from=tmp_path)
    assert page.find_all("script") == []
    assert page.find_all("link") == []
    (image,) = page.find_all("img")
    assert image["src"].startswith("data:image/png;base64,")
    assert image["alt"] == "a dot"
    assert page.title is not None
    assert page.title.text == "00_start"


@pytest.mark.parametrize("formula", ["so $x^2 + 1$ it is", "$$\n\\frac{a}{b}\n$$"])
def test_only_a_page_with_formulas_asks_for_their_renderer(tmp_path: Path, formula: str) -> None:
    notebook = new_notebook(cells=[new_markdown_cell(formula)])
    scripts = page_of(tmp_path, notebook).find_all("script", src=True)
    assert [bool(re.search("mathjax", str(script["src"]))) for script in scripts] == [True]


def test_a_widget_gives_way_to_the_picture_that_it_leaves(tmp_path: Path) -> None:
    notebook = with_output(widget={"model_id": "a"}, html="<img alt='three bars' src='data:,'>", text="Lab()")
    page = page_of(tmp_path, notebook)
    assert [image["alt"] for image in page.find_all("img")] == ["three bars"]
    assert "widgets" in notebook.metadata, "the notebook itself is not changed"
    assert len(notebook.cells[1].outputs[0].data) == 3


def test_a_widget_that_brought_nothing_is_shown_in_its_last_state(tmp_path: Path) -> None:
    notebook = with_output(widget={"model_id": "bar"}, text="training: 0%")
    bar = {"model_name": "FloatProgressModel", "state": {"min": 0.0, "max": 4.0, "value": 3.0}}
    notebook.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"]["bar"] = bar
    page = page_of(tmp_path, notebook)
    assert [progress["value"] for progress in page.find_all("progress")] == ["0.75"]
    assert "training: 0%" not in page.text


def test_errors_of_the_run_stand_on_top_and_are_escaped(tmp_path: Path) -> None:
    page = page_of(tmp_path, with_output(text="x"), problems=["cell [3]: KeyError: '<b>'"])
    heading = page.find(["h1", "h2"])
    assert heading is not None
    assert heading.text == "This run found errors"
    assert "cell [3]: KeyError: '<b>'" in page.text
