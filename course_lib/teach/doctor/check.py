"""What is one line of the doctor's report, and which command cures what it found?"""

from dataclasses import dataclass, replace
from enum import StrEnum

from course_lib.teach.doctor.facts import Facts


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


def installer(facts: Facts, backend: str = "auto") -> str:
    """The beginning of a command that installs packages into this Python; the packages follow.

    Where there is uv, it also picks the build of torch: ``backend`` is "auto", or the name of one.
    """
    if facts.uv is None:
        return f'"{facts.executable}" -m pip install'
    return f'{facts.uv} pip install --python "{facts.executable}" --torch-backend={backend}'


def reinstall_torch(facts: Facts, backend: str = "auto") -> str:
    """The commands that fetch the build of torch for this computer; only uv can tell which one that is."""
    again = "--reinstall-package torch --reinstall-package torchvision torch torchvision"
    if facts.uv is not None:
        return f"{installer(facts, backend)} {again}"
    with_uv = replace(facts, uv=f'"{facts.executable}" -m uv')
    return f"{installer(facts)} uv\n{installer(with_uv, backend)} {again}"
