"""Why does a state_dict not fit: other names, a prefix of a wrapper, other shapes?"""

import re
from typing import Any

from course_lib.diagnose.faults.wording import Around, Told, evidence_of, fault, wording
from course_lib.diagnose.finding import Evidence, Finding

_PREFIXES = ("module.", "_orig_mod.", "model.", "net.", "backbone.", "encoder.")


# prefix -> what adds it, and how the model inside is reached
_WRAPPERS = {
    "module.": ("DistributedDataParallel or DataParallel", "the model inside (model.module)"),
    "_orig_mod.": ("torch.compile", "the model inside (model._orig_mod)"),
}
_LISTED = re.compile(
    r"(Missing|Unexpected)\s+key\(s\)\s+in\s+state_dict:\s*((?:[\"'][^\"'\n]{1,200}[\"'](?:\s*,"
    r"\s*)?){1,2000})"
)


_MISMATCH = re.compile(
    r"size\s+mismatch\s+for\s+([\w.]{1,200}):\s*copying\s+a\s+param\s+with\s+shape\s+(?:torch\.Size\()?("
    r"\[?[\d,\s]{0,80}\]?)\)?\s+from\s+checkpoint,\s*the\s+shape\s+in\s+current\s+model\s+is\s+"
    r"(?:torch\.Size\()?(\[?[\d,\s]{0,80}\]?)"
)


def _keys(around: Around) -> Told:
    text = around.paste.body
    keys: dict[str, list[str]] = {"Missing": [], "Unexpected": []}
    for which, names in _LISTED.findall(text)[:20]:
        keys[which] += re.findall(r"[\"']([^\"'\n]{1,200})[\"']", names)
    sizes = _MISMATCH.findall(text)[:200]
    prefix, side = _prefix(keys["Missing"], keys["Unexpected"])
    model = re.search(r"Error\(s\)\s+in\s+loading\s+state_dict\s+for\s+(\w{1,80})", text)
    figures: dict[str, Any] = {
        "model": model[1] if model else None,
        "missing_keys": keys["Missing"][:50] or None,
        "unexpected_keys": keys["Unexpected"][:50] or None,
        "size_mismatch": [
            {"name": n, "checkpoint": " ".join(a.split()), "model": " ".join(b.split())}
            for n, a, b in sizes[:20]
        ]
        or None,
        "prefix": prefix,
    }
    shown = {k: v for k, v in figures.items() if k != "size_mismatch"}
    evidence = evidence_of({**shown, "size_mismatch": [n for n, _, _ in sizes[:5]] or None})
    if prefix:
        return Told(_wrong_prefix(prefix, side, evidence), figures)
    if sizes:
        return Told(_sizes(sizes, evidence), figures)
    return Told(
        fault(
            "checkpoint.keys_do_not_match",
            "The checkpoint has other names than the model",
            "Another architecture, another version of the code, or a file that holds more than the weights "
            "(a dict with 'model', 'optimizer', 'epoch').",
            (
                "Print list(checkpoint)[:5] and list(model.state_dict())[:5] and compare: take the inner "
                "dict (checkpoint['model'] or ['state_dict']), build the model with the settings of the "
                "saved one, or rename the keys.",
            ),
            (
                "strict=False without reading the list: whatever does not match keeps its random weights, "
                "in silence.",
            ),
            evidence=evidence,
        ),
        figures,
    )


def _prefix(missing: list[str], unexpected: list[str]) -> tuple[str | None, str]:
    """The prefix by which one side's names differ from the other's, and whose they are."""
    for side, longer, shorter in (("checkpoint", unexpected, missing), ("model", missing, unexpected)):
        for prefix in _PREFIXES:
            without = {key.removeprefix(prefix) for key in longer if key.startswith(prefix)}
            # With one list alone (a text that is cut) only the marks of a wrapper are a proof.
            if without & set(shorter) or (without and not shorter and prefix in _WRAPPERS):
                return prefix, side
    return None, ""


def _wrong_prefix(prefix: str, side: str, evidence: tuple[Evidence, ...]) -> Finding:
    origin, inner = _WRAPPERS.get(prefix, ("another class around the model", "the part that was saved"))
    if side == "checkpoint":
        first = (
            f"Strip it: state = {{k.removeprefix('{prefix}'): v for k, v in state.items()}} before "
            f"load_state_dict; and save the state_dict of {inner} from now on."
        )
    else:
        first = f"Load into {inner}, before it is wrapped or through the wrapper."
    return fault(
        "checkpoint.prefix_of_the_wrapper",
        f"The names differ by the prefix '{prefix}' alone: one side is wrapped",
        f"It comes from {origin}. The {side}'s names have it, the other side's do not; the weights are the "
        "same.",
        first,
        ("strict=False: then nothing at all is loaded, and the model keeps its random weights.",),
        evidence=evidence,
    )


def _sizes(sizes: list[tuple[str, str, str]], evidence: tuple[Evidence, ...]) -> Finding:
    name, saved, now = sizes[0]
    last = len({layer.rpartition(".")[0] for layer, _, _ in sizes}) == 1
    hint = " Only one layer differs: most often the last one, for another number of classes." if last else ""
    return fault(
        "checkpoint.shapes_do_not_match",
        f"The checkpoint's {name} has the shape {' '.join(saved.split())}, the model's "
        f"{' '.join(now.split())}",
        "The model was built with other settings (classes, width, vocabulary, image size) than the saved "
        f"one.{hint}",
        "Build the model with the settings of the checkpoint; for another number of classes, load it as "
        "saved and then replace the last layer, or delete the keys that differ and load with strict=False.",
        ("strict=False alone: it does not forgive other shapes.",),
        evidence=evidence,
    )


def _optimizer(around: Around) -> Told:
    return Told(
        fault(
            "checkpoint.optimizer_does_not_match",
            "The optimizer's state belongs to other parameters than the optimizer's now",
            "Parameters were frozen, added, or grouped in another way since it was saved.",
            "Make the optimizer with the same parameters in the same groups as when it was saved, and then "
            "load; or load the weights alone and start the optimizer anew.",
            "Editing the state by hand until it loads.",
            evidence=evidence_of({"exception": around.exception}),
        )
    )


WORDINGS = (
    wording(
        ("in loading state_dict for", "Missing key(s) in state_dict", "Unexpected key(s) in state_dict"),
        _keys,
    ),
    wording(
        (
            "parameter group that doesn't match the size of optimizer's group",
            "different number of parameter groups",
        ),
        _optimizer,
    ),
)
