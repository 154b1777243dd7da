"""Do the badges, the lessons' links and the hosted edition lead to the published repository, all of them?

``course links`` writes them for one repository; with ``--check`` it says what is missing, and which address
must be dead, without asking the network.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from course_lib.errors import CourseError
from course_lib.files import checkout_root
from course_lib.teach.build import build_all, source_names
from course_lib.teach.links import (
    ADDRESSES,
    LINKS_FILE,
    Repository,
    launch_addresses,
    links_text,
    read_links,
    with_badges,
)
from course_lib.teach.source import read_source

WRITE = "course links --repo OWNER/NAME"


@dataclass(frozen=True)
class LinksReport:
    """What the links lead to, and what was written, or what is wrong with them."""

    repository: Repository | None
    written: tuple[Path, ...] = ()
    problems: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.problems:
            return "\n".join(self.problems)
        lines = [f"The links lead to {self.repository}."]
        lines += [f"{path}: written" for path in self.written]
        if self.written:
            lines.append("They work from when this is committed and pushed there.")
        return "\n".join(lines)


def write_links(repository: Repository, root: Path | None = None) -> LinksReport:
    """Write the badges of the README, ``notebooks/links.json`` and the notebooks, for this repository.

    Writing the same again changes nothing; another repository takes the place of the one before.

    Raises:
        CourseError: no checkout, no place for the badges, or a mistake in a lesson. Nothing is written then.
    """
    root = _checkout(root)
    names = source_names(root)
    for name in names:
        read_source(root / "notebooks" / "source" / f"{name}.py")  # finds mistakes before anything is written
    readme, links = root / "README.md", root / "notebooks" / LINKS_FILE
    texts = {
        readme: with_badges(readme.read_text(encoding="utf-8"), repository, names[0]),
        links: links_text(repository),
    }
    written = [path for path, text in texts.items() if not _holds(path, text)]
    for path in written:
        path.write_bytes(texts[path].encode("utf-8"))
    written += [file.path for file in build_all(root).differing if file.state != "without a source"]
    return LinksReport(repository, tuple(written))


def check_links(repository: Repository | None = None, root: Path | None = None) -> LinksReport:
    """Say what is missing or cannot work; with a ``repository``, also what leads to another one.

    Raises:
        CourseError: no checkout, or a mistake in a lesson.
    """
    root = _checkout(root)
    notebooks = root / "notebooks"
    try:
        written_for = read_links(notebooks)
    except CourseError as error:
        return LinksReport(None, problems=(str(error),))
    names = source_names(root)
    problems = []
    if written_for is None:
        problems.append(f"There are no badges and no hosted lessons yet; write them with: {WRITE}")
    elif repository is not None and repository != written_for:
        problems.append(f"The links lead to {written_for}, not to {repository}; write them with: {WRITE}")
    if written_for is not None:
        readme = (root / "README.md").read_text(encoding="utf-8")
        try:
            if with_badges(readme, written_for, names[0]) != readme:
                problems.append(
                    f"README.md: the badges are missing or lead elsewhere; write them with: {WRITE}"
                )
        except CourseError as error:
            problems.append(str(error))
        report = build_all(root, check=True)
        if report.differing:
            problems.append(str(report))
    problems += _dead_addresses(root, written_for, names)
    return LinksReport(written_for, problems=tuple(problems))


def _dead_addresses(root: Path, repository: Repository | None, names: tuple[str, ...]) -> list[str]:
    """Addresses, written by hand or left behind, that open nothing of this repository."""
    alive = (
        {address(repository, name) for address in ADDRESSES.values() for name in names}
        if repository is not None
        else set()
    )
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    pages += sorted((root / "notebooks" / "source").glob("*.py"))
    return [
        f"{page.relative_to(root).as_posix()}: {address} is dead: no lesson of the published repository."
        for page in pages
        if page.is_file()
        for address in launch_addresses(page.read_text(encoding="utf-8"))
        if address not in alive
    ]


def _checkout(root: Path | None) -> Path:
    root = checkout_root() if root is None else root
    if root is None:
        raise CourseError("Links are written in a checkout of the course; this is an installed package.")
    return root


def _holds(path: Path, text: str) -> bool:
    return path.is_file() and path.read_bytes() == text.encode("utf-8")
