import pytest

from course_lib.errors import CourseError
from course_lib.teach.source import read_source

LESSON = """\
# %% [markdown]
# # Feed the card
#
# What you will be able to do.

# %% tags=["parameters"]
import os

quick = bool(int(os.environ.get("COURSE_QUICK", "0")))

# %%
# copy the batch to the card
# why?
# !course doctor
batch = 64

# %% tags=["exercise"]
# Exercise 4.1 · 5 minutes
def best_speedup(compute_s: float, wait_s: float) -> float:
    # solution
    return (compute_s + wait_s) / compute_s
    # end


check("loading.best_speedup", best_speedup)
"""


def write(folder, text, name="04_loading"):
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    return path


def changed(old, new):
    assert LESSON.count(old) == 1, f"the sample must hold {old!r} once"
    return LESSON.replace(old, new)


def header(*lines):
    return "\n".join(["# ---", "# jupyter:", *lines, "# ---", ""]) + LESSON


def test_a_lesson_is_read_as_it_was_written(tmp_path):
    lesson = read_source(write(tmp_path, LESSON))

    assert (lesson.name, lesson.topic, lesson.title) == ("04_loading", "loading", "Feed the card")
    assert [cell.kind for cell in lesson.cells] == ["markdown", "code", "code", "code"]
    assert [cell.tags for cell in lesson.cells] == [(), ("parameters",), (), ("exercise",)]
    assert lesson.cells[0].text == "# Feed the card\n\nWhat you will be able to do."
    assert lesson.cells[3].place == "04_loading.py, cell 4 (line 17)"
    assert lesson.exercises == {"loading.best_speedup": (lesson.cells[3],)}
    assert lesson.languages == ("en",)
    assert str(lesson) == "04_loading: Feed the card (4 cells, 1 exercises)"


def test_only_marked_comments_become_commands(tmp_path):
    code = read_source(write(tmp_path, LESSON)).cells[2].text

    assert code == "# copy the batch to the card\n# why?\n!course doctor\nbatch = 64"


def test_a_command_goes_on_after_a_backslash(tmp_path):
    text = LESSON.replace("# !course doctor\n", "# !course cost \\\n#     --hours 3\n# a comment\n")
    code = read_source(write(tmp_path, text)).cells[2].text

    assert "\n!course cost \\\n    --hours 3\n# a comment\nbatch = 64" in code


@pytest.mark.parametrize("start", ["", "\ufeff"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_an_editor_on_windows_changes_nothing(tmp_path, start, newline):
    plain = read_source(write(tmp_path, LESSON))
    path = tmp_path / "04_loading.py"
    path.write_bytes((start + LESSON).replace("\n", newline).encode("utf-8"))

    assert read_source(path) == plain


def test_a_header_that_asks_for_python3_may_stand_there(tmp_path):
    kernel = ("#     display_name: Any", "#     name: python3", "#     language: python")
    path = write(tmp_path, header("#   kernelspec:", *kernel))

    assert read_source(path).cells[0].place == "04_loading.py, cell 1 (line 8)"


def test_markers_inside_a_text_do_not_shift_the_places(tmp_path):
    text = changed("batch = 64", "batch = '''\n# %% no cell\n'''")

    assert read_source(write(tmp_path, text)).cells[3].place == "04_loading.py, cell 4"


def test_an_exercise_may_have_several_cells(tmp_path):
    two = changed("\n\ncheck(", '\n\n# %% tags=["exercise"]\ncheck(')
    lesson = read_source(write(tmp_path, two))

    assert lesson.exercises == {"loading.best_speedup": lesson.cells[3:5]}


def test_translations_belong_to_the_cell_before(tmp_path):
    text = changed(
        '\n# %% tags=["parameters"]',
        '\n# %% [markdown] lang="zh"\n# # 喂饱显卡\n\n# %% [markdown] lang="pt-BR"\n# # Alimente a placa\n'
        '\n# %% tags=["parameters"]',
    )
    lesson = read_source(write(tmp_path, text))

    assert lesson.languages == ("en", "pt-BR", "zh")
    assert lesson.cells[0].translations == {"zh": "# 喂饱显卡", "pt-BR": "# Alimente a placa"}
    assert len(lesson.cells) == 4


EXERCISE = '# %% tags=["exercise"]'
PARAMETERS = '# %% tags=["parameters"]'
CHECK = 'check("loading.best_speedup", best_speedup)'
FIFTEEN = "\n".join(f"x{i} = {i}" for i in range(15))  # and the command before them


def translated(*languages):
    cells = "".join(f'# %% [markdown] lang="{language}"\n# # Text\n\n' for language in languages)
    return changed(PARAMETERS, cells + PARAMETERS)


def solution_at(before, after):
    return changed("    # solution\n    return", before).replace("    # end", after)


MISTAKES = {
    "unclosed": (
        changed("    # end\n", ""),
        r"04_loading\.py, cell 4 \(line 17\): a '# solution' is never closed",
    ),
    "end alone": (changed("    # solution\n", ""), "cell 4 .* no '# solution' stands before it"),
    "no title": (changed("# # Feed the card\n#\n", ""), "the first cell must be a markdown cell"),
    "second level": (changed("# # Feed", "# ## Feed"), "the first cell must be a markdown cell"),
    "code first": ("# %%\nx = 1\n\n" + LESSON, "the first cell must be a markdown cell"),
    "text before": ("import os\n\n" + LESSON, "the first cell must be a markdown cell"),
    "empty": ("", "the first cell must be a markdown cell"),
    "no parameters": (changed(PARAMETERS, "# %%"), "one code cell must have .*there is none"),
    "two parameters": (changed("# %%\n# copy", PARAMETERS + "\n# copy"), "cell 2 .*, 04_loading.py, cell 3"),
    "parameters in prose": (
        changed(PARAMETERS, "# %%").replace("[markdown]", '[markdown] tags=["parameters"]'),
        "cell 1 .* the parameters are code",
    ),
    "no quick": (changed("quick = ", "speed = "), "one of them is quick"),
    "no check": (changed(CHECK, ""), "an exercise without its check"),
    "check too late": (
        changed("\n\ncheck(", "\n\n# %% [markdown]\n# Now.\n\n# %%\ncheck("),
        "cell 4 .* without its check",
    ),
    "two checks": (LESSON + 'check("loading.other", best_speedup)\n', "2 calls of check"),
    "id is no text": (changed(CHECK, "check(best_speedup)"), "in quotes, first"),
    "no argument": (changed(CHECK, "check()"), "in quotes, first"),
    "word of another lesson": (changed('check("loading.', 'check("oom.'), "must be called 'loading'"),
    "no point": (changed('check("loading.best_speedup"', 'check("loading"'), "must be called 'loading'"),
    "same id twice": (
        LESSON + "\n" + LESSON[LESSON.index(EXERCISE) :],
        "was checked before, in 04_loading.py, cell 4",
    ),
    "no tag": (changed(EXERCISE, "# %%"), "a solution in a cell without tags"),
    "check without a tag": (
        changed("batch = 64", 'check("loading.batch", 64)'),
        "check.* in a cell without tags",
    ),
    "nothing to solve": (changed("    # solution\n", "").replace("    # end\n", ""), "has no solution"),
    "syntax": (
        changed("batch = 64", "batch = = 64"),
        r"cell 3 .*invalid syntax: 'batch = = 64' \(line 4 of the cell\)",
    ),
    "syntax of both editions": (
        solution_at("    # solution\n    return", "    # end\n  x = 1"),
        "cell 4 .*unindent",
    ),
    "syntax of the learner's edition": (
        changed("def best_speedup", "@cache\n# solution\ndef best_speedup").replace("    # solution\n", ""),
        r"cell 4 .*'\.\.\.  # your code here'",
    ),
    "solution that is half a statement": (
        solution_at("    if wait_s:\n# solution\n        pass\n    return", "# end"),
        "not whole statements",
    ),
    "wide line": (
        changed("batch = 64", f"batch = 64  # {'x' * 75}"),
        "88 characters, and this one 89: 'batch",
    ),
    "long cell": (changed("batch = 64", FIFTEEN), "16 lines of code; a cell has at most 15"),
    "unknown option": (changed('tags=["parameters"]', 'tag=["parameters"]'), "unknown 'tag'"),
    "title on the line": (changed(EXERCISE, '# %% An exercise tags=["exercise"]'), "unknown 'title'"),
    "tags as text": (
        changed('["exercise"]', '"exercise"'),
        r"04_loading\.py.*'exercise' is not of type 'array'",
    ),
    "raw": (changed("# %%\n# copy", "# %% [raw]\n# copy"), "cell 3 .*a raw cell"),
    "open header": ("# ---\n# jupyter: [\n# ---\n" + LESSON, "a raw cell.*header"),
    "half a kernel": (
        header("#   kernelspec:", "#     name: python3"),
        "'display_name' is a required property",
    ),
    "other kernel": (
        header("#   kernelspec:", "#     name: ir", "#     display_name: R"),
        "another kernel than python3",
    ),
    "other language": (
        header("#   kernelspec:", "#     name: python3", "#     language: R", "#     display_name: R"),
        "another kernel than python3",
    ),
    "lang at code": (changed("# %%\n# copy", '# %% lang="zh"\n# copy'), "lang belongs to markdown cells"),
    "lang first": ('# %% [markdown] lang="zh"\n# # 喂\n\n' + LESSON, "directly after the cell it translates"),
    "lang after code": (
        LESSON + '\n# %% [markdown] lang="zh"\n# 完\n',
        "directly after the cell it translates",
    ),
    "lang twice": (translated("zh", "de", "zh"), "has a text in 'zh' already"),
    "lang of the first": (translated("en"), "not another language"),
    "lang that is no code": (translated("Chinese!"), "not another language"),
}


@pytest.mark.parametrize(("text", "complaint"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_told_with_its_place(tmp_path, text, complaint):
    with pytest.raises(CourseError, match=complaint) as told:
        read_source(write(tmp_path, text))
    assert "04_loading.py" in str(told.value)


def test_comments_and_exercises_may_make_a_cell_long(tmp_path):
    fourteen = "\n".join(f"# a comment\n\nx{i} = {i}" for i in range(14))
    long_solution = "\n".join(f"    x{i} = {i}" for i in range(16))

    read_source(write(tmp_path, changed("batch = 64", fourteen)))
    read_source(write(tmp_path, changed("    # solution\n", f"    # solution\n{long_solution}\n")))


@pytest.mark.parametrize(
    "name", ["loading", "4_loading", "04-loading", "04_Loading", "04_", "04_data_loading"]
)
def test_a_file_of_another_name_is_no_lesson(tmp_path, name):
    with pytest.raises(CourseError, match="is not the name of a lesson"):
        read_source(write(tmp_path, LESSON, name))


def test_a_missing_or_unreadable_file_is_told(tmp_path):
    with pytest.raises(CourseError, match="There is no lesson source"):
        read_source(tmp_path / "04_loading.py")
    (tmp_path / "04_loading.py").write_bytes(b"# %% [markdown]\n# # \xff\xfe\n")
    with pytest.raises(CourseError, match="not UTF-8"):
        read_source(tmp_path / "04_loading.py")
