"""What does NVIDIA publish about mixed precision on its own cards? The table beside our own measurements.

One card, training, as NVIDIA's Deep Learning Examples report it; each row names its page. These are whole
training programs that NVIDIA tuned for its cards.
"""

import csv
from dataclasses import dataclass
from functools import lru_cache

from course_lib.files import data_path


@dataclass(frozen=True)
class PublishedSpeedup:
    """One row: throughput in two formats, in `unit`. On an A100 it is compared with tf32, not with fp32."""

    model: str
    card: str
    from_format: str
    to_format: str
    from_rate: float
    to_rate: float
    unit: str
    source: str
    container: str

    @property
    def times(self) -> float:
        """How many times as fast."""
        return self.to_rate / self.from_rate

    def __str__(self) -> str:
        return f"{self.model} on {self.card}: {self.to_format} {self.times:.2f} × {self.from_format}"


@lru_cache(maxsize=1)
def published_speedups() -> tuple[PublishedSpeedup, ...]:
    """All rows of ``data/mixed_precision_published.csv``."""
    with data_path("mixed_precision_published.csv").open(encoding="utf-8", newline="") as stream:
        return tuple(
            PublishedSpeedup(
                row["model"],
                row["card"],
                row["from_format"],
                row["to_format"],
                float(row["from_rate"]),
                float(row["to_rate"]),
                row["unit"],
                row["source"],
                row["container"],
            )
            for row in csv.DictReader(stream)
        )
