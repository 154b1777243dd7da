from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import CourseError
from course_lib.teach import links
from course_lib.teach.links import (
    ADDRESSES,
    BADGES_END,
    BADGES_START,
    Repository,
    launch_addresses,
    launch_line,
    lesson_address,
    links_text,
    read_links,
    with_badges,
)
from course_lib.teach.road import stop, where_next
from course_lib.teach.workspace import CHECKOUT_FOLDER

REPOSITORY = Repository("ada-l/the.course_2", "v1.0")

names = st.from_regex(r"[A-Za-z0-9._-]{1,100}", fullmatch=True).filter(
    lambda name: name not in (".", "..") and not name.endswith(".git")
)
owners = st.from_regex(r"[A-Za-z0-9]{1,9}(-[A-Za-z0-9]{1,9}){0,2}", fullmatch=True)


def test_addresses_are_those_of_the_three_places():
    assert {place: address(REPOSITORY, "04_loading") for place, address in ADDRESSES.items()} == {
        "Binder": "https://mybinder.org/v2/gh/ada-l/the.course_2/v1.0?urlpath=lab/tree/"
        f"{CHECKOUT_FOLDER}/04_loading.ipynb",
        "Colab": "https://colab.research.google.com/github/ada-l/the.course_2/blob/v1.0/notebooks/hosted/"
        "04_loading.ipynb",
        "Kaggle": "https://kaggle.com/kernels/welcome?src=https://github.com/ada-l/the.course_2/blob/v1.0/"
        "notebooks/hosted/04_loading.ipynb",
    }
    assert REPOSITORY.archive == "https://github.com/ada-l/the.course_2/archive/refs/heads/v1.0.zip"


@given(owners, names)
def test_every_name_that_github_allows_makes_whole_addresses(owner, name):
    repository = Repository(f"{owner}/{name}")
    for address in ADDRESSES.values():
        url = address(repository, "00_start")
        query = parse_qs(urlsplit(url).query)
        read_back = urlsplit(url).path + "".join(query.get("src", [])) + "".join(query.get("urlpath", []))
        assert f"/{owner}/{name}/" in read_back
        assert "00_start.ipynb" in read_back
        assert launch_addresses(f"see [this]({url}), or {url} there") == [url, url]
        assert launch_addresses(f'<a href="{url}">') == [url]


@pytest.mark.parametrize(
    "name",
    [
        "", "ada", "ada/", "/course", "ada/course/more", "ada//course", "-ada/course", "ada-/course",
        "a" * 40 + "/course", "ada/" + "c" * 101, "ada/..", "ada/.", "ada/my course", "ada/course?x", "ada/é",
        "a--b/c", "ada/course\n", "ada/course#a", "ada/<b>", "ada_l/course",
    ],
)  # fmt: skip
def test_what_is_no_repository_is_refused_in_one_sentence(name):
    with pytest.raises(
        CourseError, match=r"is not the name of a GitHub repository\. Write it as GitHub does"
    ):
        Repository(name)


@pytest.mark.parametrize(
    "pasted",
    [
        "https://github.com/ada/course",
        "https://github.com/ada/course.git",
        "https://www.github.com/ada/course/",
        "https://github.com/ada/course/tree/main/notebooks",
        "https://github.com/ada/course?tab=readme",
        "git@github.com:ada/course.git",
        "ada/course.git",
    ],
)
def test_a_pasted_address_is_answered_with_the_name_in_it(pasted):
    with pytest.raises(CourseError, match=r"Did you mean ada/course\?$"):
        Repository(pasted)


@pytest.mark.parametrize(
    "branch", ["", "-x", ".x", "a..b", "x.lock", "x.", "a b", "a~1", "a?b", "é", "main\n"]
)
def test_a_branch_that_git_does_not_allow_is_refused(branch):
    with pytest.raises(CourseError, match="cannot be used as a branch"):
        Repository("ada/course", branch)


def test_a_branch_with_a_slash_is_refused_with_its_reason():
    with pytest.raises(CourseError, match="'feature/x' has a slash"):
        Repository("ada/course", "feature/x")


def test_badges_stand_between_the_marks_and_nothing_else_changes():
    readme = f"# Title\n\n{BADGES_START}\n{BADGES_END}\n\nText.\n"
    once = with_badges(readme, REPOSITORY, "00_start")
    assert once.startswith("# Title\n\n")
    assert once.endswith("\n\nText.\n")
    assert launch_addresses(once) == [address(REPOSITORY, "00_start") for address in ADDRESSES.values()]
    assert with_badges(once, REPOSITORY, "00_start") == once
    other = with_badges(once, Repository("eve/fork"), "00_start")
    assert "ada-l" not in other
    assert with_badges(other, REPOSITORY, "00_start") == once


@pytest.mark.parametrize(
    "readme",
    [
        "",
        BADGES_START,
        BADGES_END,
        f"{BADGES_END}\n{BADGES_START}",
        f"{BADGES_START}{BADGES_START}{BADGES_END}",
        f"{BADGES_START}{BADGES_END}{BADGES_END}",
        f"{BADGES_START}{BADGES_END}\n{BADGES_START}{BADGES_END}",
    ],
)
def test_a_readme_without_one_place_for_badges_is_refused(readme):
    with pytest.raises(CourseError, match="no place for the badges"):
        with_badges(readme, REPOSITORY, "00_start")


def test_the_line_in_a_lesson_has_words_only():
    line = launch_line(REPOSITORY, "00_start")
    assert "![" not in line  # a picture would be asked from the network each time the lesson is opened
    assert len(launch_addresses(line)) == 3


def test_the_file_of_links_is_read_as_it_was_written(tmp_path):
    assert read_links(tmp_path) is None
    (tmp_path / "links.json").write_text(links_text(REPOSITORY), encoding="utf-8")
    assert read_links(tmp_path) == REPOSITORY


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '"ada/course"',
        "{}",
        '{"repo": "a/b"}',
        '{"repo": 1, "branch": "m"}',
        '{"repo": "a/b/c", "branch": "m"}',
    ],
)
def test_a_damaged_file_of_links_is_told_in_one_sentence(tmp_path, text):
    (tmp_path / "links.json").write_text(text, encoding="utf-8")
    with pytest.raises(CourseError, match=r"links\.json is damaged"):
        read_links(tmp_path)


@pytest.fixture
def published(tmp_path, monkeypatch):
    (tmp_path / "links.json").write_text(links_text(REPOSITORY), encoding="utf-8")
    monkeypatch.setattr(links, "notebooks_dir", lambda: tmp_path)
    for variable in ("COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


def test_a_link_to_a_lesson_leads_to_a_file_or_to_the_place_that_has_no_files(published, monkeypatch):
    monkeypatch.setattr(links, "find_place", lambda: None)
    assert lesson_address("04_loading") == "04_loading.ipynb"
    monkeypatch.setattr(links, "find_place", lambda: "Google Colab")
    assert lesson_address("04_loading") == ADDRESSES["Colab"](REPOSITORY, "04_loading")
    monkeypatch.setattr(links, "find_place", lambda: "Kaggle")
    assert lesson_address("04_loading") == ADDRESSES["Kaggle"](REPOSITORY, "04_loading")
    (published / "links.json").unlink()
    assert lesson_address("04_loading") == "04_loading.ipynb"


def test_the_signpost_of_a_measured_step_follows(published, monkeypatch):
    step = SimpleNamespace(shares={"data": 0.9})
    (published / f"{stop('loading').name}.ipynb").write_text("{}", encoding="utf-8")
    monkeypatch.setattr("course_lib.files.notebooks_dir", lambda: published)
    monkeypatch.setattr(links, "find_place", lambda: "Google Colab")
    assert ADDRESSES["Colab"](REPOSITORY, "04_loading") in where_next(step)._repr_html_()
