"""What is one line of the doctor's report, and which command cures what it found?"""

from dataclasses import dataclass
from enum import StrEnum

from course_lib.teach.doctor_facts import Facts


class Status(StrEnum):
    """How bad it is."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True)
class Check:
    """One line of the report: what was looked at, what was found, and the cure ("" when all is well)."""

    name: str
    status: Status
    found: str
    cure: str = ""


def installer(facts: Facts) -> str:
    """The beginning of a command that installs packages into this Python; the packages follow."""
    if facts.uv is not None:
        return f'{facts.uv} pip install --python "{facts.executable}"'
    return f'"{facts.executable}" -m pip install'


def reinstall_torch(facts: Facts, backend: str = "auto") -> str:
    """The commands that fetch the build of torch for this computer; uv knows which one that is."""
    uv, first = facts.uv, ""
    if uv is None:
        uv, first = f'"{facts.executable}" -m uv', f'"{facts.executable}" -m pip install uv\n'
    again = "--reinstall-package torch --reinstall-package torchvision torch torchvision"
    return f'{first}{uv} pip install --python "{facts.executable}" --torch-backend={backend} {again}'
