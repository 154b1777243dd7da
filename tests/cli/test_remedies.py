"""``course remedies`` names the first remedy that fits, as text and as JSON; bad input gets one sentence."""

import json

import pytest

from course_lib.cli.main import main


def course(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(["remedies", *arguments])
    return int(left.value.code or 0)


def test_the_first_remedy_that_fits_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert course("cnn", "--batch", "20000", "--on", "T4", "--optimizer", "sgd", "--json") == 0
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert found["needed"]
    first = found["remedies"][0]
    assert found["first"] == first["name"]
    assert first["fits"]
    assert first["safe"] <= first["capacity"]
    assert "tracing cnn" in shown.err


def test_a_step_that_fits_needs_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert course("cnn", "--batch", "8", "--on", "RTX 3090") == 0
    assert capsys.readouterr().out.startswith("The step fits as it is")


@pytest.mark.parametrize("arguments", [("cnn",), ("cnn", "--on", "RTX 9999"), ("no-such", "--on", "T4")])
def test_bad_input_is_told_in_one_line(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert course(*arguments) == 2
    told = capsys.readouterr().err.strip()
    assert told.startswith("course: ")
    assert "\n" not in told
