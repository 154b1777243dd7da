"""Which settings were chosen, from which trials, and why?"""

import html
import json
import textwrap
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from course_lib.train.loading.measurement import Unit
from course_lib.train.loading.memory import HostMemory
from course_lib.train.loading.model import Limit, ThroughputModel
from course_lib.train.loading.settings import LoaderSettings
from course_lib.units import format_bytes, format_count, format_seconds

SENTENCES: Mapping[Limit, str] = {
    "step": "The step is the limit: it is fed, and no setting of the loader makes it faster.",
    "one process": "Making a batch costs less here than handing it over: load in the training process.",
    "storage": "Waiting for storage is the limit: more workers wait side by side; a faster disk, a cache or "
    "one archive would help.",
    "workers": "Each worker is busy all the time: more workers, or less work for each sample, would help.",
    "cores": "The cores are the limit: more workers cannot help. Make the samples cheaper: decode less, "
    "store them ready, or move work to the device.",
    "hand-over": "Handing batches over to the training process is the limit: smaller batches in bytes "
    "(uint8) or fewer tensors would help.",
}


NO_STEP_S = 1e-4  # a shorter step is none: its throughput would be noise
NEARLY = 0.95  # of the step alone: from here on it counts as fed
COLUMNS = 90  # of printed text: a notebook breaks longer lines in the middle of a word


@dataclass(frozen=True)
class Trial:
    """One setting, tried: samples a second, seconds from batch to batch, and the start of the workers."""

    settings: LoaderSettings
    samples_per_second: float
    batch_s: float
    first_batch_s: float
    worker_bytes: int | None
    why: str


@dataclass(frozen=True)
class Tuning:
    """The settings that loaded fastest, and what they were chosen from.

    `alone_samples_per_second` is the step without any loading, which no loader can beat; None where the step
    takes no time. `refused` says which numbers of workers were left out, and why; `most_workers` is the
    largest that could have been tried. `reasons` says why each other setting is as it is. `model` is the
    model after the trials. `unit` is "steps" where the loader makes no batches, so that samples cannot be
    counted: then all throughputs are steps a second. `warnings` say what is wrong with the data set or was
    changed. Times in seconds.
    """

    settings: LoaderSettings
    samples_per_second: float
    alone_samples_per_second: float | None
    trials: tuple[Trial, ...]
    model: ThroughputModel
    limit: Limit
    memory: HostMemory
    refused: Mapping[int, str]
    reasons: Mapping[str, str]
    batch_samples: float
    seconds: float
    emulated: bool
    most_workers: int
    unit: Unit = "samples"
    warnings: tuple[str, ...] = ()

    @property
    def of_alone(self) -> float:
        """The throughput as a share of what the step could do alone; 0 where the step takes no time."""
        alone = self.alone_samples_per_second
        return self.samples_per_second / alone if alone else 0.0

    @property
    def sentence(self) -> str:
        """Which resource is the limit, in one or two sentences."""
        if self.limit == "step" and self.of_alone < NEARLY and self.settings.num_workers:
            return (
                "The training process is the limit: the step, and "
                f"{format_seconds(self.model.hand_over_s)} for taking over each batch."
            )
        most = ""
        if self.settings.num_workers == self.most_workers and self.limit in ("storage", "workers"):
            most = f" {self.most_workers} is the most that was tried."
        return SENTENCES[self.limit] + most

    def predicted(self, num_workers: int) -> float:
        """Samples a second that the model expects with so many workers."""
        return self.batch_samples / self.model.batch_s(num_workers)

    def to_json(self) -> str:
        """All of it as one JSON object, derived values included."""
        derived = {
            "of_alone": self.of_alone,
            "sentence": self.sentence,
            "arguments": self.settings.arguments(),
            "host_memory_bytes": self.memory.needed_bytes(self.settings),
        }
        return json.dumps(asdict(self) | derived)

    def _title(self) -> str:
        speed = f"{format_count(self.samples_per_second)} {self.unit} a second"
        if self.step_counts:
            kind = "emulated step" if self.emulated else "step"
            speed += f", {100 * self.of_alone:.0f} % of what the {kind} could use"
        return f"{self.settings}\n{speed}. {self.sentence}"

    @property
    def step_counts(self) -> bool:
        """Whether there is a step worth the name; loading is tuned for itself where it takes no time."""
        return self.model.step_s > NO_STEP_S

    def _memory_line(self) -> str:
        if not self.settings.num_workers:
            return "Host memory: no worker, so nothing beyond the training process."
        seen = "measured" if self.memory.measured else "a guess"
        return (
            f"Host memory: {format_bytes(self.memory.worker_bytes)} a worker ({seen}) and "
            f"{format_bytes(self.memory.ready_bytes(self.settings))} of batches that lie ready."
        )

    def _table(self) -> list[tuple[str, str, str, str]]:
        return [
            (
                trial.settings.brief(),
                f"{format_count(trial.samples_per_second)}/s",
                f"starts in {format_seconds(trial.first_batch_s)}",
                trial.why,
            )
            for trial in self.trials
        ]

    def _notes(self) -> list[str]:
        return [
            *(f"{name}: {why}" for name, why in self.reasons.items()),
            self._memory_line(),
            *self._left_out(),
            f"Trials: {len(self.trials)}, in {format_seconds(self.seconds)}.",
        ]

    def _left_out(self) -> list[str]:
        """The fewest workers that do not fit; more of them do not fit either."""
        if not self.refused:
            return []
        number = min(self.refused)
        more = "" if len(self.refused) == 1 else "; so would more"
        return [f"Left out: {self.refused[number]}{more}."]

    def __str__(self) -> str:
        rows = self._table()
        wide = [max(len(row[column]) for row in rows) for column in range(3)]
        trials = [
            "  ".join(["", *(f"{cell:{w}}" for cell, w in zip(row, wide, strict=False)), row[3]])
            for row in rows
        ]
        lines = [
            *(line for warning in self.warnings for line in _wrapped(f"Careful: {warning}")),
            *_wrapped(self._title()),
            *trials,
            *(line for note in self._notes() for line in _wrapped(note)),
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        code, _, rest = self._title().partition("\n")
        rows = "".join(
            "<tr>"
            + "".join(f'<td style="text-align:left">{html.escape(cell)}</td>' for cell in row)
            + "</tr>"
            for row in self._table()
        )
        notes = "<br>".join(html.escape(note) for note in self._notes())
        careful = "".join(f"<p><b>Careful: {html.escape(warning)}</b></p>" for warning in self.warnings)
        return (
            f"{careful}<p><code>{html.escape(code)}</code><br><b>{html.escape(rest)}</b></p>"
            f"<table><thead><tr><th>trial</th><th>{self.unit}</th><th>start</th><th>why</th></tr></thead>"
            f"<tbody>{rows}</tbody></table><p>{notes}</p>"
        )


def _wrapped(text: str) -> list[str]:
    """The lines of a text, broken between words."""
    return [part for line in text.splitlines() for part in textwrap.wrap(line, COLUMNS)]
