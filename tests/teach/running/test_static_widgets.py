import os
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_notebook

from course_lib.teach.running.headless import execute
from course_lib.teach.running.static_widgets import static_html

CODE = """
import ipywidgets as w
from tqdm.auto import tqdm
for _ in tqdm(range(7), desc="train <ing"):
    pass
out = w.Output()
with out:
    print("inside & out")
hidden = w.Label("never seen", layout=w.Layout(visibility="hidden"))
slider = w.IntSlider(description="workers", value=1)
size = w.SelectionSlider(options=[8, 16], value=8, description="size")
box = w.VBox([w.HBox([slider, size, w.Button(description="Measure")]), out, hidden, w.Label("<b>"),
              w.Checkbox(description="pin", value=True), w.HTML("<em>html</em>"), w.Valid(value=True)])
slider.value, size.value = 3, 16
box
"""


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> list[BeautifulSoup]:
    """The widgets of a real notebook, each as static HTML: a bar of tqdm, and a box with most kinds."""
    folder: Path = tmp_path_factory.mktemp("widgets")
    notebook = new_notebook(cells=[new_code_cell(CODE)])
    notebook.metadata.kernelspec = {"display_name": "Python 3", "language": "python", "name": "python3"}
    nbformat.write(notebook, folder / "in.ipynb")
    ran = execute(
        folder / "in.ipynb",
        folder / "out.ipynb",
        parameters={},
        folder=folder,
        environment=os.environ,
        cell_limit_s=60,
    )
    states = ran.notebook.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"]
    views = [o.data["application/vnd.jupyter.widget-view+json"] for o in ran.notebook.cells[0].outputs]
    return [BeautifulSoup(static_html(view["model_id"], states), "html.parser") for view in views]


def test_a_progress_bar_is_shown_at_its_end(shown: list[BeautifulSoup]) -> None:
    bar = shown[0]
    assert "train <ing: 100%" in bar.text.replace("\u2007", " ")
    assert "7/7" in bar.text
    assert [progress["value"] for progress in bar.find_all("progress")] == ["1"]


def test_each_kind_of_widget_is_shown_as_it_was_last(shown: list[BeautifulSoup]) -> None:
    box = shown[1]
    for text in ("workers: 3", "size: 16", "pin: True", "inside & out\n", "<b>"):
        assert text in box.text
    assert [button.text for button in box.find_all("button")] == ["Measure"]
    assert [emphasis.text for emphasis in box.find_all("em")] == ["html"]
    assert "never seen" not in box.text


def test_a_widget_without_a_state_shows_nothing() -> None:
    assert static_html("gone", {}) == ""
