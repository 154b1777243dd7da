"""What does a widget show where no browser keeps it alive? Its last state, as plain HTML.

An executed notebook holds the state of all widgets. The text that stands beside a widget in a cell's output
is older: it tells how the widget was made, so that a finished progress bar would read "0 %" for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

_REFERENCE = "IPY_MODEL_"

States = Mapping[str, Mapping[str, Any]]
"""Model id -> ``{"model_name", "state"}``, as under ``widgets`` in the metadata of a notebook."""


def static_html(model_id: str, states: States) -> str:
    """The HTML of a widget and all that is in it. A kind of widget that is not known here shows nothing."""
    model = states.get(model_id)
    if model is None or _hidden(model["state"], states):
        return ""
    kind, state = str(model["model_name"]).removesuffix("Model"), model["state"]
    if kind in ("HTML", "HTMLMath"):
        return str(state["value"])
    if kind == "Label":
        return escape(str(state["value"]))
    if kind.endswith("Progress"):
        low, high, value = (float(state[name]) for name in ("min", "max", "value"))
        done = (value - low) / (high - low) if high > low else 0.0
        return f'<progress max="1" value="{done:.4g}">{done:.0%}</progress>'
    if kind.endswith("Box"):
        direction = "row" if kind == "HBox" else "column"
        inside = "".join(
            f"<div>{static_html(child, states)}</div>" for child in _references(state["children"])
        )
        return f'<div style="display:flex;gap:.5em;flex-direction:{direction}">{inside}</div>'
    if kind == "Button":
        return f"<button disabled>{escape(str(state['description']))}</button>"
    if kind == "Output":
        return "".join(_output(output) for output in state["outputs"])
    if "description" in state and ("value" in state or "_options_labels" in state):
        name = f"{state['description']}: " if state["description"] else ""
        return escape(f"{name}{_chosen(state)}")
    return ""


def _chosen(state: Mapping[str, Any]) -> Any:
    if "_options_labels" not in state:
        return state["value"]
    index = state.get("index")
    return "" if index is None else state["_options_labels"][index]


def _output(output: Mapping[str, Any]) -> str:
    if output["output_type"] == "stream":
        return f"<pre>{escape(output['text'])}</pre>"
    if output["output_type"] == "error":
        return f"<pre>{escape(output['ename'])}: {escape(output['evalue'])}</pre>"
    data = output["data"]
    return (
        str(data["text/html"]) if "text/html" in data else f"<pre>{escape(data.get('text/plain', ''))}</pre>"
    )


def _hidden(state: Mapping[str, Any], states: States) -> bool:
    (layout,) = _references([state.get("layout", "")]) or ("",)
    shown = states.get(layout, {"state": {}})["state"]
    return bool(shown.get("visibility") == "hidden" or shown.get("display") == "none")


def _references(values: list[str]) -> tuple[str, ...]:
    return tuple(value.removeprefix(_REFERENCE) for value in values if value.startswith(_REFERENCE))
