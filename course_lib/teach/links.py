"""Where can the course be opened without installing it? Its addresses on Binder, Colab and Kaggle.

They hold for one repository on GitHub, which nobody but the publisher knows. ``course links`` writes it to
``notebooks/links.json``; until then there is no such address anywhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from course_lib.errors import CourseError
from course_lib.files import notebooks_dir
from course_lib.machine import find_place
from course_lib.teach.workspace import CHECKOUT_FOLDER

LINKS_FILE = "links.json"  # in notebooks/, and so in the wheel
HOSTED_FOLDER = "hosted"  # in notebooks/: the edition for Colab and Kaggle
BADGES_START = "<!-- badges: `course links` writes what stands between these two lines -->"
BADGES_END = "<!-- end of badges -->"

# GitHub's own rules: an owner has no hyphen at an end and no two in a row; no repository is called "..".
_OWNER = re.compile(r"(?=.{1,39}$)[A-Za-z0-9]+(-[A-Za-z0-9]+)*")
_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,100}")
_BRANCH = re.compile(r"(?![-.])(?!.*\.\.)(?!.*\.(lock)?$)[A-Za-z0-9._-]{1,200}")
_GITHUB = re.compile(
    r"(?:https?://(?:www\.)?github\.com/|git@github\.com:)([^/\s]+/[^/\s]+?)(?:\.git)?/?(?:$|[/?#])"
)


@dataclass(frozen=True)
class Repository:
    """A repository on GitHub, as OWNER/NAME, and the branch that learners open.

    Raises:
        CourseError: one of them cannot be a GitHub repository or branch, or does not work in an address.
    """

    name: str
    branch: str = "main"

    def __post_init__(self) -> None:
        owner, slash, name = self.name.partition("/")
        if not (slash and _OWNER.fullmatch(owner) and _NAME.fullmatch(name)) or name.endswith(".git"):
            address = _GITHUB.match(self.name)
            meant = address[1] if address else self.name.removesuffix(".git")
            advice = (
                f"Did you mean {meant}?" if meant != self.name else "Write it as GitHub does, OWNER/NAME."
            )
            raise CourseError(f"{self.name!r} is not the name of a GitHub repository. {advice}")
        if "/" in self.branch:
            raise CourseError(
                f"The branch {self.branch!r} has a slash, which Colab and Kaggle take for a folder; "
                "publish a branch without one."
            )
        if not _BRANCH.fullmatch(self.branch):
            raise CourseError(
                f"{self.branch!r} cannot be used as a branch; use letters, digits, '-', '_' and '.'."
            )

    def __str__(self) -> str:
        return f"{self.name}, branch {self.branch}"

    @property
    def archive(self) -> str:
        """The address of the whole branch as one archive, which pip can install."""
        return f"https://github.com/{self.name}/archive/refs/heads/{self.branch}.zip"


def binder_address(repository: Repository, lesson: str) -> str:
    """Opens the learner's copy of a lesson (``"04_loading"``) on Binder, made by ``binder/postBuild``."""
    path = quote(f"lab/tree/{CHECKOUT_FOLDER}/{lesson}.ipynb", safe="/")
    return f"https://mybinder.org/v2/gh/{repository.name}/{repository.branch}?urlpath={path}"


def colab_address(repository: Repository, lesson: str) -> str:
    """Opens the hosted edition of a lesson in Google Colab."""
    return f"https://colab.research.google.com/github/{_on_github(repository, lesson)}"


def kaggle_address(repository: Repository, lesson: str) -> str:
    """Opens the hosted edition of a lesson in a new Kaggle notebook."""
    return f"https://kaggle.com/kernels/welcome?src=https://github.com/{_on_github(repository, lesson)}"


ADDRESSES: Mapping[str, Callable[[Repository, str], str]] = {
    "Binder": binder_address,
    "Colab": colab_address,
    "Kaggle": kaggle_address,
}
_BADGES = {
    "Binder": "https://mybinder.org/badge_logo.svg",
    "Colab": "https://colab.research.google.com/assets/colab-badge.svg",
    "Kaggle": "https://kaggle.com/static/images/open-in-kaggle.svg",
}
_ADDRESS = re.compile(
    r"https://(?:mybinder\.org/v2|colab\.research\.google\.com/github|(?:www\.)?kaggle\.com/kernels)/[^\s)\"'<>]+"
)


def launch_line(repository: Repository, lesson: str) -> str:
    """One line of markdown that opens a lesson elsewhere. Words, not pictures: it is read offline too."""
    places = " · ".join(f"[{place}]({address(repository, lesson)})" for place, address in ADDRESSES.items())
    return f"Open this lesson in a browser, without installing it: {places}"


def with_badges(readme: str, repository: Repository, lesson: str) -> str:
    """The text of a README with the badges of a lesson between its two marks.

    Raises:
        CourseError: the marks are not there, or not once and in order.
    """
    before, start, rest = readme.partition(BADGES_START)
    _, end, after = rest.partition(BADGES_END)
    if not (start and end) or any(readme.count(mark) != 1 for mark in (BADGES_START, BADGES_END)):
        raise CourseError(
            "README.md has no place for the badges; put these two lines, once and in this order, where they "
            f"should stand: {BADGES_START} and {BADGES_END}"
        )
    badges = "\n".join(
        f"[![Open in {place}]({_BADGES[place]})]({address(repository, lesson)})"
        for place, address in ADDRESSES.items()
    )
    return f"{before}{start}\n{badges}\n{end}{after}"


def launch_addresses(text: str) -> list[str]:
    """All addresses in a text that open something on Binder, Colab or Kaggle."""
    return _ADDRESS.findall(text)


def links_text(repository: Repository) -> str:
    """The repository as it stands in ``notebooks/links.json``."""
    return json.dumps({"repo": repository.name, "branch": repository.branch}, indent=1) + "\n"


def read_links(notebooks: Path) -> Repository | None:
    """The repository that the folder of the lessons was published for; None where it was not.

    Raises:
        CourseError: the file is damaged, or names what cannot be a repository.
    """
    path = notebooks / LINKS_FILE
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        if not all(isinstance(value, str) for value in fields.values()):
            raise TypeError
        return Repository(fields["repo"], fields["branch"])
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, AttributeError, KeyError):  # a CourseError is a ValueError
        raise CourseError(f"{path} is damaged; write it again with: course links --repo OWNER/NAME") from None


def lesson_address(lesson: str) -> str:
    """Where a link to a lesson leads, from a page that runs here.

    On Colab and Kaggle, which know no neighbouring files, to its address there; else to the file beside.
    """
    address = {"Google Colab": colab_address, "Kaggle": kaggle_address}.get(find_place() or "")
    repository = read_links(notebooks_dir()) if address is not None else None
    if address is None or repository is None:
        return f"{lesson}.ipynb"
    return address(repository, lesson)


def _on_github(repository: Repository, lesson: str) -> str:
    return f"{repository.name}/blob/{repository.branch}/notebooks/{HOSTED_FOLDER}/{lesson}.ipynb"
