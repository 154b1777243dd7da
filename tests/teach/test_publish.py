import json

import pytest

from course_lib.errors import CourseError
from course_lib.files import checkout_root
from course_lib.teach.build import build_all
from course_lib.teach.links import (
    ADDRESSES,
    BADGES_END,
    BADGES_START,
    Repository,
    launch_addresses,
    read_links,
)
from course_lib.teach.publish import check_links, write_links
from course_lib.teach.workspace import CHECKOUT_FOLDER

LESSON = """\
# %% [markdown]
# # Feed the card
#
# See [the other](00_start.ipynb).

# %% tags=["parameters"]
import os

quick = os.environ.get("COURSE_QUICK", "0") == "1"
"""
ADA, EVE = Repository("ada/course"), Repository("eve/fork", "spring")


@pytest.fixture
def root(tmp_path):
    source = tmp_path / "notebooks" / "source"
    source.mkdir(parents=True)
    for name in ("00_start", "04_loading"):
        (source / f"{name}.py").write_text(LESSON, encoding="utf-8")
    readme = f"# Course\n\n{BADGES_START}\n{BADGES_END}\n\nText · é\n"
    (tmp_path / "README.md").write_bytes(readme.encode())
    build_all(tmp_path)
    return tmp_path


def committed(root):
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and "build" not in path.relative_to(root).parts
    }


def test_before_anybody_published_there_is_no_address_and_the_check_says_what_to_do(root):
    assert not any(launch_addresses(data.decode()) for data in committed(root).values())
    report = check_links(root=root)
    assert report.repository is None
    assert report.problems == (
        "There are no badges and no hosted lessons yet; write them with: course links --repo OWNER/NAME",
    )


def test_links_are_written_checked_and_the_same_when_written_again(root):
    report = write_links(ADA, root)
    assert {path.relative_to(root).as_posix() for path in report.written} >= {
        "README.md", "notebooks/links.json", "notebooks/00_start.ipynb", "notebooks/hosted/04_loading.ipynb",
    }  # fmt: skip
    assert check_links(root=root).problems == ()
    assert check_links(ADA, root).problems == ()
    files = committed(root)
    assert build_all(root, check=True).differing == ()
    again = write_links(ADA, root)
    assert again.written == ()
    assert committed(root) == files


def test_a_fork_writes_its_own_name_and_nothing_of_the_first_is_left(root):
    write_links(ADA, root)
    elsewhere = check_links(EVE, root)
    assert elsewhere.problems == (
        "The links lead to ada/course, branch main, not to eve/fork, branch spring; "
        "write them with: course links --repo OWNER/NAME",
    )
    write_links(EVE, root)
    assert not [name for name, data in committed(root).items() if b"ada/course" in data]
    assert check_links(EVE, root).problems == ()


def test_every_address_leads_to_a_file_that_is_there(root):
    write_links(ADA, root)
    addresses = {a for data in committed(root).values() for a in launch_addresses(as_read(data))}
    assert len(addresses) == 6  # two lessons, three places
    for address in addresses:
        if "/blob/main/" in address:
            assert (root / address.partition("/blob/main/")[2]).is_file()
        else:
            name = address.rpartition(f"lab/tree/{CHECKOUT_FOLDER}/")[2]
            assert (root / "notebooks" / name).is_file()  # what binder/postBuild copies


def as_read(data):
    """A file's text; of a notebook the strings as they are read, not as JSON writes them."""
    text = data.decode()
    if '"cells"' not in text:
        return text
    return "".join(line for cell in json.loads(text)["cells"] for line in cell["source"])


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("notebooks/hosted/04_loading.ipynb", "04_loading.ipynb: is missing"),
        ("notebooks/00_start.ipynb", "00_start.ipynb: is missing"),
        ("notebooks/source/04_loading.py", "04_loading.ipynb: without a source"),
        ("notebooks/links.json", "no badges and no hosted lessons yet"),
    ],
)  # fmt: skip
def test_what_is_missing_is_found(root, file, words):
    write_links(ADA, root)
    (root / file).unlink()
    assert words in "\n".join(check_links(root=root).problems)


def test_without_its_file_the_links_that_are_left_are_dead(root):
    write_links(ADA, root)
    (root / "notebooks" / "links.json").unlink()
    problems = check_links(root=root).problems
    assert sum("README.md: https://" in line and "is dead" in line for line in problems) == 3


def test_badges_taken_out_by_hand_are_missed(root):
    write_links(ADA, root)
    (root / "README.md").write_text(f"{BADGES_START}\n{BADGES_END}\n", encoding="utf-8")
    assert "README.md: the badges are missing" in str(check_links(root=root))
    (root / "README.md").write_text("# Course\n", encoding="utf-8")
    assert "no place for the badges" in str(check_links(root=root))


def test_addresses_written_by_hand_are_dead_unless_they_open_a_lesson_of_the_repository(root):
    write_links(ADA, root)
    good, other_repository, no_lesson = (
        ADDRESSES["Colab"](ADA, "04_loading"),
        ADDRESSES["Binder"](EVE, "04_loading"),
        ADDRESSES["Kaggle"](ADA, "05_nothing"),
    )
    (root / "docs").mkdir()
    (root / "docs" / "page.md").write_text(f"{good} {other_repository}\n", encoding="utf-8")
    source = root / "notebooks" / "source" / "00_start.py"
    source.write_text(LESSON.replace("00_start.ipynb", no_lesson), encoding="utf-8")
    build_all(root)
    assert check_links(root=root).problems == (
        f"docs/page.md: {other_repository} is dead: no lesson of the published repository.",
        f"notebooks/source/00_start.py: {no_lesson} is dead: no lesson of the published repository.",
    )


def test_a_damaged_file_is_a_problem_and_is_written_again(root):
    write_links(ADA, root)
    files = committed(root)
    (root / "notebooks" / "links.json").write_text("{", encoding="utf-8")
    assert "is damaged" in str(check_links(root=root))
    write_links(ADA, root)
    assert committed(root) == files


def test_nothing_is_written_where_a_lesson_or_the_readme_is_wrong(root):
    source = root / "notebooks" / "source" / "04_loading.py"
    source.write_text(LESSON.replace("# # Feed", "# Feed"), encoding="utf-8")
    before = committed(root)
    with pytest.raises(CourseError, match="the first cell must be"):
        write_links(ADA, root)
    assert committed(root) == before
    source.write_text(LESSON, encoding="utf-8")
    (root / "README.md").write_text("# Course\n", encoding="utf-8")
    before = committed(root)
    with pytest.raises(CourseError, match="no place for the badges"):
        write_links(ADA, root)
    assert committed(root) == before
    assert read_links(root / "notebooks") is None


@pytest.mark.skipif(checkout_root() is None, reason="looks at the README of a checkout")
def test_this_repository_shows_no_dead_badge():
    root = checkout_root()
    problems = check_links(root=root).problems
    if read_links(root / "notebooks") is None:
        assert len(problems) == 1, problems
        assert "no badges and no hosted lessons yet" in problems[0]
    else:
        assert problems == ()
