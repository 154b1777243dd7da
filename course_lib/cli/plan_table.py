"""How is the answer of ``course plan`` told? One line a card, then what stands behind the first of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from course_lib.plan.stacks import measured_error
from course_lib.units import format_seconds

if TYPE_CHECKING:
    from course_lib.plan.job import Job
    from course_lib.plan.memory import MemoryPlan
    from course_lib.plan.scaling import ScaledStep
    from course_lib.plan.step_time import StepTime


@dataclass(frozen=True)
class Row:
    """What is said about one card. None: not asked for, or not known."""

    card: str
    memory: "MemoryPlan | None"
    largest: int | None
    time: "StepTime | None"
    scaled: "ScaledStep | None"
    untimed: str = ""  # why there is no time
    job: "Job | None" = None  # a whole training, where it was asked for and fits

    def to_json(self) -> dict[str, Any]:
        """The row as plain data, under the names of ``course plan --json``."""
        told: dict[str, Any] = {"card": self.card}
        for part in (self.time, self.memory):
            told |= part.to_json() if part else {}
        if self.time is None:
            told |= {"step_seconds": None, "samples_per_second": None, "bound": None, "untimed": self.untimed}
        return told | {
            **(self.job.to_json() if self.job else {"hours": None, "cost": None}),
            "largest_batch": self.largest,
            "scaled": self.scaled.to_json() if self.scaled else None,
        }


def table(rows: Sequence[Row]) -> str:
    """Memory and step time on each card, and where the memory of the first one goes."""
    timed = next((row.time for row in rows if row.time), None)
    first = next((row.memory for row in rows if row.memory), None)
    head = first or timed
    assert head is not None
    lines = [
        f"{head.model}, batch {head.batch_size}"
        + (f" x {head.accumulate}" if head.accumulate > 1 else "")
        + f", {head.precision}"
        + (f", {first.optimizer}" if first else ""),
        "",
        f"{'card':<22}{'total':>11}{'safe':>11}{'card has':>11}  {'':<13}{'step':>9}{'samples/s':>11}  bound"
        + ("    largest batch" if rows[0].largest is not None else ""),
    ]
    lines += [_line(row) for row in rows]
    if timed is not None:
        low, high = 100 * (timed.low / timed.seconds - 1), 100 * (timed.high / timed.seconds - 1)
        lines += ["", f"Step times: {timed.calibration}"]
        lines.append(
            f"On {timed.card} nine of ten measurements lay {low:+.0f} to {high:+.0f} % from such a figure."
        )
        lines += [f"Note: {warning}" for warning in timed.warnings]
    lines += _scaled_lines(rows)
    lines += _memory_lines(rows, first)
    lines.append(measured_error())
    return "\n".join(lines)


def _line(row: Row) -> str:
    text = f"{row.card:<22}"
    made = row.memory
    if made:
        verdict = "fits" if made.fits else "tight" if made.tight else "does not fit"
        text += "".join(f" {size / 2**20:>6,.0f} MiB" for size in (made.total, made.safe, made.capacity))
        text += f"  {verdict:<13}"
    else:
        text += " " * 48
    if row.time:
        step = format_seconds(row.time.seconds)
        text += f"{step:>9} {row.time.samples_per_second:>10,.0f}  {row.time.bound:<8}"
    else:
        text += f"{'-':>9}{'-':>11}  {'-':<8}"
    return text + ("" if row.largest is None else f"{row.largest:,}")


def _scaled_lines(rows: Sequence[Row]) -> list[str]:
    found = [row.scaled for row in rows if row.scaled]
    if not found:
        return []
    lines = ["", f"{found[0].cards} cards:"]
    for scaled in found:
        lines.append(
            f"{scaled.card:<22}{scaled.samples_per_second:>11,.0f} samples/s, {scaled.speedup:.2f} times one "
            f"({100 * scaled.efficiency:.0f} %), over {scaled.interconnect}"
        )
    return lines


def _memory_lines(rows: Sequence[Row], first: "MemoryPlan | None") -> list[str]:
    if first is None:
        return []
    lines = ["", f"Where the memory goes, on {first.card}:"]
    lines += [f"{part.nbytes / 2**20:>8,.0f} MiB  {part.name} ({part.origin})" for part in first.parts]
    alive = ", ".join(f"{name} {nbytes / 2**20:,.0f}" for name, nbytes in first.timeline.alive)
    lines += ["", f"Alive at the peak ({first.timeline.phase} pass), MiB: {alive}"]
    if first.timeline.largest:
        top = first.timeline.largest[0]
        place = f"{top.module or 'the model'} {top.line}".rstrip()
        lines.append(f"Largest: {top.nbytes / 2**20:,.0f} MiB {top.category} {top.shape} in {place}")
    if any(row.memory and not row.memory.fits for row in rows):
        lines += ["", "Tight means: try it. The typical figure fits, the safe one does not."]
    return lines


def whole_job_table(rows: Sequence[Row]) -> str:
    """Hours and money on each card, and what was assumed."""
    from course_lib.cli.plan_job import assumption_lines, job_table
    from course_lib.plan.job import Assumptions

    lines = job_table([(row.card, row.memory, row.time, row.job, row.untimed) for row in rows])
    timed = next((row.time for row in rows if row.time), None)
    if timed is not None:
        lines += ["", f"Step times: {timed.calibration}"]
    lines += assumption_lines(Assumptions())
    lines += _scaled_lines(rows)
    lines.append(measured_error())
    return "\n".join(lines)
