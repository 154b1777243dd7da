"""How much faster are n cards than one? Data-parallel training with a ring all-reduce that overlaps backward.

Each card works on its own samples; then all add up their gradients. A ring moves 2 (n - 1) / n of the bytes
through each link, in 2 (n - 1) hops. DistributedDataParallel sends gradients in buckets as soon as they are
ready, while the backward pass goes on: only what is left when it ends costs time. Sources: P. Patarasuk and
X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 69(2), 2009; S. Li and
others, "PyTorch Distributed", VLDB 2020 (buckets, overlap).
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from course_lib.errors import CourseError
from course_lib.plan.interconnects import Interconnect, find_interconnect
from course_lib.plan.step_time import StepTime
from course_lib.units import format_bytes, format_seconds

BUCKET_CAP_MB = 25.0
FIRST_BUCKET_MB = 1.0  # torch.distributed._DEFAULT_FIRST_BUCKET_BYTES: so that the exchange begins early
JITTER = 0.033  # spread of one card's step time; all wait for the slowest. Chosen, see docs/accuracy.md.


@dataclass(frozen=True)
class ScaledStep:
    """One step on ``cards`` cards. Seconds; ``efficiency`` is the speed-up over the number of cards.

    ``exchange`` is the time that the all-reduce takes in all, ``exposed`` the part of it that no computing
    hides, ``waiting`` what all lose by waiting for the slowest card.
    """

    model: str
    card: str
    cards: int
    nodes: int
    interconnect: str
    seconds: float
    one_card: float
    exchange: float
    exposed: float
    waiting: float
    gradient_bytes: int
    samples_per_second: float
    global_batch_size: int

    @property
    def speedup(self) -> float:
        """How many times the samples a second of one card."""
        return self.cards * self.one_card / self.seconds

    @property
    def efficiency(self) -> float:
        """Speed-up over the number of cards, 0 to 1."""
        return self.one_card / self.seconds

    def to_json(self) -> dict[str, Any]:
        """Plain data under the names of ``course plan --gpus N --json``."""
        return {
            "gpus": self.cards,
            "nodes": self.nodes,
            "interconnect": self.interconnect,
            "step_seconds": self.seconds,
            "samples_per_second": self.samples_per_second,
            "speedup": self.speedup,
            "efficiency": self.efficiency,
            "exchange_seconds": self.exchange,
            "exposed_seconds": self.exposed,
            "waiting_seconds": self.waiting,
            "gradient_bytes": self.gradient_bytes,
            "global_batch_size": self.global_batch_size,
        }

    def __str__(self) -> str:
        return (
            f"{self.model} on {self.cards} x {self.card} over {self.interconnect}: "
            f"{format_seconds(self.seconds)} a step, {self.samples_per_second:,.0f} samples/s, "
            f"{self.speedup:.2f} times one card ({100 * self.efficiency:.0f} %)\n"
            f"  all-reduce of {format_bytes(self.gradient_bytes)}: {format_seconds(self.exchange)}, "
            f"of which {format_seconds(self.exposed)} not hidden by the backward pass"
        )

    def _repr_html_(self) -> str:
        return "<br>".join(html.escape(line) for line in str(self).splitlines())


def ring_all_reduce(nbytes: float, cards: int, interconnect: Interconnect) -> float:
    """Seconds of a ring all-reduce: ``2 (n - 1) latency + 2 (n - 1) / n bytes / bandwidth``."""
    if cards < 1:
        raise CourseError(f"An all-reduce needs at least one card, not {cards}.")
    hops = 2 * (cards - 1)
    return hops * interconnect.latency + hops / cards * nbytes / interconnect.bandwidth


def all_reduce(
    nbytes: float, cards: int, nodes: int, inside: Interconnect, between: Interconnect | None
) -> float:
    """Seconds of an all-reduce over ``nodes`` computers of ``cards / nodes`` cards.

    Gradients are summed inside each computer, then in a ring over the network, then handed round inside.
    """
    here = cards // nodes
    seconds = ring_all_reduce(nbytes, here, inside)
    if nodes > 1:
        assert between is not None
        # All cards of a computer share its way out: the bytes that leave it are those of one card's ring.
        seconds += ring_all_reduce(nbytes, nodes, between)
    return seconds


def buckets(gradients: Sequence[tuple[float, int]], cap_mb: float = BUCKET_CAP_MB) -> list[tuple[float, int]]:
    """DDP's buckets: gradients in the order in which they become ready, collected up to ``cap_mb``.

    The first one is full at 1 MB. For each: the share of the backward pass after which it is full, its bytes.
    """
    made: list[tuple[float, int]] = []
    held, limit = 0, min(FIRST_BUCKET_MB, cap_mb) * 2**20
    ready = 0.0
    for ready, nbytes in sorted(gradients):
        held += nbytes
        if held >= limit:
            made.append((ready, held))
            held, limit = 0, cap_mb * 2**20
    if held:
        made.append((ready, held))
    return made


def scale(
    step: StepTime,
    cards: int,
    interconnect: str | Interconnect,
    *,
    nodes: int = 1,
    network: str | Interconnect | None = None,
    bucket_cap_mb: float = BUCKET_CAP_MB,
    overlap: bool = True,
) -> ScaledStep:
    """The time of a data-parallel step on ``cards`` cards that each do what ``step`` does on one.

    ``interconnect`` joins the cards of one computer, ``network`` the computers if there are several
    ``nodes``. With ``accumulate`` in ``step``, gradients are exchanged once, in the last micro-batch.
    ``overlap=False`` exchanges after the backward pass. Raises CourseError for a number of cards that the
    nodes cannot share.
    """
    if cards < 1 or nodes < 1 or cards % nodes:
        raise CourseError(
            f"{cards} cards cannot be shared out to {nodes} computers; give a multiple, at least one each."
        )
    if bucket_cap_mb <= 0:
        raise CourseError(f"A bucket of {bucket_cap_mb:g} MB holds nothing; DDP's own size is 25.")
    inside = find_interconnect(interconnect) if isinstance(interconnect, str) else interconnect
    between = find_interconnect(network) if isinstance(network, str) else network
    if nodes > 1 and between is None:
        raise CourseError("Several computers need a network between them; name one, such as 'Ethernet 10G'.")
    if nodes == 1 and inside.network:  # one card in each computer
        nodes, between = cards, inside
    exchange = exposed = 0.0
    if cards > 1:
        exchange, exposed = _exchange(step, cards, nodes, inside, between, bucket_cap_mb, overlap)
    waiting = JITTER * _expected_largest(cards) * step.seconds
    seconds = step.seconds + exposed + waiting
    names = (
        inside.name
        if nodes == 1 or between is inside
        else (f"{inside.name}, {between.name if between else ''}")
    )
    return ScaledStep(
        step.model,
        step.card,
        cards,
        nodes,
        names,
        seconds,
        step.seconds,
        exchange,
        exposed,
        waiting,
        sum(nbytes for _, nbytes in step.gradients),
        cards * step.batch_size * step.accumulate / seconds,
        cards * step.batch_size * step.accumulate,
    )


def _exchange(  # noqa: PLR0917 - what scale was given
    step: StepTime,
    cards: int,
    nodes: int,
    inside: Interconnect,
    between: Interconnect | None,
    bucket_cap_mb: float,
    overlap: bool,
) -> tuple[float, float]:
    """Seconds of the exchange in all, and those after the end of the backward pass."""
    backward = step.backward / step.accumulate  # the last micro-batch's
    link_free = total = 0.0
    for ready, nbytes in buckets(step.gradients, bucket_cap_mb):
        took = all_reduce(nbytes, cards, nodes, inside, between)
        begin = max(link_free, ready * backward if overlap else backward)
        link_free = begin + took
        total += took
    return total, max(0.0, link_free - backward)


def _expected_largest(count: int) -> float:
    """The mean of the largest of ``count`` standard normal draws, by Blom's formula (1958)."""
    if count < 2:
        return 0.0
    share = (count - 0.375) / (count + 0.25)
    return math.sqrt(2) * _inverse_erf(2 * share - 1)


def _inverse_erf(value: float) -> float:
    """The inverse of the error function, by Newton steps on ``math.erf``."""
    root = 0.0
    for _ in range(40):
        root -= (math.erf(root) - value) / (2 / math.sqrt(math.pi) * math.exp(-root * root))
    return root
