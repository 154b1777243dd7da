"""What in an exercise cell is the solution, and what does the learner find in its place?

A solution stands between the lines ``# solution`` and ``# end``, indented as the code is. The learner finds
one line there with an ellipsis (``...``) as the answer. ``check`` knows an ellipsis as "not attempted", so an
exercise that nobody has solved breaks no later cell.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Iterator

from course_lib.errors import CourseError

START, END = "# solution", "# end"
_ANSWER = "...  # replace the dots with your answer"
_CODE = "...  # your code here"


def has_markers(code: str) -> bool:
    """Whether the code holds a line that starts or ends a solution."""
    return any(line.strip() in (START, END) for line in code.split("\n"))


def solved(code: str) -> str:
    """The code with its solutions, without the lines that mark them. Raises CourseError as ``unsolved``."""
    return _replace(code, lambda block: block)


def unsolved(code: str) -> str:
    """The code as a learner gets it: a stub in the place of each solution, at its indentation.

    The stub is ``return ...`` where the solution returns, ``name = ...`` where it ends by giving a value to
    a name, and ``...`` elsewhere.

    Raises:
        CourseError: a solution has no end, an end has no start, or a solution is not whole statements.
    """
    return _replace(code, lambda block: [_stub(block)])


def _replace(code: str, new: Callable[[list[str]], list[str]]) -> str:
    result: list[str] = []
    block: list[str] | None = None
    for number, line in enumerate(code.split("\n"), start=1):
        mark = line.strip()
        if mark == START:
            if block is not None:
                raise CourseError(f"line {number} of the cell opens a second {START!r}; write {END!r} first.")
            block = []
        elif mark == END:
            if block is None:
                raise CourseError(f"line {number} of the cell is {END!r}, and no {START!r} stands before it.")
            result += new(block)
            block = None
        elif block is not None:
            block.append(line)
        else:
            result.append(line)
    if block is not None:
        raise CourseError(f"a {START!r} is never closed; write {END!r} on a line after it.")
    return "\n".join(result)


def _stub(block: list[str]) -> str:
    text = "\n".join(block)
    try:
        statements = ast.parse(textwrap.dedent(text)).body
    except SyntaxError:
        statements = []
    if not statements:
        raise CourseError(f"the lines between {START!r} and {END!r} are not whole statements of Python.")
    first = next(line for line in block if line.strip())
    indent = first[: len(first) - len(first.lstrip())]
    last = statements[-1]
    if any(isinstance(node, ast.Return) for statement in statements for node in _same_function(statement)):
        return f"{indent}return {_ANSWER}"
    if isinstance(last, ast.Assign) and all(isinstance(target, ast.Name) for target in last.targets):
        names = " = ".join(ast.unparse(target) for target in last.targets)
        return f"{indent}{names} = {_ANSWER}"
    if isinstance(last, ast.AnnAssign) and isinstance(last.target, ast.Name):
        return f"{indent}{last.target.id}: {ast.unparse(last.annotation)} = {_ANSWER}"
    return f"{indent}{_CODE}"


def _same_function(node: ast.AST) -> Iterator[ast.AST]:
    """The node and all below it, without the insides of functions and classes defined there."""
    yield node
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        for child in ast.iter_child_nodes(node):
            yield from _same_function(child)
