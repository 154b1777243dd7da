"""Does lesson 00 work for who opens it in a browser: read it, run it, measure, answer, come back later?"""

import json
import re

import pytest

WRONG = "0" * 48


@pytest.mark.parametrize("query", ["", f"?token={WRONG}"], ids=["no token", "a wrong token"])
def test_without_the_right_token_nothing_opens(query, course_lab, new_page, playwright_api):
    page = new_page()
    page.goto(course_lab.lesson + query)
    assert page.url.startswith(f"{course_lab.base}/login")
    playwright_api.expect(page.get_by_label("Password or token")).to_be_visible()
    assert page.locator(".jp-LabShell").count() == 0
    file = page.request.get(f"{course_lab.base}/files/00_start.ipynb{query}")
    assert "/login" in file.url
    for path in ("api/contents/00_start.ipynb", "api/kernels", "api/terminals", "lab/api/settings"):
        address = f"{course_lab.base}/{path}"
        assert page.request.get(address + query).status == 403, path
        assert new_page().request.get(f"{address}?token={course_lab.token}").status == 200, path


def test_the_first_screen_shows_where_the_lesson_begins(opened):
    page = opened.page
    opened.expect(page.get_by_role("heading", name="Where does the time go?")).to_be_in_viewport()
    opened.expect(page.locator(".jp-NotebookPanel-toolbar").get_by_text("Python 3")).to_be_in_viewport()
    assert opened.complaints == []


def test_no_question_and_no_news_come_over_the_lesson(lesson):
    """JupyterLab asks after a while whether it may fetch news: so this looks after the lesson has run."""
    assert lesson.page.locator(".jp-Dialog, .Toastify__toast").all_text_contents() == []


def test_all_cells_run_from_top_to_bottom(lesson):
    count = lesson.code_cells.count()
    assert count > 20
    prompts = lesson.code_cells.locator(".jp-InputPrompt").all_text_contents()
    assert prompts == [f"[{number}]:" for number in range(1, count + 1)]


def test_each_picture_is_drawn_whole_and_told_in_words(lesson):
    pictures = lesson.page.locator(".jp-OutputArea-output img")
    assert pictures.count() >= 5
    for picture in pictures.all():
        alt = picture.get_attribute("alt")
        assert len(alt.split()) > 5, alt
        drawn, width, room = picture.evaluate(
            "it => [it.naturalWidth, it.width, it.closest('.jp-OutputArea-output').clientWidth]"
        )
        assert drawn > 0, alt
        assert 0 < width <= room, alt


def test_a_slider_is_dragged_and_the_measurement_changes_the_picture(lesson):
    expect = lesson.expect
    lab = lesson.cell(has=lesson.page.get_by_role("button", name="Measure"))
    batch_size, workers = (lab.locator(".widget-slider", has_text=name) for name in ("batch size", "workers"))
    picture, measure = lab.locator("img"), lab.get_by_role("button", name="Measure")

    lesson.drag(batch_size, "left")
    expect(batch_size.locator(".widget-readout")).to_have_text("8")
    measure.click()
    expect(picture).to_have_attribute("alt", re.compile(r"1\. batch 8, 0 workers: [\d.]+ ms a sample"))
    expect(measure).to_be_enabled()
    first, looks = picture.get_attribute("src"), picture.screenshot()

    lesson.drag(workers, "right")
    expect(workers.locator(".widget-readout")).not_to_have_text("0")
    number = workers.locator(".widget-readout").inner_text()
    measure.click()
    expect(picture).to_have_attribute(
        "alt", re.compile(rf"2\. batch 8, {number} workers?: [\d.]+ ms a sample")
    )
    expect(measure).to_be_enabled()
    assert picture.get_attribute("src") != first
    assert picture.screenshot() != looks


def test_a_wrong_answer_hears_what_is_wrong_and_a_right_one_passes(lesson, course_lab):
    cell = lesson.cell(has_text="Exercise 0.2")
    panel = cell.get_by_role("status")

    lesson.answer(cell, "return 1 / step_seconds")
    lesson.expect(panel).to_contain_text("You count steps a second. How many samples does one step see?")
    assert course_lab.progress()["start.throughput"]["outcome"] == "not yet"

    lesson.answer(cell, "return batch_size / step_seconds")
    lesson.expect(panel).to_contain_text("Correct")
    kept = course_lab.progress()["start.throughput"]
    assert (kept["outcome"], kept["attempts"]) == ("correct", 2)


def test_work_and_progress_are_there_after_a_reload(lesson, course_lab):
    expect, code = lesson.expect, "return (data_wait_s + compute_s) / compute_s"
    lesson.answer(lesson.cell(has_text="Exercise 0.4"), code)
    lesson.save()
    cells = json.loads((course_lab.folder / "00_start.ipynb").read_text(encoding="utf-8"))["cells"]
    assert any(code in "".join(cell["source"]) for cell in cells)

    lesson.page.reload()
    lesson.wait_until_ready()
    again = lesson.cell(has_text="Exercise 0.4")
    expect(again.locator(".cm-content")).to_contain_text(code)
    expect(again.get_by_role("status")).to_contain_text("Correct")
    lab = lesson.cell(has=lesson.page.get_by_role("button", name="Measure"))
    expect(lab.locator(".noUi-handle")).to_have_count(2)

    shown = lesson.write_and_run(below=again, code="!course progress")
    solved = sum(record["outcome"] == "correct" for record in course_lab.progress().values())
    assert solved > 0
    expect(shown).to_contain_text(re.compile(rf"00_start: Where does the time go\? +{solved} of 4 "))


def test_the_kernel_restarts_and_the_lesson_begins_anew(lesson, course_lab):
    progress = course_lab.progress()
    lesson.restart_kernel()
    first, second = (lesson.code_cells.nth(number) for number in (0, 1))
    shown = lesson.write_and_run(below=second, code="'history' in globals()")
    lesson.expect(shown).to_have_text("False")
    for number, cell in enumerate((first, second), start=2):
        lesson.run(cell)
        lesson.expect(cell.locator(".jp-InputPrompt")).to_have_text(f"[{number}]:")
    lesson.expect(second.locator(".jp-OutputArea-output")).to_contain_text("cores")
    assert course_lab.progress() == progress
