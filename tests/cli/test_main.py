"""Is the help page good, and does every way a command can end give one line and the right status?"""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from course_lib import __version__
from course_lib.cli.main import COMMANDS, SECTIONS, Command, course, main
from course_lib.errors import CourseError


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "course_lib", *arguments],
        capture_output=True,
        check=False,
        encoding="utf-8",
        timeout=300,
    )


@click.command
@click.argument("ending")
def end(ending: str) -> int | None:
    """End in a way that a test asks for."""
    if ending == "course-error":
        raise CourseError("The batch size is -1: give a whole number above 0.")
    if ending == "interrupt":
        raise KeyboardInterrupt
    if ending == "file":
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "run.log")
    if ending == "disk":
        raise OSError(errno.ENOSPC, "No space left on device")
    if ending == "abort":
        raise click.Abort
    if ending == "bug":
        raise ZeroDivisionError
    if ending == "exit":
        click.get_current_context().exit(3)
    return {"one": 1, "zero": 0}.get(ending)


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command ``end`` in the table; it is imported by name, as every command is."""
    sys.modules["a_module_of_this_test"] = sys.modules[__name__]
    monkeypatch.setitem(COMMANDS, "end", Command("Author", "a_module_of_this_test:end", "End."))


@pytest.mark.usefixtures("ending")
@pytest.mark.parametrize(
    ("how", "status", "said"),
    [
        ("course-error", 2, "course: The batch size is -1: give a whole number above 0.\n"),
        ("interrupt", 130, "course: stopped.\n"),
        ("abort", 130, "course: stopped.\n"),
        ("file", 2, "course: run.log: No such file or directory.\n"),
        ("disk", 2, "course: No space left on device.\n"),
        ("exit", 3, ""),
        ("one", 1, ""),
        ("zero", 0, ""),
        ("nothing", 0, ""),
    ],
)
def test_how_a_command_ends(how: str, status: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["end", how])
    assert caught.value.code == status
    captured = capsys.readouterr()
    assert captured.err.lstrip("\n") == said
    assert captured.out == ""


@pytest.mark.usefixtures("ending")
def test_a_mistake_of_the_course_itself_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        main(["end", "bug"])


def test_the_help_page() -> None:
    page = run("--help")
    assert page.returncode == 0
    assert page.stderr == ""
    assert page.stdout.startswith("Usage: course ")
    for section, example in SECTIONS.items():
        assert f"\n{section}:\n" in page.stdout
        assert f"Example: {example}\n" in page.stdout
    for name, row in COMMANDS.items():
        assert f"  {name} " in page.stdout
        assert row.help in page.stdout
    assert max(map(len, page.stdout.splitlines())) <= 100


def test_no_words_at_all_show_the_help_page() -> None:
    assert run().stdout == run("-h").stdout == run("--help").stdout
    assert run().returncode == 0


def test_the_version() -> None:
    assert run("--version").stdout == f"course {__version__}\n"


def test_every_command_is_in_a_section_and_every_example_is_a_command() -> None:
    assert {row.section for row in COMMANDS.values()} == SECTIONS.keys()
    assert {example.split()[1] for example in SECTIONS.values()} <= COMMANDS.keys()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_exists_and_explains_itself_with_an_example(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([name, "--help"])
    assert caught.value.code == 0
    page = capsys.readouterr().out
    assert page.startswith(f"Usage: course {name} ")
    assert f"Example: course {name}" in page


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_refuses_an_unknown_option_in_one_line(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([name, "--no-such-option"])
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("course: No such option")
    assert f"course {name} --help" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("typed", "advice"),
    [("labb", "Did you mean lab?"), ("DOCTOR", "Did you mean doctor?"), ("zzz", "The commands are lab,")],
)
def test_an_unknown_command_is_answered_with_near_ones(typed: str, advice: str) -> None:
    answer = run(typed)
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert answer.stderr.startswith(f"course: There is no command '{typed}'. {advice}")
    assert answer.stderr.count("\n") == 1


def test_the_help_page_imports_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from course_lib.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'matplotlib', 'IPython', 'jupyter_client', 'papermill'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_completion_finds_the_commands() -> None:
    from click.shell_completion import ShellComplete

    completion = ShellComplete(course, {}, "course", "_COURSE_COMPLETE")
    assert [item.value for item in completion.get_completions([], "do")] == ["doctor"]


def child_that(code: str, folder: Path) -> list[str]:
    """A process that runs ``course wait``, a command whose body is this code."""
    body = "\n".join(f"    {line}" for line in code.splitlines())
    text = f"import time\nimport click\n@click.command\ndef wait():\n    'Wait.'\n{body}\n"
    (folder / "waiting.py").write_text(text, encoding="utf-8")
    program = (
        f"import sys; sys.path.insert(0, {str(folder)!r})\n"
        "from course_lib.cli import main as m\n"
        "m.COMMANDS['wait'] = m.Command('Author', 'waiting:wait', 'Wait.')\n"
        "m.main(['wait'])"
    )
    return [sys.executable, "-c", program]


@pytest.mark.skipif(os.name == "nt", reason="Windows sends Ctrl-C to a whole console, not to one process")
def test_a_real_ctrl_c(tmp_path: Path) -> None:
    command = child_that("print('begun', flush=True)\ntime.sleep(60)", tmp_path)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "begun\n"
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=300)
    assert child.returncode == 130
    assert said.strip() == "course: stopped."


@pytest.mark.skipif(os.name == "nt", reason="Windows tells a broken pipe in another way")
@pytest.mark.parametrize("printer", ["print", "click.echo"])
def test_a_reader_that_leaves_early_is_no_error(printer: str, tmp_path: Path) -> None:
    command = child_that(f"for number in range(100_000):\n    {printer}(f'line {{number}}')", tmp_path)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline() == "line 0\n"
        child.stdout.close()
        said = child.stderr.read()
    assert said == ""
    assert child.returncode == 1


def test_a_reader_that_left_before_a_short_answer(tmp_path: Path) -> None:
    """A few lines wait in the buffer until the end, so the pipe breaks only then."""
    if os.name == "nt":
        pytest.skip("Windows tells a broken pipe in another way")
    command = child_that("print('one line')\n__import__('sys').stdin.readline()", tmp_path)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        child.stdin.close()  # only now does it come to its end
        said = child.stderr.read()
    assert said == ""
    assert child.returncode == 1


def test_a_console_without_utf8_prints_a_question_mark(tmp_path: Path) -> None:
    command = child_that("print('12 \\u00b5s \\u2192 \\u5b66')", tmp_path)
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(command, capture_output=True, env=environment, check=False, timeout=300)
    assert done.returncode == 0
    assert done.stdout.strip() == b"12 ?s ? ?"


@pytest.mark.skipif(os.name == "nt", reason="the shell of POSIX closes the streams")
@pytest.mark.parametrize(
    ("line", "status", "said"),
    [("explain - <&-", 2, "What was piped in is empty"), ("cards >&-", 0, ""), ("cards 9999 2>&-", 2, "")],
)
def test_a_stream_that_is_closed(line: str, status: int, said: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m course_lib {line}', sys.executable],
        capture_output=True,
        check=False,
        encoding="utf-8",
        timeout=300,
    )
    assert done.returncode == status
    assert "Traceback" not in done.stderr
    assert said in done.stderr
