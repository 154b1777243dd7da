"""What does ``gpustat`` say? One line a card, with its owners' processes at the end.

``[0] NAME | 77'C, 96 %, 150 / 180 W | 11848 / 12287 MB | user:python/4711(11821M)``; the degree sign is an
apostrophe or a real one, fan and power are optional, and an owner that cannot be named is ``(null)``.
"""

import itertools
import re

from course_lib.diagnose.paste import Paste
from course_lib.diagnose.smi.cells import number
from course_lib.diagnose.smi.model import Gpu, GpuProcess, GpuStatus

_CARD = re.compile(
    r"\[(\d{1,3})\]\s*(\S[^|]{0,80}?)\s*\|\s*(\d{1,3}|\?\?)\s*['’°º]\s*C\s*,([^|]{1,80})\|"
    r"\s*(\d{1,9}|\?\?)\s*/\s*(\d{1,9}|\?\?)\s*MB\s*(?:\|(.{0,2000}))?"
)
_BROKEN = re.compile(r"^\s*\[\d{1,3}\]\s*\S[^|]{0,80}\|")
_PERCENT = re.compile(r"(\d{1,3}|\?\?)\s*%")
_POWER = re.compile(r"(\d{1,5}|\?\?)\s*(?:/\s*(\d{1,5}|\?\?)\s*)?W")
_OWNER = re.compile(r"([^\s():/]{1,64})?(?::([^\s()/]{1,120}))?(?:/(\d{1,10}))?\((\d{1,9}|\?|null)M?\)")
_DRIVER = re.compile(r"\b(\d{3}\.\d{2,3}(?:\.\d{2})?)\s*$")


def read(paste: Paste) -> list[GpuStatus]:
    """The cards of the text as one GpuStatus, or none."""
    gpus: list[Gpu] = []
    processes: dict[int, list[GpuProcess]] = {}  # of each card, in its last look
    unnamed: dict[str, str] = {}
    lines: list[int] = []
    listed = False
    for line_number, line in enumerate(paste.lines, start=1):
        match = _CARD.search(line[:4000])
        if match is None and _BROKEN.match(line[:200]):
            match = _CARD.search("".join(paste.lines[line_number - 1 : line_number + 1])[:4000])
        if match is None:
            continue
        lines.append(line_number)
        index, name, temperature, middle, used, total, owners = match.groups()
        percents, power = _PERCENT.findall(middle), _POWER.search(middle)
        gpus.append(
            Gpu(
                index=int(index),
                name=name,
                temp_c=number(temperature),
                # The utilisation is the last of the percentages; a fan may stand before it.
                util_percent=number(percents[-1]) if percents else None,
                fan_percent=number(percents[0]) if len(percents) > 1 else None,
                power_w=number(power.group(1)) if power else None,
                power_cap_w=number(power.group(2)) if power else None,
                used_mib=number(used),
                total_mib=number(total),
            )
        )
        owners = (owners or "").strip()
        processes[int(index)] = []
        if owners.startswith("(null)") or owners.startswith("(Not Supported)"):
            unnamed[f"owner of GPU {index}"] = owners.split(")")[0] + ")"
            continue
        for user, command, pid, memory in _OWNER.findall(owners):
            listed = True
            processes[int(index)].append(
                GpuProcess(
                    gpu=int(index),
                    pid=int(pid) if pid else None,
                    name=command or None,
                    user=user or None,
                    mib=number(memory) if memory.isdecimal() else None,
                )
            )
    if not gpus:
        return []
    heads = [line for line in paste.lines[max(lines[0] - 4, 0) : lines[0] - 1] if line.strip()]
    driver = _DRIVER.search(heads[-1][:200]) if heads else None
    return [
        GpuStatus(
            source="gpustat",
            first_line=lines[0],
            last_line=lines[-1],
            driver_version=driver.group(1) if driver else None,
            # Several looks, one under the other: the last of each card is its state.
            gpus=tuple({gpu.index: gpu for gpu in gpus}.values()),
            samples=tuple(gpus),
            processes=tuple(itertools.chain.from_iterable(processes.values())) if listed else None,
            trouble=unnamed,
        )
    ]
