"""In which other forms can a folder of photographs be kept, so that loading costs less?

    resize_once         smaller JPEG files                 less to read and to decode
    InMemoryPhotographs the same files, kept in memory     nothing to read
    write_archive       one file, read in order            one long read in place of many short ones
    write_memory_map    raw pixels, mapped into memory     nothing to decode
    SlowDisk            any data set behind a slow disk    what it costs when reading is slow (emulated)

Each takes the folder that `write_photographs` returned, and loads it as `Photographs` does.
"""

import json
import random
import tarfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from course_lib.errors import CourseError
from course_lib.train.photographs import (
    QUALITY,
    Photographs,
    Wire,
    jpeg_bytes,
    normalise,
    photograph_names,
    write_whole,
)
from course_lib.train.stage_marks import decoding, reading

STORED_SIZE = 256  # pixels of a stored square, from which 224 are cut at random
Item = tuple[Tensor, int]


def resize_once(folder: str | Path, short_side: int = STORED_SIZE) -> Path:
    """Make a copy of the photographs whose shorter side has `short_side` pixels; return its folder.

    A quarter-size copy costs a cut its fine detail: random cuts smaller than the training size are enlarged.
    Raises CourseError when the photographs cannot be read or the copy cannot be written.
    """
    source = Path(folder)
    names, _ = photograph_names(source)
    made = source.with_name(f"{source.name}_{short_side}px")
    _make_folder(made)
    for name in names:
        if not (made / name).exists():
            picture = _opened(source / name)
            shrink = short_side / min(picture.size)
            size = (round(picture.width * shrink), round(picture.height * shrink))
            _write(made / name, jpeg_bytes(picture.resize(size, Image.Resampling.BICUBIC), QUALITY))
    return made


class InMemoryPhotographs(Photographs):
    """Photographs whose files were read once, into memory that all loader workers share.

    The files are kept as they are, so each epoch still decodes and cuts anew. Needs their size in memory.
    """

    def __init__(self, folder: str | Path, image_size: int = 224, **settings: Any) -> None:
        super().__init__(folder, image_size, **settings)
        files = [super(InMemoryPhotographs, self).read(index) for index in range(len(self.names))]
        self._ends = np.cumsum([len(file) for file in files])
        joined = np.frombuffer(b"".join(files), dtype=np.uint8)
        self._bytes = torch.from_numpy(joined.copy()).share_memory_()  # type: ignore[no-untyped-call]

    def read(self, index: int) -> bytes:
        """The bytes of one file, from memory."""
        begin = int(self._ends[index - 1]) if index else 0
        data: bytes = self._bytes[begin : int(self._ends[index])].numpy().tobytes()
        return data


def write_archive(folder: str | Path) -> Path:
    """Put the photographs into one tar file beside their folder; return its path.

    Raises CourseError when they cannot be read or the archive cannot be written.
    """
    source = Path(folder)
    names, _ = photograph_names(source)
    path = source.with_name(f"{source.name}.tar")
    if not path.exists():
        temporary = path.with_suffix(".tmp")
        try:
            with tarfile.open(temporary, "w") as archive:
                for name in names:
                    archive.add(source / name, name)
            temporary.replace(path)
        except OSError as error:
            raise _unwritable(path, error) from error
    return path


class ArchivedPhotographs(IterableDataset[Item]):
    """The photographs of one archive, read in order; each loader worker reads a stretch of its own.

    They are shuffled only within the next `buffer` pictures, which is the price of reading in order.

    Raises CourseError when the archive is not there.
    """

    def __init__(self, path: str | Path, image_size: int = 224, *, buffer: int = 64, **settings: Any) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise CourseError(f"There is no archive at {path}: call write_archive first.")
        folder = self.path.with_suffix("")
        self._pictures = Photographs(folder, image_size, **settings)
        self.buffer = max(1, buffer)
        with tarfile.open(self.path) as archive:
            self._places = [(member.offset_data, member.size) for member in archive.getmembers()]

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Item]:
        worker = get_worker_info()
        number, of = (worker.id, worker.num_workers) if worker is not None else (0, 1)
        first, end = (len(self) * part // of for part in (number, number + 1))
        waiting: list[tuple[bytes, int]] = []
        with self.path.open("rb") as file:
            for (offset, size), label in zip(
                self._places[first:end], self._pictures.labels[first:end], strict=True
            ):
                with reading():
                    file.seek(offset)
                    waiting.append((file.read(size), label))
                if len(waiting) >= self.buffer:
                    yield self._one_of(waiting)
            while waiting:
                yield self._one_of(waiting)

    def _one_of(self, waiting: list[tuple[bytes, int]]) -> Item:
        index = random.randrange(len(waiting))  # torch seeds this module apart in each worker
        waiting[index], waiting[-1] = waiting[-1], waiting[index]
        data, label = waiting.pop()
        with decoding():
            return self._pictures.decode(data), label


def write_memory_map(folder: str | Path, stored_size: int = STORED_SIZE) -> Path:
    """Decode each photograph once, into one file of raw pixels; return its path.

    The file is an array of NumPy's format, uint8 of shape (count, 3, stored_size, stored_size): the middle
    square of each picture. It is larger than the JPEG files, some 0.2 MB a picture.

    Raises CourseError when the photographs cannot be read or the file cannot be written.
    """
    source = Path(folder)
    names, labels = photograph_names(source)
    path = source.with_name(f"{source.name}_{stored_size}px.npy")
    if not path.exists():
        temporary = path.with_suffix(".tmp")
        try:
            pixels = np.lib.format.open_memmap(
                temporary, mode="w+", dtype=np.uint8, shape=(len(names), 3, stored_size, stored_size)
            )
            for index, name in enumerate(names):
                pixels[index] = _middle_square(_opened(source / name), stored_size)
            pixels.flush()
            del pixels
            path.with_suffix(".json").write_text(json.dumps(labels), encoding="utf-8")
            temporary.replace(path)
        except OSError as error:
            raise _unwritable(path, error) from error
    return path


class MemoryMappedPhotographs(Dataset[Item]):
    """The pictures of a memory map, cut and mirrored at random.

    All processes share one copy of its pixels, in the system's file cache. An item is as `Photographs` gives
    it, without the random change of scale: the cut is `image_size` pixels of the stored ones. Mirroring is
    left to `mirror_some`, which does it for a whole batch on the device.

    Raises CourseError when the file is not there or the cut is larger than what is stored.
    """

    def __init__(self, path: str | Path, image_size: int = 224, *, wire: Wire = "uint8") -> None:
        self.path = Path(path)
        try:
            self.labels: list[int] = json.loads(self.path.with_suffix(".json").read_text(encoding="utf-8"))
            stored = self._pixels().shape[-1]
        except (OSError, ValueError) as error:
            raise CourseError(f"There is no memory map at {path}: call write_memory_map first.") from error
        if not 1 <= image_size <= stored:
            raise CourseError(f"The cut has 1 to {stored} pixels, which is what is stored, not {image_size}.")
        self.image_size = image_size
        self.wire: Wire = wire
        self._room = stored - image_size + 1

    def _pixels(self) -> np.ndarray:
        """The mapped array, opened anew in each process: a map does not travel to a spawned worker."""
        if "_mapped" not in self.__dict__:
            # Copy on write: torch warns of arrays that cannot be written, and nothing reaches the file.
            self._mapped: np.ndarray = np.lib.format.open_memmap(self.path, mode="c")
        return self._mapped

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_mapped"}

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Item:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Item]:
        """The items of one batch: views of the map, which collating copies, once."""
        pixels, side = self._pixels(), self.image_size
        places = torch.randint(self._room, (len(indices), 2)).tolist()
        items = []
        for index, (top, left) in zip(indices, places, strict=True):
            cut = torch.from_numpy(pixels[index, :, top : top + side, left : left + side])
            items.append((cut if self.wire == "uint8" else normalise(cut), self.labels[index]))
        return items

    def __repr__(self) -> str:
        return f"MemoryMappedPhotographs: {len(self)} pictures in {self.path}, as {self.wire}"


def mirror_some(batch: Tensor) -> Tensor:
    """Mirror each picture of a batch, (n, 3, height, width), with a probability of one half."""
    mirrored = torch.rand(len(batch), device=batch.device) < 0.5
    return torch.where(mirrored.view(-1, 1, 1, 1), batch.flip(-1), batch)


class SlowDisk(Dataset[Any]):
    """A data set each of whose samples comes `seconds` late, as from a far or a busy disk (emulated).

    The wait keeps no core busy. Raises CourseError for a time below 0.
    """

    emulated = True

    def __init__(self, dataset: Dataset[Any], seconds: float) -> None:
        if not 0 <= seconds < 60:
            raise CourseError(f"A disk answers after 0 to 60 seconds, not {seconds}.")
        self.dataset = dataset
        self.seconds = seconds

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> Any:
        with reading():
            time.sleep(self.seconds)
        return self.dataset[index]

    def __repr__(self) -> str:
        return f"SlowDisk: {1000 * self.seconds:g} ms a sample (emulated), {self.dataset!r}"


def _opened(path: Path) -> Image.Image:
    try:
        with Image.open(path) as file:
            return file.convert("RGB")
    except (OSError, SyntaxError, ValueError) as error:
        raise CourseError(f"The photograph {path} cannot be read: call write_photographs again.") from error


def _middle_square(picture: Image.Image, size: int) -> np.ndarray:
    side = min(picture.size)
    left, top = (picture.width - side) / 2, (picture.height - side) / 2
    box = (left, top, left + side, top + side)
    small = picture.resize((size, size), Image.Resampling.BICUBIC, box=box)
    return np.asarray(small).transpose(2, 0, 1)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error


def _write(path: Path, data: bytes) -> None:
    try:
        write_whole(path, data)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> CourseError:
    return CourseError(
        f"{path} cannot be written ({error.strerror or error}): free some disk space or choose a folder you "
        "may write to."
    )
