"""Every lesson with its solutions, as ``course run --solved --quick`` runs it."""

import pytest

from course_lib.claims import CLAIMS
from course_lib.teach.build import exercise_ids
from course_lib.teach.lessons import Lesson, lessons
from course_lib.teach.running.run import LessonRun, problems_of, run_lesson

LESSONS = lessons()
CELL_LIMIT_S = 600  # against hanging: a busy machine needs minutes for what else takes seconds
GIB = 2**30
SERVER_BYTES = 150 * 2**20  # JupyterLab's server takes about 80 MiB, and more with a page open


@pytest.fixture(scope="module", params=LESSONS, ids=str)
def lesson(request: pytest.FixtureRequest) -> Lesson:
    chosen: Lesson = request.param
    return chosen


@pytest.fixture(scope="module")
def run(lesson: Lesson, tmp_path_factory: pytest.TempPathFactory) -> LessonRun:
    out = tmp_path_factory.mktemp("run")
    return run_lesson(lesson, solved=True, quick=True, out=out, cell_limit_s=CELL_LIMIT_S)


def test_no_cell_and_no_widget_fails(run: LessonRun) -> None:
    assert problems_of(run) == ()


def test_every_solution_is_right(lesson: Lesson, run: LessonRun) -> None:
    answered = {result.id: (result.outcome, result.message) for result in run.results}
    assert set(answered) == set(exercise_ids(lesson.name))
    assert {id: told for id, told in answered.items() if told[0] != "correct"} == {}


def test_every_claim_of_the_lesson_gets_its_verdict(lesson: Lesson, run: LessonRun) -> None:
    judged = [judgement.claim_id for judgement in run.judgements]
    assert sorted(judged) == sorted({claim.id for claim in CLAIMS if lesson.topic in claim.lessons})


def test_the_lesson_fits_into_2_gib_with_the_server(run: LessonRun) -> None:
    assert 0 < run.peak_bytes < 2 * GIB - SERVER_BYTES


def test_the_page_describes_every_picture(run: LessonRun) -> None:
    from bs4 import BeautifulSoup

    page = BeautifulSoup(run.page.read_text(encoding="utf-8"), "html.parser")
    images = page.find_all("img")
    assert images
    undescribed = [image for image in images if not image.get("alt") or "No description" in image["alt"]]
    assert undescribed == []
    assert [
        script["src"] for script in page.find_all("script", src=True) if "mathjax" not in script["src"]
    ] == []


def test_there_are_lessons() -> None:
    assert LESSONS
