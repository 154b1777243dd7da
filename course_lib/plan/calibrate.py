"""How fast is this machine, kind of work by kind of work? Measured in two minutes, and used by ``predict``.

Small networks (``calibration_nets.py``) train for a few steps under a recorder that times each operation as
it runs, with the caches, threads and memory pages of a real step. For each kind of work two shares are
fitted to these times, as ``benchmarks/fit_speed.py`` does for public measurements. What was not met falls
back on its family.
"""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from course_lib.errors import CourseError
from course_lib.machine import best_device
from course_lib.plan.calibration_nets import CalibrationNet, calibration_nets
from course_lib.plan.coefficients import Coefficients, coefficients_from
from course_lib.plan.fit_shares import fit_shares
from course_lib.plan.roofline import Rates
from course_lib.plan.timed_steps import Timed, measure_rates, time_net

FILE = Path(".course", "calibration.json")
FORMAT = 1
MOST_SECONDS = 120.0


@dataclass(frozen=True)
class Calibration:
    """What was measured on one device: its rates, and the shares that each kind of work reaches of them."""

    rates: Rates
    coefficients: Coefficients
    device: str
    torch_version: str
    threads: int
    date: str
    seconds: float
    row: dict[str, Any]

    def save(self, folder: Path) -> Path:
        """Write it into the learner's folder; returns the path."""
        path = folder / FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        data = {
            "format": FORMAT,
            "device": self.device,
            "torch_version": self.torch_version,
            "threads": self.threads,
            "date": self.date,
            "seconds": self.seconds,
            "rates": {**asdict(self.rates), "peaks": dict(self.rates.peaks)},
            "coefficients": self.row,
        }
        path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        return path

    def to_json(self) -> dict[str, Any]:
        """The rates and what was run, without the shares of each kind."""
        return {
            "device": self.device, "name": self.rates.name, "bandwidth_gb_s": self.rates.bandwidth / 1e9,
            "peak_gflops": {name: value / 1e9 for name, value in self.rates.peaks.items()},
            "kinds": len(self.coefficients.kinds), "threads": self.threads, "date": self.date,
            "seconds": self.seconds, "torch_version": self.torch_version,
        }  # fmt: skip

    def __str__(self) -> str:
        peaks = ", ".join(f"{name} {value / 1e9:,.0f} GFLOP/s" for name, value in self.rates.peaks.items())
        return (
            f"{self.rates.name}: {peaks}; {self.rates.bandwidth / 1e9:,.1f} GB/s; "
            f"{len(self.coefficients.kinds)} kinds of work measured in {self.seconds:.0f} s on {self.date}"
        )


def load_calibration(folder: Path) -> Calibration | None:
    """The calibration saved in a learner's folder; None if there is none.

    Raises CourseError for a broken file.
    """
    path = folder / FILE
    if not path.exists():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            raise ValueError(f"format {data['format']}, this version reads {FORMAT}")
        return Calibration(
            Rates(**data["rates"]),
            coefficients_from("this machine", data["coefficients"]),
            data["device"],
            data["torch_version"],
            int(data["threads"]),
            data["date"],
            float(data["seconds"]),
            data["coefficients"],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CourseError(
            f"{path} is not a calibration that this version can read ({error}); run `course calibrate` again."
        ) from None


def calibrate(
    device: str | None = None,
    *,
    batch_size: int | None = None,
    seconds: float = 90.0,
    nets: Iterable[CalibrationNet] | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Calibration:
    """Measure ``device`` (default: the best of this machine) for about ``seconds`` seconds, at most 120.

    ``batch_size``: images in a step; small on a CPU, where a step takes long. Kinds that come too late for
    the time are left to their families. Raises CourseError for a device that torch does not have.
    """
    device = device or best_device()
    _check(device, seconds)
    begin = time.monotonic()
    limit = min(seconds, MOST_SECONDS)
    batch = batch_size or (4 if device == "cpu" else 64)
    progress(f"peak rates of {device}")
    rates = measure_rates(device)
    runs: list[list[Timed]] = []
    for net in calibration_nets() if nets is None else nets:
        left = limit - (time.monotonic() - begin)
        if left <= 0 and runs:
            break
        progress(net.name)
        runs.append(time_net(net, device, batch, min(max(left, 1.0), limit / 6)))
    row = fit_shares(runs, rates)
    made = coefficients_from("this machine", row)
    return Calibration(
        rates,
        made,
        device,
        torch.__version__,
        torch.get_num_threads(),
        datetime.date.today().isoformat(),
        time.monotonic() - begin,
        row,
    )


def _check(device: str, seconds: float) -> None:
    kind = device.split(":", maxsplit=1)[0]
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there.get(kind, False):
        known = " or ".join(name for name, is_there in there.items() if is_there)
        raise CourseError(f"This torch has no device {device!r} to calibrate; it has {known}.")
    if seconds < 5:
        raise CourseError(f"A calibration needs at least 5 s, not {seconds:g}.")
