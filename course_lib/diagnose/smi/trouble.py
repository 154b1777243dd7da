"""Which failure does the text report: the tool cannot reach the driver, or a card is gone?

The sentences are looked for with every blank taken out, since terminals break them anywhere.
"""

import re
from collections.abc import Iterator

from course_lib.diagnose.paste import Paste
from course_lib.diagnose.smi.model import GpuStatus

_BUS = r"(?P<bus>(?:[0-9a-f]{3,8}:)?[0-9a-f]{2}:[0-9a-f]{2}(?:\.\d)?)"
# label -> pattern in lower case, without blanks
_SENTENCES = {
    label: re.compile(pattern)
    for label, pattern in {
        "gpu lost": rf"unableto(?:determine|detect)thedevicehandleforgpu(?:\d{{1,2}}:)?(?:{_BUS})?|gpuislost"
        rf"|nvrm:(?:thenvidia)?gpu{_BUS.replace('bus', 'nvrm')}[^!]{{0,120}}fallenoffthebus|fallenoffthebus"
        r"|nolongeravailableonthebus|nvmldevicegethandlebyindex\S{0,4}?:unknownerror",
        "driver not running": r"couldn'tcommunicatewiththenvidiadriver|failedtoinitializenvml:drivernotloaded"
        r"|nvmlerror_drivernotloaded",
        "library mismatch": r"driver/libraryversionmismatch|nvmlerror_libraryversionmismatch"
        r"|nvmlerror_librmversionmismatch",
        "nvml unknown error": r"failedtoinitializenvml:unknownerror",
        "no permission": r"failedtoinitializenvml:insufficientpermissions",
        "access blocked": r"gpuaccessblockedbytheoperatingsystem",
        "no driver library": r"nvmlsharedlibrarynotfound|nvmlerror_librarynotfound"
        r"|couldn'tfind(?:libnvidia-ml|nvml\.dll)|libnvidia-ml\.so\S{0,60}?(?:notfound|cannotopen)",
        "no devices": r"nodeviceswerefound",
        "tool missing": r"nvidia-smi['\"]?:?(?:is|theterm'nvidia-smi'is)?(?:command)?"
        r"not(?:found|recogni[sz]ed)|commandnotfound:nvidia-smi",
        "init failed": rf"nvrm:gpu{_BUS}:rminitadapterfailed",
        "xid": r"xid\((?:pci:)?(?P<bus>[0-9a-f:.]{7,20})\):(?P<xid>\d{1,3})",
    }.items()
}
_CODE = re.compile(r"^\s*(?:#|//|print\(|echo |raise |if |elif )")
_LIBRARY = re.compile(r"nvmllibraryversion:(\d{2,4}(?:\.\d{1,4}){1,3})")
_MOST = 200  # mentions of one failure: a kernel log repeats it


def read(paste: Paste) -> list[GpuStatus]:
    """All failures that the text reports, as one GpuStatus with ``trouble``, or none."""
    found: dict[str, str] = {}
    bus_id = None
    lines: list[int] = []
    for label, line_number, match in sorted(_mentions(paste), key=lambda mention: mention[1]):
        text = paste.lines[line_number - 1][:2000].strip()
        name = f"xid {match['xid']}" if label == "xid" else label
        if found.setdefault(name, text) == text:
            lines.append(line_number)
        if bus_id is None:
            bus_id = next((value for key, value in match.groupdict().items() if value and key != "xid"), None)
    if not found:
        return []
    return [
        GpuStatus(
            source="failure of the card or its driver",
            first_line=min(lines),
            last_line=max(lines),
            trouble=found,
            pci_bus_id=bus_id,
            smi_version=version.group(1) if (version := _LIBRARY.search(paste.lowered)) else None,
        )
    ]


def _mentions(paste: Paste) -> Iterator[tuple[str, int, re.Match[str]]]:
    for label, pattern in _SENTENCES.items():
        for count, match in enumerate(pattern.finditer(paste.lowered)):
            if count == _MOST:
                break
            line_number = paste.line_of(paste.offset(match.start()))
            if not _CODE.match(paste.lines[line_number - 1][:2000]):
                yield label, line_number, match
