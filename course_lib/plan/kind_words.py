"""What have two kinds of work in common? The words that a kind's name is made of.

A kind is named ``base.pass.layout.precision`` (``dense3_s2.weight.nchw``), its base may carry marks
(``_s2``: strided). Kinds that share a word are alike: what was measured for some tells something about the
others. The efficiency of a kind is fitted as a product over its words, with a small correction for the kind
itself, and a kind that no measurement held is estimated from its words alone.
"""

from __future__ import annotations

from functools import lru_cache

MARKS = ("_s2", "_odd", "_1x1", "_by32", "_strided", "_broadcast", "_backward")


@lru_cache(maxsize=4096)
def words(kind: str, family: str) -> tuple[str, ...]:
    """The words of a kind, the widest first: its family, its base without and with marks, its pass."""
    base, *rest = kind.split(".")
    core = base
    marks = [mark for mark in MARKS if mark in base]
    for mark in marks:
        core = core.replace(mark, "")
    found = [family, f"{family} {core}"]
    found += [f"{family} {mark}" for mark in marks]
    found += [f"{family} {base}"] if marks else []
    found += [f"{family} .{part}" for part in rest]
    found += [f"{family} {core}.{rest[0]}"] if rest else []
    return tuple(found)
