import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.train.stage_marks import SampleWatch, decoding, reading, watch_samples


class FakeClock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


STEPS = st.lists(st.tuples(st.sampled_from(["read", "decode", "leave"]), st.floats(0, 100)), max_size=30)


@given(STEPS)
def test_every_moment_counts_once(steps: list[tuple[str, float]]) -> None:
    clock = FakeClock()
    watch = SampleWatch(clock, blocked=lambda: None)
    expected = {"read": 0.0, "decode": 0.0, "none": 0.0}
    opened = ["none"]
    for what, seconds in steps:
        clock.now += seconds
        expected[opened[-1]] += seconds
        if what == "leave":
            if len(opened) > 1:
                watch.leave()
                opened.pop()
        else:
            watch.enter(what)  # type: ignore[arg-type]
            opened.append(what)
    watch.close()
    assert [watch.read_s, watch.decode_s, watch.unmarked_s] == pytest.approx(list(expected.values()))
    assert watch.blocked_s == 0


def test_marks_cost_nothing_and_do_nothing_while_nobody_watches() -> None:
    with reading(), decoding():
        pass


def test_reading_a_file_is_seen_without_a_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("ä\nb\n", encoding="utf-8")
    watch = SampleWatch()
    with watch_samples(watch):
        assert path.read_bytes() == "ä\nb\n".encode()
        assert path.read_text(encoding="utf-8") == "ä\nb\n"
        with path.open(encoding="utf-8") as file:
            assert list(file) == ["ä\n", "b\n"]
        with path.open("rb") as file:
            file.seek(1)
            assert file.read(2) == "ä\n".encode()[1:3]
        with (tmp_path / "new").open("w", encoding="utf-8") as file:
            file.write("x")
    assert watch.read_s > 0
    before = watch.read_s
    path.read_bytes()
    assert watch.read_s == before, "after the block nothing is booked"


def test_an_exception_leaves_open_as_it_was() -> None:
    before = open
    with pytest.raises(ZeroDivisionError), watch_samples(SampleWatch()):
        raise ZeroDivisionError
    assert open is before
    with (
        watch_samples(SampleWatch()),
        pytest.raises(RuntimeError, match="measure each other"),
        watch_samples(SampleWatch()),
    ):
        pass


def test_the_system_tells_waiting_from_computing() -> None:
    watch = SampleWatch()
    if watch._blocked() is None:
        pytest.skip("this system does not tell it")
    with watch_samples(watch):
        time.sleep(0.3)
        end = time.thread_time() + 0.1
        while time.thread_time() < end:
            pass
    assert 0.25 < watch.blocked_s < watch.unmarked_s - 0.08
