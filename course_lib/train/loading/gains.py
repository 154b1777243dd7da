"""What did a change to the loader do, is that certain, and how is it told?"""

import html
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from course_lib.train.loading.measurement import Rate
from course_lib.units import format_count

LITTLE = 1.1  # a factor of less is called little, where the measurements allow nothing larger


@dataclass(frozen=True)
class Gain:
    """What one change did: throughput before and after, samples a second, both measured."""

    recipe: str
    before: Rate
    after: Rate

    @property
    def factor(self) -> float:
        """How many times as fast it is."""
        return self.after.median / self.before.median

    @property
    def between(self) -> tuple[float, float]:
        """The least and the largest factor that the windows of the two measurements allow."""
        return self.after.low / self.before.high, self.after.high / self.before.low

    @property
    def told_apart(self) -> bool:
        """Whether the windows of before and after do not overlap: else the difference may be chance."""
        low, high = self.between
        return low > 1 or high < 1

    @property
    def little(self) -> bool:
        """Whether the effect, if there is any, is less than a tenth."""
        low, high = self.between
        return low > 1 / LITTLE and high < LITTLE

    @property
    def certain(self) -> bool:
        """Whether the windows are apart, and the factor is a tenth or more: less than that is no news."""
        return self.told_apart and not 1 / LITTLE < self.factor < LITTLE

    @property
    def effect(self) -> str:
        """The factor; or the range of it, with a word where the effect is small, none or may be chance."""
        if self.certain:
            return f"x {self.factor:.2f}"
        low, high = self.between
        return f"{self._word}: x {low:.2f} to {high:.2f}".removeprefix(": ")

    @property
    def _word(self) -> str:
        if self.little:
            return "less than a tenth" if self.told_apart else "no effect"
        return "" if self.told_apart else "not certain"

    def __str__(self) -> str:
        before, after = format_count(self.before.median), format_count(self.after.median)
        low, high = self.between
        if self.certain:
            effect = f"{self.factor:.2f} times as fast"
        elif self.little:
            effect = f"{self._word} ({low:.2f} to {high:.2f} times as fast)"
        else:
            doubt = "" if self.told_apart else "not certain in so short a time: "
            effect = f"{doubt}{low:.2f} to {high:.2f} times as fast"
        return f"{self.recipe}: {before} to {after} samples/s, {effect}"


@dataclass(frozen=True)
class Rung:
    """One set-up of the way up, with its throughput, and what the step could use alone."""

    name: str
    rate: Rate
    alone: Rate

    @property
    def of_alone(self) -> float:
        """The share of the step-alone throughput, 0 to 1 (a little more where the clock is unsteady)."""
        return self.rate.median / self.alone.median


@dataclass(frozen=True)
class Climb:
    """The rungs from the first set-up to the last; `left_out` says which could not be measured, and why."""

    rungs: tuple[Rung, ...]
    emulated: bool
    left_out: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """All of it as one JSON object, with each rung's share of the step alone."""
        return json.dumps(asdict(self) | {"of_alone": {rung.name: rung.of_alone for rung in self.rungs}})

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Name, samples a second, share of the step alone, and the gain over the rung before."""
        made = []
        for before, rung in zip((None, *self.rungs), self.rungs, strict=False):
            gain = "" if before is None else Gain(rung.name, before.rate, rung.rate).effect
            share = f"{100 * rung.of_alone:.0f} %"
            made.append((rung.name, f"{format_count(rung.rate.median)}/s", share, gain))
        return made

    def __str__(self) -> str:
        rows = self.rows()
        wide = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = [f"{n:{wide[0]}}  {r:>{wide[1]}}  {s:>{wide[2]}}  {g}" for n, r, s, g in rows]
        kind = "an emulated step" if self.emulated else "the step"
        return "\n".join([*lines, f"Share of what {kind} could use alone; measured here.", *self._notes()])

    def _notes(self) -> list[str]:
        return [f"Left out, {name}: {why}" for name, why in self.left_out.items()]

    def _repr_html_(self) -> str:
        cells = "".join(
            "<tr>"
            + "".join(f'<td style="text-align:left">{html.escape(cell)}</td>' for cell in row)
            + "</tr>"
            for row in self.rows()
        )
        kind = "an emulated step" if self.emulated else "the step"
        return (
            "<table><thead><tr><th>loader</th><th>samples</th><th>of the step alone</th><th>gain</th></tr>"
            f"</thead><tbody>{cells}</tbody></table><p>Beside {kind}; measured here.</p>"
            + "".join(f"<p>{html.escape(note)}</p>" for note in self._notes())
        )
