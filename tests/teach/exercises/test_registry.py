import subprocess
import sys

import pytest

from course_lib.errors import CourseError
from course_lib.teach.exercises.registry import exercise, exercises_of, topics


def in_a_fresh_python(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_an_exercise_is_found_by_its_id():
    assert exercise("start.throughput").title == "Throughput from a step time"
    assert exercise("start.throughput") in exercises_of("start")


def test_modules_of_the_framework_are_no_topics():
    assert "start" in topics()
    assert not {"guard", "registry", "exercise", "checking"} & set(topics())


@pytest.mark.parametrize(
    ("asked", "advice"),
    [
        ("start.troughput", "Did you mean start.throughput"),
        ("Start.Throughput", "Did you mean start.throughput"),
        (" start.throughput ", "Did you mean start.throughput"),
        ("strat.throughput", "Did you mean start.throughput"),
        ("guard.throughput", "There is no exercise"),
        ("no_such_lesson.at_all", "There are "),
        ("", "There are "),
        ("..", "There are "),
        ("os.path", "There is no exercise"),
        (None, "in quotes"),
        (len, "in quotes"),
    ],
)
def test_an_unknown_id_hears_what_comes_near(asked, advice):
    with pytest.raises(CourseError) as caught:
        exercise(asked)
    assert advice in str(caught.value)


def test_asking_for_one_lesson_imports_no_other(tmp_path):
    (tmp_path / "another.py").write_text("raise RuntimeError('imported')", encoding="utf-8")
    code = f"""if True:
        from course_lib.teach import exercises
        exercises.__path__.append({str(tmp_path)!r})
        from course_lib.teach.exercises.registry import exercise, exercises_of
        print(exercise("start.throughput").id)
        try:
            exercises_of("another")
        except RuntimeError as error:
            print(error)
    """
    assert in_a_fresh_python(code).split() == ["start.throughput", "imported"]


def test_importing_the_package_imports_nothing_heavy():
    heavy = "print({'torch', 'IPython', 'numpy', 'course_lib.teach.exercises.start'} & set(sys.modules))"
    assert in_a_fresh_python(f"import sys, course_lib.teach; {heavy}") == "set()"
    names = "from course_lib.teach import check, hint, solution"
    assert in_a_fresh_python(f"import sys; {names}; {heavy}") == "set()"


def test_the_package_names_what_it_has():
    import course_lib.teach

    assert {"check", "hint", "judge", "solution"} <= set(dir(course_lib.teach))
    for name in course_lib.teach.__all__:
        assert callable(getattr(course_lib.teach, name))
    with pytest.raises(AttributeError, match="chek"):
        course_lib.teach.chek  # noqa: B018
