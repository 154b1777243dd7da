import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import CourseError
from course_lib.teach.solutions import solved, unsolved

DOTS = "...  # replace the dots with your answer"


@pytest.mark.parametrize(
    ("solution", "stub"),
    [
        ("return a / b", f"return {DOTS}"),
        ("ratio = a / b\nreturn ratio", f"return {DOTS}"),
        ("if b == 0:\n    return 0.0\nelse:\n    return a / b", f"return {DOTS}"),
        ("answer = 4", f"answer = {DOTS}"),
        ("step = 2\nanswer = step * 2", f"answer = {DOTS}"),
        ("first = second = 4", f"first = second = {DOTS}"),
        ("answer: float = 4.0", f"answer: float = {DOTS}"),
        ("model.train()", "...  # your code here"),
        ("total += 1", "...  # your code here"),
        ("a, b = 1, 2", "...  # your code here"),
        ("settings['workers'] = 4", "...  # your code here"),
        ("for batch in loader:\n    step(batch)", "...  # your code here"),
        ("def helper():\n    return 1\nanswer = helper()", f"answer = {DOTS}"),
    ],
)
@pytest.mark.parametrize("indent", ["", "    ", "        "])
def test_stub_has_the_form_and_the_indentation_of_the_solution(solution, stub, indent):
    code = f"before()\n{textwrap.indent(f'# solution{chr(10)}{solution}{chr(10)}# end', indent)}\nafter()"

    assert unsolved(code) == f"before()\n{indent}{stub}\nafter()"
    assert solved(code) == f"before()\n{textwrap.indent(solution, indent)}\nafter()"


def test_each_solution_of_a_cell_gets_its_own_stub():
    code = "# solution\na = 1\n# end\nkept = 2\n# solution\nb = 3\n# end"

    assert unsolved(code) == f"a = {DOTS}\nkept = 2\nb = {DOTS}"


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("x = 1\n# solution\ny = 2", "never closed"),
        ("x = 1\n# end", "line 2 of the cell is '# end'"),
        ("# solution\n# solution\nx = 1\n# end", "line 2 of the cell opens a second"),
        ("# solution\n# end", "not whole statements"),
        ("# solution\n# only a comment\n# end", "not whole statements"),
        ("if x:\n    # solution\n    y = 1\nelse:\n    # end\n    z = 2", "not whole statements"),
    ],
)
def test_wrong_markers_are_told(code, complaint):
    with pytest.raises(CourseError, match=complaint):
        unsolved(code)


@given(st.lists(st.sampled_from(["x = 1", "", "    y = 2", "# a comment", "print('# solution')", "\f"])))
def test_code_without_markers_stays_as_it_is(lines):
    code = "\n".join(lines)
    assert solved(code) == unsolved(code) == code
