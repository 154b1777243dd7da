"""A learner's paste is explained, nonsense is told in a sentence, and no text becomes a part of the page."""

from course_lib.diagnose.recognise import explain
from course_lib.errors import CourseError
from course_lib.files import data_path
from course_lib.teach.paste_box import PasteBox


def after(function, text):
    box = PasteBox(function, "Paste here.")
    box.text.value = text
    box.button.click()
    return box


def test_a_dump_is_explained_by_the_button() -> None:
    box = after(explain, data_path("nvidia_smi/first_card_crowded.txt").read_text(encoding="utf-8"))
    assert "set_device" in box.answer.value
    assert box.errors == []


def test_an_empty_box_and_nonsense_are_told() -> None:
    assert "paste a text" in after(explain, "  \n").answer.value
    assert "I do not know this text" in after(explain, "my dog ate it").answer.value


def test_a_pasted_tag_is_shown_as_text() -> None:
    def echo(text: str) -> str:
        return text

    def refuse(text: str) -> str:
        raise CourseError(f"No: {text}")

    for function in (echo, refuse):
        shown = after(function, "<script>alert(1)</script>").answer.value
        assert "<script>" not in shown
        assert "&lt;script&gt;" in shown


def test_a_fault_of_the_function_is_one_sentence_and_kept() -> None:
    box = after(lambda text: 1 / 0, "x")
    assert "could not be read (ZeroDivisionError)" in box.answer.value
    assert "ZeroDivisionError" in box.errors[0]
    assert "Traceback" not in box.answer.value


def test_without_widgets_it_says_what_to_call() -> None:
    assert "explain(text)" in PasteBox(explain, "Paste here.")._repr_mimebundle_()["text/html"]
