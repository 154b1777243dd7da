import gc
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from bs4 import BeautifulSoup

from course_lib.errors import CourseError
from course_lib.teach.labs.frame import Lab, MeasuringLab, Progress, choices, menu, whole_numbers
from course_lib.teach.picture import Picture
from course_lib.teach.plots import plot_split
from course_lib.teach.running.kernel_errors import LAB_FAILED
from course_lib.train.split import StepSplit

LIMIT_S = 120
"""How long anything may take, a busy machine considered; nothing waits so long when all is well."""


def controls() -> dict[str, Any]:
    return {"size": choices("size", (8, 16, 32), 16), "workers": whole_numbers("workers", 0, 4, 1)}


def described(size: int, workers: int) -> str:
    if workers == 3:
        raise CourseError("Three <workers> cannot be used.")
    if workers == 4:
        raise ZeroDivisionError("division by zero")
    return f"<{size}, {workers}>"


def message(lab: Lab) -> str:
    return BeautifulSoup(lab.box.children[-2].value, "html.parser").text


def picture(lab: Lab) -> str:
    return str(lab.box.children[-1].value)


def failed(lab: Lab) -> bool:
    return LAB_FAILED in lab.box.children[-2]._dom_classes


def test_a_lab_answers_at_once_and_to_each_slider() -> None:
    lab = Lab(described, controls())
    assert lab.result == "<16, 1>"
    lab.controls["size"].value = 32
    lab.controls["workers"].value = 2
    assert lab.result == "<32, 2>"
    assert picture(lab) == "<pre>&lt;32, 2&gt;</pre>"
    assert (message(lab), lab.errors, failed(lab)) == ("", [], False)


def test_garbage_is_collected_after_the_answer_and_not_within() -> None:
    within = []

    def answer(size: int) -> str:
        within.append(gc.isenabled())
        if size == 3:
            raise KeyError(size)
        return str(size)

    lab = Lab(answer, {"size": choices("size", [1, 2, 3], 1)})
    for size in (2, 3):
        lab.controls["size"].value = size
        assert gc.isenabled()
    gc.disable()
    try:
        lab.controls["size"].value = 1
        assert not gc.isenabled()  # as the learner had it
    finally:
        gc.enable()
    assert within == [False] * 4


def test_bad_input_is_its_sentence_in_place_of_the_picture() -> None:
    lab = Lab(described, controls())
    lab.controls["workers"].value = 3
    assert (message(lab), picture(lab)) == ("Three <workers> cannot be used.", "")
    assert (lab.errors, failed(lab)) == ([], False)
    lab.controls["workers"].value = 2
    assert (message(lab), lab.result) == ("", "<16, 2>")


def test_a_fault_of_the_lab_is_one_sentence_and_is_kept_for_the_tests(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lab = Lab(described, controls())
    lab.controls["workers"].value = 4
    assert "fault of its own (ZeroDivisionError: division by zero)" in message(lab)
    assert (picture(lab), failed(lab)) == ("", True)
    (error,) = lab.errors
    assert error.values == {"size": 16, "workers": 4}
    assert error.error == "ZeroDivisionError: division by zero"
    assert "in described" in error.traceback
    assert capsys.readouterr() == ("", "")
    lab.controls["workers"].value = 0
    assert (message(lab), failed(lab)) == ("", False)
    assert len(lab.errors) == 1


def test_a_fault_in_showing_is_kept_as_well() -> None:
    lab = Lab(described, controls(), show=lambda answers: answers[7])
    assert [error.error for error in lab.errors] == ["IndexError: list index out of range"]


def test_the_latest_answers_are_shown_with_their_settings() -> None:
    shown: list[list[int]] = []
    lab = Lab(
        described,
        controls(),
        show=lambda answers: shown.append([answer.values["size"] for answer in answers]),
        keep=2,
    )
    for size in (8, 32, 16):
        lab.controls["size"].value = size
    assert shown == [[16], [16, 8], [8, 32], [32, 16]]


def test_the_picture_of_before_stays_until_the_new_one_is_there() -> None:
    seen: list[str] = []
    labs: list[Lab] = []

    def spy(size: int, workers: int) -> str:
        seen.extend(picture(lab) for lab in labs)
        return str(size)

    labs.append(Lab(spy, controls()))
    labs[0].controls["size"].value = 32
    assert seen == ["<pre>16</pre>"]


def test_sliders_answer_when_they_are_let_go() -> None:
    assert [control.continuous_update for control in controls().values()] == [False, False]


def test_a_page_without_widgets_shows_the_picture_and_the_call() -> None:
    lab = Lab(
        lambda card: plot_split(StepSplit.from_seconds(forward=0.01)),
        {"card": menu("card", ["A100"], "A100")},
    )
    bundle = lab._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    page = BeautifulSoup(bundle["text/html"], "html.parser")
    assert page.img is not None
    assert "forward 100 %" in str(page.img["alt"])
    assert isinstance(lab.result, Picture)
    named = Lab(described, controls())._repr_mimebundle_()["text/html"]
    assert "described(size=16, workers=1)" in BeautifulSoup(named, "html.parser").text


class Gate:
    """A measurement that the test lets go on step by step."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.ended = threading.Event()
        self.fails: Exception | None = None

    def __call__(self, size: int, workers: int, *, progress: Progress) -> int:
        try:
            progress(0.5, "half")
            while not self.go.wait(0.01):
                progress(0.5, "half")
            if self.fails:
                raise self.fails
            return size * workers
        finally:
            self.ended.set()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.go.set()
    assert gate.ended.wait(LIMIT_S)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_button_measures_shows_progress_and_can_be_pressed_again(gate: Gate) -> None:
    lab = MeasuringLab(gate, controls())
    measure, cancel = lab.buttons["measure"], lab.buttons["cancel"]
    assert (lab.result, measure.disabled, cancel.disabled) == (None, False, True)
    lab.controls["size"].value = 8
    assert lab.result is None, "moving a slider measures nothing"
    measure.click()
    until(lambda: (lab._bar.value, lab._doing.value) == (0.5, "half"))
    assert (measure.disabled, cancel.disabled, lab._bar.layout.display) == (True, False, "")
    assert not lab.wait(0)
    gate.go.set()
    assert lab.wait(LIMIT_S)
    assert (lab.result, measure.disabled, cancel.disabled) == (8, False, True)
    assert lab._bar.layout.display == "none"
    cancel.click()  # a click that was on its way when the measurement ended
    assert lab._doing.value.startswith("took ")
    lab.controls["workers"].value = 4
    measure.click()
    assert lab.wait(LIMIT_S)
    assert lab.result == 32


def test_a_measurement_can_be_cancelled_and_the_pictures_stay(gate: Gate) -> None:
    lab = MeasuringLab(gate, controls())
    gate.go.set()
    lab.buttons["measure"].click()
    assert lab.wait(LIMIT_S)
    gate.go.clear()
    lab.buttons["measure"].click()
    lab.buttons["cancel"].click()
    assert lab.wait(LIMIT_S)
    assert gate.ended.is_set()
    assert lab._doing.value == "cancelled"
    assert (lab.result, picture(lab), lab.errors) == (16, "<pre>16</pre>", [])
    assert not lab.buttons["measure"].disabled


@pytest.mark.parametrize(
    ("error", "told", "kept"),
    [
        (CourseError("No room for pictures."), "No room for pictures.", 0),
        (OSError("disk on fire"), "fault of its own (OSError: disk on fire)", 1),
    ],
)
def test_errors_of_a_measurement_are_told_and_the_older_picture_stays(
    gate: Gate, error: Exception, told: str, kept: int
) -> None:
    lab = MeasuringLab(gate, controls())
    gate.go.set()
    lab.buttons["measure"].click()
    assert lab.wait(LIMIT_S)
    gate.fails = error
    lab.buttons["measure"].click()
    assert lab.wait(LIMIT_S)
    assert told in message(lab)
    assert picture(lab) == "<pre>16</pre>"
    assert len(lab.errors) == kept
    assert not lab.buttons["measure"].disabled


def test_two_labs_do_not_measure_at_the_same_time(gate: Gate) -> None:
    first, second = MeasuringLab(gate, controls()), MeasuringLab(gate, controls())
    first.buttons["measure"].click()
    second.buttons["measure"].click()
    assert "Another measurement is running" in message(second)
    assert second.wait(0)
    gate.go.set()
    assert first.wait(LIMIT_S)
    second.buttons["measure"].click()
    assert second.wait(LIMIT_S)
    assert (first.result, second.result) == (16, 16)
