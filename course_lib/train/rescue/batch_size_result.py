"""What did the search for the largest batch find?

The answer, the trials that led to it, and the line through them.
"""

import html
import json
from dataclasses import asdict, dataclass
from typing import Any

from course_lib.errors import CourseError
from course_lib.train.rescue.batch_search import Trial
from course_lib.units import format_bytes, format_seconds


@dataclass(frozen=True)
class BatchSizeSearch:
    """The largest batch that was run within the limit, and how it was found. Sizes in bytes.

    `fixed_bytes + bytes_per_sample * batch_size` is the line through the two largest trials; None where
    memory could not be read or did not grow. `limit_bytes` and the readings count what `reading` says, with
    the `in_use_bytes` that were there before the search. Under torch.distributed all figures are those of
    the rank that is worst off.
    """

    batch_size: int
    trials: tuple[Trial, ...]
    limit_bytes: int | None
    in_use_bytes: int
    fixed_bytes: int | None
    bytes_per_sample: int | None
    reading: str
    world_size: int
    largest: int | None
    multiple_of: int

    @property
    def ooms(self) -> int:
        """Trials that did not fit."""
        return sum(not trial.fits for trial in self.trials)

    @property
    def global_batch_size(self) -> int:
        """Samples of all ranks together."""
        return self.batch_size * self.world_size

    @property
    def capped(self) -> bool:
        """Whether `largest` ended the search, and not the memory."""
        return self.largest is not None and self.batch_size + self.multiple_of > self.largest

    def to_json(self) -> str:
        """All of it as one JSON object."""
        return json.dumps(asdict(self) | {"ooms": self.ooms, "global_batch_size": self.global_batch_size})

    @classmethod
    def from_json(cls, text: str) -> "BatchSizeSearch":
        """Read what `to_json` wrote. Raises CourseError for anything else."""
        try:
            data: dict[str, Any] = json.loads(text)
            fields = {name: data[name] for name in cls.__dataclass_fields__}
            fields["trials"] = tuple(Trial(**trial) for trial in fields["trials"])
            return cls(**fields)
        except (ValueError, KeyError, TypeError):
            raise CourseError(
                "This is not the JSON of a BatchSizeSearch: give what its to_json wrote."
            ) from None

    def _headline(self) -> str:
        line = f"batch size {self.batch_size}"
        if self.world_size > 1:
            line += f" a rank, {self.global_batch_size} on {self.world_size} ranks"
        times = f"{len(self.trials)} trial{'s' if len(self.trials) > 1 else ''}"
        line += f": found in {times}, {self.ooms} of them out of memory"
        return f"{line}; stopped by largest={self.largest}" if self.capped else line

    def _line(self) -> str:
        limit = "no limit" if self.limit_bytes is None else f"limit {format_bytes(self.limit_bytes)}"
        read = f"{limit}, {self.reading}, of which {format_bytes(self.in_use_bytes)} before the search"
        if self.fixed_bytes is None or self.bytes_per_sample is None:
            return read
        return f"{format_bytes(self.fixed_bytes)} + {format_bytes(self.bytes_per_sample)} a sample; {read}"

    def _cells(self) -> list[tuple[str, str, str, str, str]]:
        return [
            (
                str(trial.batch_size),
                "" if trial.predicted_bytes is None else format_bytes(trial.predicted_bytes),
                "" if trial.peak_bytes is None else format_bytes(trial.peak_bytes),
                format_seconds(trial.seconds),
                trial.failure or "fits",
            )
            for trial in self.trials
        ]

    def __str__(self) -> str:
        lines = [self._headline(), f"  {self._line()}"]
        lines.append(f"  {'batch':>6} {'predicted':>10} {'read':>10} {'time':>9}")
        lines += [
            f"  {size:>6} {line:>10} {read:>10} {took:>9}  {end}"
            for size, line, read, took, end in self._cells()
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in ("batch size", "predicted", "read", "time", ""))
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"
            for cells in self._cells()
        )
        return (
            f"<b>{html.escape(self._headline())}</b><table><thead><tr>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table>{html.escape(self._line())}"
        )
