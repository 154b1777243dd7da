"""The script at home: what its reader changed is theirs, and is kept."""

from pathlib import Path

import pytest

from course_lib.errors import CourseError
from course_lib.train.take_home import write_script


def test_what_was_changed_is_kept_and_told(tmp_path: Path) -> None:
    out, data = tmp_path / "my_training.py", tmp_path / "digits.npz"
    first = write_script(out, existing="keep")
    assert (first.written, first.kept) == ((data, out), ())
    assert str(first) == f"wrote {data}\nwrote {out}"
    assert write_script(out, existing="keep") == first, "nothing was changed"

    out.write_text(out.read_text(encoding="utf-8") + "\nmine = 1\n", encoding="utf-8")
    second = write_script(out, existing="keep")
    assert (second.written, second.kept) == ((data,), (out,))
    assert f"kept {out}: it is not the course's" in str(second)
    assert out.read_text(encoding="utf-8").endswith("mine = 1\n")

    data.write_bytes(b"mine")
    assert write_script(out, existing="keep").kept == (data, out)
    with pytest.raises(CourseError, match=r"digits\.npz exists already"):
        write_script(out)
    assert data.read_bytes() == b"mine"
    assert write_script(out, existing="replace") == first


def test_a_folder_in_the_place_of_a_file_is_kept(tmp_path: Path) -> None:
    (tmp_path / "digits.npz").mkdir()
    assert write_script(tmp_path / "train.py", existing="keep").kept == (tmp_path / "digits.npz",)
