"""An error that no reader knows is named with its place, in whatever style its traceback is printed."""

import asyncio
import json
import traceback
from pathlib import Path

import pytest

from course_lib.diagnose.recognise import explain

PLAIN = """Traceback (most recent call last):
  File "/home/me/train.py", line 31, in <module>
    main()
  File "/home/me/train.py", line 22, in main
    batch = next(batches)
  File "/opt/env/lib/python3.12/site-packages/lib/loader.py", line 80, in __next__
    return self.table[key]
           ~~~~~~~~~~^^^^^
{error}"""
IPYTHON_NEW = """---------------------------------------------------------------------------
KeyError                                  Traceback (most recent call last)
Cell In[7], line 3
      1 model = build()
      2 model.train()
----> 3 main()

File ~/course/train.py:22, in main(config)
     20 batches = iter(loader)
     21 for step in range(10):
---> 22     batch = next(batches)
     23 return

File /opt/env/lib/python3.12/site-packages/lib/loader.py:80, in Loader.__next__(self)
     78     key = self.keys.pop()
---> 80     return self.table[key]

KeyError: 'left'"""
IPYTHON_OLD = """---------------------------------------------------------------------------
KeyError                                  Traceback (most recent call last)
<ipython-input-7-0123456789ab> in <module>
      1 model = build()
----> 3 main()

~/course/train.py in main(config)
     21 for step in range(10):
---> 22     batch = next(batches)

/opt/env/lib/python3.8/site-packages/lib/loader.py in __next__(self)
---> 80     return self.table[key]

KeyError: 'left'"""
RICH = """╭─────────────────── Traceback (most recent call last) ────────────────────╮
│ /home/me/train.py:31 in <module>                                         │
│                                                                          │
│   30 if __name__ == "__main__":                                          │
│ ❱ 31 │   main()                                                          │
│                                                                          │
│ /home/me/a/very/long/path/to/the/folder/of/the/project/that/does/not/fit │
│ /train.py:22 in main                                                     │
│                                                                          │
│   21 │   for step in range(10):                                          │
│ ❱ 22 │   │   batch = next(batches)                                       │
│ ╭───────── locals ─────────╮                                             │
│ │ batches = <it>           │                                             │
│ ╰──────────────────────────╯                                             │
│                                                                          │
│ /opt/env/lib/python3.12/site-packages/lib/loader.py:80 in __next__       │
│                                                                          │
│ ❱ 80 │   return self.table[key]                                          │
╰──────────────────────────────────────────────────────────────────────────╯
KeyError: 'left'"""
HERE = "train.py, line 22, in main"
ERROR = "KeyError: 'left'"


def logged(text: str, prefix: str) -> str:
    return "\n".join(prefix.format(n % 10) + line for n, line in enumerate(text.split("\n")))


@pytest.mark.parametrize(
    "text",
    [
        PLAIN.format(error=ERROR),
        "> " + PLAIN.format(error=ERROR).replace("\n", "\n> "),
        "```\n" + PLAIN.format(error=ERROR) + "\n```\nWhat is wrong?",
        "Epoch 3:  40%|####      | 8/20 [00:01<00:02, 5.1it/s]" + PLAIN.format(error=ERROR),
        "2026-03-04 10:11:12,345 - train - ERROR - it failed: " + PLAIN.format(error=ERROR),
        logged(PLAIN.format(error=ERROR), "2026-03-04 10:11:1{} | ERROR | train | "),
        logged(PLAIN.format(error=ERROR), "(Engine rank=3 pid=71) ERROR 03-04 10:11:1{} [core.py:512] "),
        PLAIN.format(error=ERROR).partition("in <module>\n")[2],
        IPYTHON_NEW,
        IPYTHON_OLD,
        "\x1b[0;31m" + IPYTHON_NEW.replace("---->", "\x1b[0;32m---->\x1b[0m"),
        RICH,
        "│ │ 3 │ x = 1 │\n" + RICH,
        logged(RICH, "2026-03-04 10:11:1{} | ERROR | stderr | "),
        "\n".join(line.strip() for line in PLAIN.format(error=ERROR).split("\n")),
        RICH.replace("╭", "+").replace("╰", "+").replace("─", "-").replace("│", "|"),
        "FutureWarning: `torch.cuda.amp.autocast(args...)` is deprecated.\n" + PLAIN.format(error=ERROR),
    ],
)
def test_each_style_gives_the_error_and_the_line_of_the_learner(text: str) -> None:
    explanation = explain(text)
    first = explanation.findings[0]
    assert (first.id, first.severity) == ("python.exception", "problem")
    assert first.summary == f"Python raised {ERROR} at {HERE}"
    assert str(first.first_remedy).startswith(f"Look at {HERE}. Print the keys")
    figures = next(r.figures for r in explanation.readings if r.findings == (first,))
    assert figures == {"raised": ERROR, "where": HERE}


def test_a_traceback_on_one_line_of_a_log_in_json() -> None:
    text = 'started\n{"level": "error", "exc": ' + json.dumps(PLAIN.format(error=ERROR)) + "}\nended"
    (reading,) = explain(text).readings
    assert reading.findings[0].summary == f"Python raised {ERROR} at {HERE}"
    assert (reading.first_line, reading.last_line) == (2, 2)


def test_an_error_in_a_cell_of_a_notebook() -> None:
    for style in (IPYTHON_NEW, IPYTHON_OLD):
        head, _, tail = style.partition("\n\n")
        own = head + "\n\n" + tail.replace("~/course/train.py", "/opt/env/lib/python3.12/site-packages/x.py")
        assert explain(own).findings[0].summary == f"Python raised {ERROR} at notebook cell 7, line 3"


@pytest.mark.parametrize(
    ("frame", "place"),
    [
        ("in <cell line: 4>:6", "notebook cell, line 6"),
        ("in fill:6", "notebook cell, line 6, in fill"),
        ("<ipython-input-7-0a1b2c>:6 in <module>", "notebook cell 7, line 6"),
        ("/tmp/ipykernel_52/30.py:6 in fill", "notebook cell, line 6, in fill"),
    ],
)
def test_an_error_in_a_cell_drawn_in_a_box(frame: str, place: str) -> None:
    library = "/opt/env/lib/python3.12/site-packages/lib/loader.py:80 in __next__"
    box = f"╭── Traceback (most recent call last) ──╮\n│ {frame} │\n│ {library} │\n╰────╯\n{ERROR}"
    for text in (box, box.replace(f"│ {library}", f"│  │\n│ {library}")):
        assert explain(text).findings[0].summary == f"Python raised {ERROR} at {place}"


@pytest.mark.parametrize("style", [PLAIN.format(error="{}"), IPYTHON_NEW.replace(ERROR, "{}")])
def test_a_style_does_not_hide_what_is_known(style: str) -> None:
    known = "RuntimeError: CUDA error: device-side assert triggered"
    text = style.replace("KeyError  ", "RuntimeError  ").format(known)
    assert [f.id for f in explain(text).findings] == ["cuda.device_side_assert"]


def test_a_traceback_without_its_last_line() -> None:
    cut = PLAIN.partition("{error}")[0]
    first = explain("epoch 1 loss 0.5\n" + cut).findings[0]
    assert (first.id, first.certainty) == ("python.traceback_cut_off", "possible")
    assert HERE in first.summary
    assert "loader.py, in __next__" in first.why
    assert "Paste the lines that follow" in str(first.first_remedy)
    # With the cause in the text, nobody needs the end of the traceback.
    beside = explain(cut + "\nslurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.batch cgroup.")
    assert [f.id for f in beside.findings] == ["oom.host_killed"]


def test_a_stop_from_the_keyboard_is_no_error() -> None:
    first = explain(PLAIN.format(error="KeyboardInterrupt")).findings[0]
    assert (first.id, first.severity) == ("python.interrupted", "warning")
    assert HERE in str(first.first_remedy)


def test_the_parts_of_an_exception_group_are_read_not_the_group(tmp_path: Path) -> None:
    script = tmp_path / "serve.py"
    script.write_text(
        "import asyncio\n"
        "async def fetch(): raise ZeroDivisionError('no samples')\n"
        "async def main():\n"
        "    async with asyncio.TaskGroup() as group:\n"
        "        group.create_task(fetch())\n",
        encoding="utf-8",
    )
    names: dict[str, object] = {}
    exec(compile(script.read_text(encoding="utf-8"), str(script), "exec"), names)
    with pytest.raises(BaseExceptionGroup) as caught:
        asyncio.run(names["main"]())  # type: ignore[operator]
    printed = "".join(traceback.format_exception(caught.value))
    assert "sub-exception" in printed
    first = explain(printed).findings[0]
    assert first.summary == "Python raised ZeroDivisionError: no samples at serve.py, line 2, in fetch"


def test_an_error_of_a_thread_is_told_where_nothing_else_ended() -> None:
    thread = "Exception in thread Thread-2 (watch):\n" + PLAIN.format(error="ValueError: no such card")
    assert explain(thread).findings[0].summary == f"Python raised ValueError: no such card at {HERE}"
    both = thread + "\n" + PLAIN.format(error=ERROR)
    assert "KeyError" in explain(both).findings[0].summary


def test_without_a_line_of_the_learner_s_the_whole_traceback_is_wanted() -> None:
    first = explain("TypeError: fit() got an unexpected keyword argument 'epoch'").findings[0]
    assert first.summary == "Python raised TypeError: fit() got an unexpected keyword argument 'epoch'"
    assert "whole traceback" in str(first.first_remedy)


@pytest.mark.parametrize(
    "text",
    [
        "We saw that a KeyError: 'a' may come, and a ValueError: too.",
        "Exception ignored in: <function Loader.__del__ at 0x7>\n" + PLAIN.format(error=ERROR),
        "try:\n    go()\nexcept KeyError: pass\n",
        "KeyError                                  Traceback (most recent call last)",
        "╭──── Traceback (most recent call last) ────╮",
        "  + Exception Group Traceback (most recent call last):",
    ],
)
def test_no_error_is_made_of_other_text(text: str) -> None:
    assert not explain(text).known


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("/home/me/torch/train.py", True),
        ("C:\\work\\lib\\train.py", True),
        ("notebook.py", True),
        ("<stdin>", True),
        ("C:\\conda\\envs\\a\\lib\\multiprocessing\\spawn.py", False),
        ("C:\\Python311\\Lib\\runpy.py", False),
        ("/srv/pkgs/torch/cuda/__init__.py", False),
        ("path\\venv\\lib\\site-packages\\lightning\\trainer.py", False),
        ("<frozen importlib._bootstrap>", False),
        ("/opt/env/bin/torchrun", False),
    ],
)
def test_whose_file_it_is(path: str, own: bool) -> None:
    text = f'Traceback (most recent call last):\n  File "{path}", line 3, in go\n    x()\nKeyError: 1'
    assert (" at " in explain(text).findings[0].summary) == own
