"""What can be known about the cards of a computer at one moment, or over some moments?

None means that the figure is not in the text (or the tool could not read it), and never 0.
"""

import html
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One card at one moment. Memory in MiB, power in W, clocks in MHz, temperature in °C.

    ``util_percent`` is the share of time in which some kernel ran; ``memory_activity_percent`` the share in
    which memory was read or written (not how full it is). ``throttle_reasons`` names the active ones.
    ``ecc_uncorrected`` counts since the last reset; ``repair_pending``: bad memory is marked and waits for a
    reset of the card to be replaced.
    """

    index: int | None = None
    name: str | None = None
    uuid: str | None = None
    bus_id: str | None = None
    time: str | None = None
    used_mib: float | None = None
    total_mib: float | None = None
    free_mib: float | None = None
    util_percent: float | None = None
    memory_activity_percent: float | None = None
    temp_c: float | None = None
    slowdown_temp_c: float | None = None
    fan_percent: float | None = None
    power_w: float | None = None
    power_cap_w: float | None = None
    default_power_cap_w: float | None = None
    pstate: str | None = None
    sm_clock_mhz: float | None = None
    max_sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    throttle_reasons: tuple[str, ...] | None = None
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_rx_mb_s: float | None = None
    pcie_tx_mb_s: float | None = None
    ecc: str | None = None
    ecc_uncorrected: int | None = None
    repair_pending: bool | None = None
    compute_mode: str | None = None
    driver_model: str | None = None
    mig_enabled: bool | None = None
    display: bool | None = None
    unreadable: tuple[str, ...] = ()  # cells that the tool printed as ERR! or "Unknown Error"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """One process on one card. ``kind`` is C (compute), G (graphics) or C+G; memory None where hidden.

    ``gi`` and ``ci`` number its slice of a card that is cut up (GPU and compute instance).
    """

    gpu: int | None
    pid: int | None
    kind: str | None = None
    name: str | None = None
    mib: float | None = None
    sm_percent: float | None = None
    user: str | None = None
    gi: int | None = None
    ci: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MigDevice:
    """One slice of a card that is cut up."""

    gpu: int
    gi: int
    ci: int
    dev: int
    used_mib: float | None
    total_mib: float | None
    sm: int | None = None


@dataclass(frozen=True, kw_only=True)
class GpuStatus:
    """What one dump says about the cards of one computer.

    ``gpus`` is the last known state of each card; ``samples`` all rows of a series in the order of the text
    (the same as ``gpus`` for a single look). ``processes`` is None where the dump has no list of them and
    empty where the list is there and names nobody. ``columns`` are the fields as the user chose them.
    ``links`` maps pairs of cards ("0-1") to the connection between them, ``numa`` the cards' NUMA nodes.
    ``trouble`` maps a label to the line in which a tool reports a failure, or to what it tells and no field
    holds (an owner without a name, a share of the memory without its size). ``memory_asked`` is False where
    the form of the dump does not hold the cards' memory, so that its absence means nothing.
    """

    source: str
    first_line: int = 1
    last_line: int = 1
    smi_version: str | None = None
    driver_version: str | None = None
    cuda_version: str | None = None
    os: str | None = None
    driver_model: str | None = None
    time: str | None = None
    gpus: tuple[Gpu, ...] = ()
    samples: tuple[Gpu, ...] = ()
    processes: tuple[GpuProcess, ...] | None = None
    mig_devices: tuple[MigDevice, ...] = ()
    columns: tuple[str, ...] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    numa: tuple[int | None, ...] = ()
    trouble: Mapping[str, str] = field(default_factory=dict)
    pci_bus_id: str | None = None
    truncated: bool = False
    memory_asked: bool = True

    def to_json(self) -> dict[str, Any]:
        """As plain data, ready for ``json.dumps``; unknown figures are None."""
        data = asdict(self)
        data["links"], data["trouble"] = dict(self.links), dict(self.trouble)
        if self.samples == self.gpus:
            del data["samples"]
        else:
            data["samples"] = [
                {k: v for k, v in asdict(sample).items() if v not in (None, ())} for sample in self.samples
            ]
        return data

    def gpu_numbers(self) -> list[int]:
        """The numbers of all cards that the dump names, as a card or as the place of a process."""
        numbers = {gpu.index for gpu in self.gpus} | {p.gpu for p in self.processes or ()}
        return sorted(number for number in numbers if number is not None)

    def __str__(self) -> str:
        return self.in_lines()

    def in_lines(self, width: int = 80) -> str:
        """The dump as a table: a line a card; in less than 80 columns first the name goes, then the rest."""
        lines = [_line(_HEAD, width), *(_row(gpu, width) for gpu in self.gpus)] if self.gpus else []
        for process in self.processes or ():
            memory = "memory hidden" if process.mib is None else f"{process.mib:.0f} MiB"
            lines.append(f"    process {process.pid} on GPU {process.gpu}: {memory}  {process.name or ''}")
        lines += [f"    GPU {pair}: {link}" for pair, link in self.links.items()]
        lines += [f"    {label}: {line}" for label, line in self.trouble.items()]
        return "\n".join(line.rstrip() for line in lines) or f"Nothing is known ({self.source})."

    def _repr_html_(self) -> str:
        return f'<pre style="white-space:pre;overflow-x:auto">{html.escape(str(self))}</pre>'


_HEAD = ("GPU", "name", "util", "memory MiB", "power W", "clock", "temp")
_WIDTHS = (4, 26, 6, 17, 13, 7, 6)
_LEAST_NAME = 6


def _line(cells: tuple[str, ...], width: int) -> str:
    """The cells in their columns, as many as fit, the name cut first; the first two to the left."""
    name = min(max(width - sum(_WIDTHS) + _WIDTHS[1], 0), _WIDTHS[1])
    widths = [_WIDTHS[0], name if name >= _LEAST_NAME else 0, *_WIDTHS[2:]]
    while len(widths) > 4 and sum(widths) > width:
        widths.pop()
    left = f"{cells[0]:<{widths[0]}}" + (f"{cells[1][: name - 1]:<{name}}" if widths[1] else "")
    return left + "".join(f"{cell:>{w}}" for cell, w in zip(cells[2:], widths[2:], strict=False))


def _row(gpu: Gpu, width: int) -> str:
    slowed = [reason for reason in gpu.throttle_reasons or () if "slowdown" in reason]
    cells = (
        "?" if gpu.index is None else str(gpu.index),
        gpu.name or "?",
        _show(gpu.util_percent, " %"),
        f"{_show(gpu.used_mib)} / {_show(gpu.total_mib)}",
        f"{_show(gpu.power_w)} / {_show(gpu.power_cap_w)}",
        _show(gpu.sm_clock_mhz),
        _show(gpu.temp_c),
    )
    note = f"\n    slowed: {', '.join(slowed)}" if slowed else ""
    return _line(cells, width).rstrip() + note


def _show(value: float | None, unit: str = "") -> str:
    return "?" if value is None else f"{value:.0f}{unit}"
