"""What is known of one card, and what is not, with its prices and sources, as text?"""

from __future__ import annotations

from course_lib.accelerators import Accelerator
from course_lib.plan.prices import offers_for


def describe(card: Accelerator) -> str:
    """All that is known of one card, its offers with their dates, and the sources."""
    offers = offers_for(card)
    known = [
        ("kind", f"{card.vendor} {card.kind}, {card.architecture}, launched {card.launch}"),
        ("compute capability", card.compute_capability),
        ("memory on the box", f"{card.advertised_gb:g} GB"),
        ("usable", f"{'' if card.usable_mib else 'at least '}{card.usable_bytes / 2**30:.1f} GiB"),
        ("bandwidth", _unit(card.bandwidth_gb_s, "GB/s")),
        ("L2 cache", _unit(card.l2_mib, "MiB")),
        ("SMs", _unit(card.sm_count, "")),
        ("boost clock", _unit(card.boost_clock_mhz, "MHz")),
        ("FP32", _unit(card.fp32_tflops, "TFLOPS")),
        ("TF32", _unit(card.tf32_tflops, "TFLOPS dense")),
        ("FP16", _unit(card.fp16_tflops, "TFLOPS dense")),
        ("BF16", _unit(card.bf16_tflops, "TFLOPS dense")),
        ("INT8", _unit(card.int8_tops, "TOPS dense")),
        ("power", _unit(card.tdp_w, "W")),
        ("link", f"{card.interconnect} {_unit(card.interconnect_gb_s, 'GB/s, both directions')}".strip()),
        ("note", card.note),
    ]
    lines = [card.name] + [f"  {name:<20}{value}" for name, value in known if value]
    missing = [name for name, value in known if not value and name != "note"]
    if missing:
        lines.append(f"  {'not known':<20}{', '.join(missing)}")
    lines += ["Offers, the newest first:"] if offers else ["No price of it is known to the course."]
    lines += [f"  {offer}" for offer in offers]
    sources = dict.fromkeys((card.source, card.rates_source, card.memory_source, *(o.source for o in offers)))
    lines += [f"Sources ({card.source_date}):"] + [f"  {source}" for source in sources if source]
    return "\n".join(lines)


def _unit(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:,.6g} {unit}".rstrip()
