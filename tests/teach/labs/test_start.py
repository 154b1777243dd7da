import multiprocessing
import threading
from pathlib import Path

import psutil
import pytest

from course_lib.errors import CourseError
from course_lib.machine import usable_cores
from course_lib.teach.labs.frame import Answer
from course_lib.teach.labs.start import MOST_WORKERS, lab, measure_loader, plot_measurements
from course_lib.train.images import write_image_files
from course_lib.train.split import StepSplit


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_image_files(tmp_path_factory.mktemp("pictures"), count=12, size=64, progress=False)


def children() -> set[psutil.Process]:
    """Living child processes; under forkserver the workers are children of the server, which stays."""
    if multiprocessing.get_start_method() == "forkserver":
        from multiprocessing import forkserver  # not on Windows

        forkserver.ensure_running()
    return {child for child in psutil.Process().children(recursive=True) if runs(child)}


def runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:  # it ended just now
        return False


@pytest.mark.parametrize(("batch_size", "num_workers"), [(8, 0), (32, 2)])
def test_a_loader_is_measured_in_whole_rounds_and_its_workers_are_gone(
    pictures: Path, batch_size: int, num_workers: int
) -> None:
    before, heard = children(), []
    split = measure_loader(
        batch_size,
        num_workers,
        folder=pictures,
        budget_s=0.2,
        progress=lambda share, doing: heard.append((share, len(children() - before))),
    )
    assert children() <= before
    assert split.samples == split.steps * batch_size, "also where a batch is larger than the folder"
    assert split.steps % max(1, num_workers) == 0
    assert split.warmup == max(1, num_workers)
    assert split.seconds["data"] > 0
    assert split.seconds["forward"] > 0
    shares = [share for share, _ in heard]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert max(workers for _, workers in heard) == num_workers


def test_workers_are_gone_also_when_a_measurement_is_cancelled(pictures: Path) -> None:
    before = children()

    def cancel(share: float, doing: str) -> None:
        if doing.startswith("step"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_loader(8, 2, folder=pictures, budget_s=0.2, progress=cancel)
    assert children() <= before


def test_more_time_takes_more_steps(pictures: Path) -> None:
    assert measure_loader(8, 0, folder=pictures, budget_s=1e-6).steps == 1
    for budget_s in (2.0, 20.0, 120.0):  # a step that a busy machine holds up may take more than two seconds
        steps = measure_loader(8, 0, folder=pictures, budget_s=budget_s).steps
        if steps > 1:
            break
    assert steps > 1


@pytest.mark.parametrize(
    ("batch_size", "num_workers", "budget_s", "told"),
    [
        (0, 0, 1, "The batch size cannot be 0: give a whole number from 1 to 4,096"),
        ("8", 0, 1, "The batch size cannot be '8'"),
        (8, -1, 1, "The number of workers cannot be -1: give a whole number from 0 to 64"),
        (8, 0, 0, "The time to measure, in seconds, cannot be 0"),
    ],
)
def test_what_cannot_be_measured_is_told(
    batch_size: int, num_workers: int, budget_s: float, told: str
) -> None:
    with pytest.raises(CourseError, match=told):
        measure_loader(batch_size, num_workers, budget_s=budget_s)


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="no folder of pictures"):
        measure_loader(8, 0, folder=tmp_path / "nowhere")


def test_bars_are_numbered_so_that_the_same_setting_may_come_twice() -> None:
    split = StepSplit.from_seconds(data=0.01, forward=0.002, batch_size=8)
    answers = [Answer({"batch_size": 8, "num_workers": n}, split) for n in (1, 0, 1)]
    alt = plot_measurements(answers).alt
    for name in ("1. batch 8, 1 worker:", "2. batch 8, 0 workers:", "3. batch 8, 1 worker:"):
        assert name in alt


def test_the_lab_measures_in_a_thread_what_its_sliders_say(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COURSE_FOLDER", str(tmp_path))
    made = lab()
    assert made.controls["num_workers"].max == min(usable_cores(), MOST_WORKERS)
    made.controls["batch_size"].value = 8
    made.controls["num_workers"].value = 1
    before, threads = children(), threading.active_count()
    made.buttons["measure"].click()
    assert made.wait(120)
    assert made.errors == []
    assert made.result.samples == made.result.steps * 8
    assert "1. batch 8, 1 worker" in made._repr_mimebundle_()["text/html"]
    assert children() <= before
    assert threading.active_count() <= threads
    assert (tmp_path / "images").is_dir()
