"""What does each known recipe gain on this machine, one change at a time?

`recipes` lists them for a folder of photographs: a set-up before and one after, which differ in one thing.
`climb` measures a whole way from a loader that starves the card to one that does not.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from course_lib.bounds import number_in, whole_in
from course_lib.errors import CourseError
from course_lib.train.formats import (
    ArchivedPhotographs,
    InMemoryPhotographs,
    MemoryMappedPhotographs,
    SlowDisk,
    resize_once,
    write_archive,
    write_memory_map,
)
from course_lib.train.loading.gains import Climb, Gain, Rung
from course_lib.train.loading.measurement import Rate
from course_lib.train.loading.memory import check_shared_memory
from course_lib.train.loading.prefetch import Prefetcher
from course_lib.train.loading.probe import bytes_in
from course_lib.train.loading.settings import LoaderSettings, Source
from course_lib.train.loading.step_bench import Step, StepBench, rates
from course_lib.train.loading.trials import run_trial
from course_lib.train.loading.workers import Epochs
from course_lib.train.photographs import BatchedPhotographs, Photographs

Progress = Callable[[float, str], None]
DISK_S = 0.002  # of the emulated slow disk, for each file
WINDOWS = 3  # in which a rate is taken, for its spread
LARGEST_BATCH, MOST_CORES, LONGEST_S = 4096, 1024, 600.0

MEANINGS: Mapping[str, str] = {
    "workers": "processes that make batches while the step runs",
    "prefetch": "four batches lie ready for each worker, in place of two",
    "persistent workers": "go on from one epoch to the next, in place of starting anew",
    "decoding to the needed size": "JPEG is decoded at a half of its size or less where that is enough",
    "uint8 over the wire": "one byte a colour value (uint8) in place of four (float32)",
    "__getitems__": "the data set makes a whole batch in one call, in place of one sample",
    "keeping files in memory": "each file is read once; with a slow disk, emulated",
    "one archive, read in order": "one long file in place of many; shuffled only among neighbours",
    "files resized once": "smaller JPEG files are stored, so there is less to decode",
    "memory map": "pixels are stored ready, in one file that is read as if it were memory",
    "pinned memory": "batches lie where an NVIDIA card can fetch them while it computes",
}


@dataclass(frozen=True)
class SetUp:
    """A data set with loader settings, and whether a thread loads ahead of the step.

    With `epochs` whole epochs are timed, their starts included, instead of the steady state.
    """

    name: str
    dataset: Any = field(repr=False)
    settings: LoaderSettings = field(default_factory=LoaderSettings)
    thread: bool = False
    epochs: bool = False


def recipes(folder: str | Path, *, cores: int) -> dict[str, tuple[SetUp, SetUp]]:
    """The recipes for photographs, by name: a set-up before and one after that differs in one thing.

    MEANINGS explains each. Raises CourseError for a number of cores below 1.
    """
    whole_in(cores, "The number of cores", 1, MOST_CORES)
    files, floats = Photographs(folder, wire="uint8"), Photographs(folder)
    alone, helped = LoaderSettings(), LoaderSettings(cores)
    slow = SlowDisk(files, DISK_S)
    pinned = LoaderSettings(cores, pin_memory=True)
    kept = LoaderSettings(cores, persistent_workers=True)
    pairs = {
        "workers": (SetUp("none", floats, alone), SetUp(f"{cores}", floats, helped)),
        "prefetch": (SetUp("2", files, helped), SetUp("4", files, LoaderSettings(cores, prefetch_factor=4))),
        "persistent workers": (
            SetUp("anew each epoch", files, helped, epochs=True),
            SetUp("kept", files, kept, epochs=True),
        ),
        "decoding to the needed size": (
            SetUp("whole", files, helped),
            SetUp("to size", Photographs(folder, wire="uint8", decode_to_size=True), helped),
        ),
        "uint8 over the wire": (SetUp("float32", floats, helped), SetUp("uint8", files, helped)),
        "__getitems__": (
            SetUp("one by one", files, helped),
            SetUp("a batch at once", BatchedPhotographs(folder, wire="uint8"), helped),
        ),
        "keeping files in memory": (
            SetUp("slow disk (emulated)", slow, helped),
            SetUp("in memory", InMemoryPhotographs(folder, wire="uint8"), helped),
        ),
        "one archive, read in order": (
            SetUp("many files", files, helped),
            SetUp("one archive", ArchivedPhotographs(write_archive(folder), wire="uint8"), helped),
        ),
        "files resized once": (
            SetUp("as they are", files, helped),
            SetUp("resized", Photographs(resize_once(folder), wire="uint8"), helped),
        ),
        "memory map": (
            SetUp("JPEG files", files, helped),
            SetUp("raw pixels", MemoryMappedPhotographs(write_memory_map(folder)), helped),
        ),
    }
    if torch.cuda.is_available():
        pairs["pinned memory"] = (SetUp("pageable", files, helped), SetUp("pinned", files, pinned))
    return pairs


def gain_of(
    recipe: str,
    folder: str | Path,
    step: Step,
    *,
    batch_size: int = 64,
    cores: int = 2,
    budget_s: float = 2.0,
    progress: Progress | None = None,
) -> Gain:
    """Measure one recipe: before, after, before, after, for `budget_s` seconds together.

    Raises CourseError for a recipe that is not known, or cannot be measured on this machine, and for
    numbers that cannot be used.
    """
    _check_numbers(batch_size, budget_s)
    known = recipes(folder, cores=cores)
    if recipe == "pinned memory" and recipe not in known:
        raise CourseError("Pinned memory cannot be tested here: it needs an NVIDIA card.")
    if recipe not in known:
        raise CourseError(f"There is no recipe {recipe!r}: choose one of {', '.join(known)}.")
    before, after = known[recipe]
    for set_up in (before, after):
        _check_room(set_up, batch_size)
    found: list[list[float]] = [[], []]
    turns = ((0, before), (1, after), (0, before), (1, after))  # so that a disturbance meets both
    for done, (place, set_up) in enumerate(turns):
        if progress is not None:
            progress(done / len(turns), set_up.name)
        found[place] += _rates_of(set_up, step, batch_size, budget_s / len(turns))
    if progress is not None:
        progress(1.0, "done")
    return Gain(recipe, Rate.of(found[0]), Rate.of(found[1]))


def way_up(folder: str | Path, *, cores: int) -> Iterator[SetUp]:
    """From JPEG files without a worker to a memory map with a thread that loads ahead; one change each.

    Each is made when it is asked for. Raises CourseError, at once, for a number of cores below 1.
    """
    return _way_up(folder, whole_in(cores, "The number of cores", 1, MOST_CORES))


def _way_up(folder: str | Path, cores: int) -> Iterator[SetUp]:
    helped = LoaderSettings(cores, persistent_workers=True)
    more = LoaderSettings(cores, persistent_workers=True, prefetch_factor=4)
    yield SetUp("JPEG files, no worker", Photographs(folder))
    yield SetUp(f"{cores} workers", Photographs(folder), helped)
    yield SetUp("prefetch 4 in place of 2", Photographs(folder), more)
    yield SetUp("uint8 over the wire", Photographs(folder, wire="uint8"), more)
    yield SetUp("decoded to size", Photographs(folder, wire="uint8", decode_to_size=True), more)
    yield SetUp("files resized once", Photographs(resize_once(folder), wire="uint8"), more)
    mapped = MemoryMappedPhotographs(write_memory_map(folder))
    yield SetUp("memory map, no worker", mapped)
    yield SetUp("memory map, 1 worker", mapped, LoaderSettings(1, persistent_workers=True))
    yield SetUp("memory map, a thread", mapped, thread=True)


def climb(
    set_ups: Iterable[SetUp],
    step: Step,
    *,
    batch_size: int = 64,
    budget_s: float = 1.0,
    progress: Progress | None = None,
) -> Climb:
    """Measure one set-up after the other for `budget_s` seconds each, and the step alone.

    A set-up whose batches do not fit the shared memory is left out. Raises CourseError where there is none,
    and for numbers that cannot be used.
    """
    _check_numbers(batch_size, budget_s)
    chosen = list(set_ups)
    if not chosen:
        raise CourseError("There is no set-up to measure: give at least one.")
    bench = _bench(step)
    first = chosen[0]
    ready = next(iter(Source.of(first.dataset, batch_size).loader(LoaderSettings())))
    alone = Rate.of(rates(bench.run(itertools.repeat(ready), min(1.0, budget_s), at_least=3), WINDOWS))
    rungs, left_out = [], {}
    for number, set_up in enumerate(chosen):
        if progress is not None:
            progress(number / len(chosen), set_up.name)
        try:
            _check_room(set_up, batch_size)
        except CourseError as error:
            left_out[set_up.name] = str(error)
            continue
        rungs.append(Rung(set_up.name, Rate.of(_rates_of(set_up, step, batch_size, budget_s)), alone))
    if progress is not None:
        progress(1.0, "done")
    if not rungs:
        raise CourseError(next(iter(left_out.values())))
    return Climb(tuple(rungs), bool(getattr(step, "emulated", False)), left_out)


def _check_numbers(batch_size: int, budget_s: float) -> None:
    whole_in(batch_size, "The batch size", 1, LARGEST_BATCH)
    number_in(budget_s, "The time to measure, in seconds,", 1e-6, LONGEST_S)


def _check_room(set_up: SetUp, batch_size: int) -> None:
    """Raises CourseError where the workers' batches do not fit the shared memory."""
    if set_up.settings.num_workers and hasattr(set_up.dataset, "__getitem__"):
        check_shared_memory(set_up.settings, batch_size * bytes_in(set_up.dataset[0]))


def _rates_of(set_up: SetUp, step: Step, batch_size: int, budget_s: float) -> list[float]:
    source = Source.of(set_up.dataset, batch_size)
    bench = _bench(step)
    if set_up.thread:
        batches = iter(Prefetcher(source.loader(set_up.settings, endless=True)))
        bench.run(batches, 0.0, at_least=2)
        rows = bench.run(batches, budget_s, at_least=3)
        batches.close()  # type: ignore[attr-defined]  # a generator: its thread ends
        return rates(rows, WINDOWS)
    if set_up.epochs:
        return _epoch_rates(source, set_up.settings, bench, budget_s)
    return run_trial(source, set_up.settings, bench, budget_s, rounds=WINDOWS).rates(WINDOWS)


def _epoch_rates(source: Source, settings: LoaderSettings, bench: StepBench, budget_s: float) -> list[float]:
    """Samples a second of whole epochs, from asking for the first batch to the end of the last step."""
    found: list[float] = []
    begin = time.perf_counter()
    with Epochs(source.loader(settings)) as epochs:
        while len(found) < 2 or time.perf_counter() - begin < budget_s:
            start = time.perf_counter()
            rows = bench.run(epochs.next_epoch(), float("inf"))
            found.append(sum(row.samples for row in rows) / (time.perf_counter() - start))
    return found[1:]  # the first start is the same for both


def _bench(step: Step) -> StepBench:
    return StepBench(step, torch.device(getattr(step, "device", "cpu")))
