"""How does an executed notebook become one HTML page that needs no other file and no network?

nbconvert writes the page. Three things are done before and around it: scripts from the network are left out
(require.js, Mermaid, the widgets' renderer; MathJax stays where a page has formulas, which read as TeX
without it), widgets give way to HTML (static_widgets.py), and pictures named in markdown come inside the
page.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from course_lib.teach.running.static_widgets import static_html

_WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"

_TEMPLATE = """{%- extends 'lab/index.html.j2' -%}
{%- block html_head_js -%}{%- endblock -%}
{%- block jupyter_widgets -%}{%- endblock -%}
{%- block html_head_js_mermaidjs -%}{%- endblock -%}
"""
_WITHOUT_MATHJAX = "{%- block html_head_js_mathjax -%}{%- endblock -%}\n"

# Pandoc's rule: a formula in a line touches both its dollars and no digit follows, so "$3 and $5" is money.
_FORMULA = re.compile(r"\$\$.+?\$\$|(?<![\\$])\$(?=\S)[^$\n]*(?<=\S)\$(?!\d)", re.DOTALL)


def write_page(
    notebook: Any, path: Path, *, title: str, problems: Sequence[str] = (), images_from: Path | None = None
) -> None:
    """Write the HTML page of an executed notebook.

    Args:
        notebook: as nbformat reads it; it is not changed.
        path: where the page goes; the folder must exist.
        title: what the browser shows in its tab.
        problems: what went wrong in the run; it stands at the top of the page.
        images_from: the folder to which the pictures named in markdown are relative.
    """
    from jinja2 import DictLoader
    from nbconvert import exporters
    from nbformat import v4

    nodes: Any = v4  # nbformat's and nbconvert's functions carry no types
    make_exporter: Any = exporters.HTMLExporter
    static = _without_widgets(notebook)
    if problems:
        listed = "".join(f"<li><pre>{escape(problem)}</pre></li>" for problem in problems)
        text = f"<h2>This run found errors</h2>\n<ul>{listed}</ul>"
        static.cells.insert(0, nodes.new_markdown_cell(text))
    template = _TEMPLATE if _has_formulas(static) else _TEMPLATE + _WITHOUT_MATHJAX
    exporter = make_exporter(
        template_file="course.html.j2",
        extra_loaders=[DictLoader({"course.html.j2": template})],
        embed_images=True,
        exclude_anchor_links=True,
    )
    metadata = {"name": title, "path": str(images_from) if images_from else ""}
    page, _ = exporter.from_notebook_node(static, resources={"metadata": metadata})
    path.write_text(page, encoding="utf-8")


def _without_widgets(notebook: Any) -> Any:
    """A copy in which each widget is shown as HTML: the one that it brought along, or its last state."""
    static = copy.deepcopy(notebook)
    stored = static.metadata.pop("widgets", {}).get("application/vnd.jupyter.widget-state+json", {})
    for cell in static.cells:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            view = data.pop(_WIDGET_VIEW, None)
            if view is not None and "text/html" not in data:
                html = static_html(view["model_id"], stored.get("state", {}))
                data.update({"text/html": html} if html else {})
    return static


def _has_formulas(notebook: Any) -> bool:
    return any(cell.cell_type == "markdown" and _FORMULA.search(cell.source) for cell in notebook.cells)
