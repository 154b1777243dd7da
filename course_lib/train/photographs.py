"""What does a loader do that reads photographs, as for ImageNet?

`write_photographs` makes a folder of JPEG files with the size, the entropy and the detail of photographs;
`Photographs` reads, decodes and transforms them with torchvision's v2 transforms. `formats` keeps the same
pictures in other forms.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor
from torch.utils.data import Dataset

from course_lib.errors import CourseError
from course_lib.train.stage_marks import decoding, reading

WIDTH, HEIGHT = 800, 600
QUALITY = 85
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, as torchvision's models expect
NAME = re.compile(r"\d+_(\d+)\.jpg")
LARGEST = 4096

Wire = Literal["float32", "uint8"]


def write_photographs(
    folder: str | Path,
    count: int = 256,
    *,
    width: int = WIDTH,
    height: int = HEIGHT,
    seed: int = 0,
    progress: bool = True,
) -> Path:
    """Make `count` JPEG files in a folder of their own below `folder`; return its path.

    Each shows a cloudy scene with soft and sharp edges and film grain, so that JPEG takes about as many bits
    a pixel as for a photograph (some 2 at quality 85). The label, 0 to 9, is how many discs lie in it, and
    stands in the file's name. The same settings give the same pictures. By default it is about 30 MB.

    Files that are there already are kept, each is written whole or not at all, and a half-made folder is
    completed.

    Raises CourseError for settings that make no sense, and when the folder cannot be written.
    """
    if count < 1 or not 32 <= min(width, height) <= max(width, height) <= LARGEST or seed < 0:
        raise CourseError(
            f"{count} photographs of {width} x {height} pixels with seed {seed} cannot be made: take at "
            f"least 1, of 32 to {LARGEST} pixels a side, and a seed of 0 or more."
        )
    made = Path(folder) / f"photographs_{width}x{height}_{count}_seed{seed}"
    try:
        made.mkdir(parents=True, exist_ok=True)
        missing = []
        for index in range(count):
            label = int(np.random.default_rng((seed, index)).integers(10))
            path = made / f"{index:05}_{label}.jpg"
            if not path.exists():
                missing.append((path, index, label))
        for path, index, label in _with_bar(missing, progress):
            random = np.random.default_rng((seed, index, 1))
            write_whole(path, jpeg_bytes(_scene(width, height, label, random), QUALITY))
    except OSError as error:
        raise CourseError(
            f"The photographs cannot be written to {made} ({error.strerror or error}): free some disk space "
            "or choose a folder you may write to."
        ) from error
    return made


class Photographs(Dataset[tuple[Tensor, int]]):
    """The JPEG files of a folder that `write_photographs` made, read and decoded anew each time.

    An item is a picture of shape (3, image_size, image_size), cut at random and mirrored at random as
    torchvision's own training recipes do, and its label. As "float32" it is normalised by MEAN and STD. As
    "uint8" it takes a quarter of the bytes, and `normalise` does the rest, on the device.

    With `decode_to_size`, a file is decoded at a half, a quarter or an eighth of its size where the cut
    needs no more pixels, which JPEG can do while it decodes; no detail of the result is lost that the
    shrinking would have kept.

    The randomness is torch's own, which a `DataLoader` seeds apart in each worker.

    Raises CourseError when the folder or a file cannot be read.
    """

    def __init__(
        self,
        folder: str | Path,
        image_size: int = 224,
        *,
        wire: Wire = "float32",
        decode_to_size: bool = False,
    ) -> None:
        from torchvision.transforms import v2

        if image_size < 1 or wire not in ("float32", "uint8"):
            raise CourseError(
                f'Pictures of {image_size} pixels as {wire!r} cannot be made: use 1 or more, "float32" or '
                '"uint8".'
            )
        self.folder = Path(folder)
        self.names, self.labels = photograph_names(self.folder)
        self.image_size = image_size
        self.wire: Wire = wire
        self.decode_to_size = decode_to_size
        self._cut = v2.RandomResizedCrop(image_size)
        finish: list[Any] = [v2.RandomHorizontalFlip(), v2.ToImage()]
        if wire == "float32":
            finish += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
        self._finish = v2.Compose([*finish, v2.ToPureTensor()])

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        with reading():
            data = self.read(index)
        with decoding():
            return self.decode(data), self.labels[index]

    def read(self, index: int) -> bytes:
        """The bytes of one file."""
        path = self.folder / self.names[index]
        try:
            return path.read_bytes()
        except OSError as error:
            raise CourseError(
                f"The photograph {path} cannot be read ({error.strerror or error}): call write_photographs "
                "again."
            ) from error

    def decode(self, data: bytes) -> Tensor:
        """The bytes of a JPEG file as a picture to train on."""
        try:
            with Image.open(BytesIO(data)) as file:
                place = self._cut.make_params([file])
                top, left, height, width = (place[side] for side in ("top", "left", "height", "width"))
                whole = file.size
                if self.decode_to_size:
                    shrink = max(1, min(height, width) // self.image_size)
                    file.draft("RGB", (whole[0] // shrink, whole[1] // shrink))
                picture = file.convert("RGB")
        except (OSError, SyntaxError, ValueError) as error:
            raise CourseError(
                f"A photograph in {self.folder} is damaged: delete it and make it anew."
            ) from error
        across, down = picture.width / whole[0], picture.height / whole[1]
        box = (left * across, top * down, (left + width) * across, (top + height) * down)
        size = (self.image_size, self.image_size)
        cut = picture.resize(size, Image.Resampling.BILINEAR, box=box)
        made: Tensor = self._finish(cut)
        return made

    def __repr__(self) -> str:
        return f"Photographs: {len(self)} JPEG files in {self.folder}, as {self.wire}"


class BatchedPhotographs(Photographs):
    """Photographs that are fetched a whole batch at a time: `DataLoader` calls `__getitems__` once."""

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Tensor, int]]:
        """The items of one batch."""
        with reading():
            files = [self.read(index) for index in indices]
        with decoding():
            return [
                (self.decode(data), self.labels[index]) for data, index in zip(files, indices, strict=True)
            ]


def normalise(batch: Tensor) -> Tensor:
    """A uint8 batch, (n, 3, height, width), as float32 with MEAN and STD taken out, where it lies."""
    mean = torch.tensor(MEAN, device=batch.device).view(3, 1, 1)
    std = torch.tensor(STD, device=batch.device).view(3, 1, 1)
    return (batch.float() / 255 - mean) / std


def photograph_names(folder: Path) -> tuple[list[str], list[int]]:
    """The files of a folder of photographs, sorted, and their labels; CourseError if there is none."""
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError as error:
        raise CourseError(
            f"There is no folder of photographs at {folder}: call write_photographs."
        ) from error
    found = [(name, int(match[1])) for name in names if (match := NAME.fullmatch(name))]
    if not found:
        raise CourseError(f"There is no photograph in {folder}: give the folder write_photographs returned.")
    return [name for name, _ in found], [label for _, label in found]


def jpeg_bytes(picture: Image.Image, quality: int) -> bytes:
    """The picture as a JPEG file."""
    data = BytesIO()
    picture.save(data, "jpeg", quality=quality)
    return data.getvalue()


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is there whole or not at all."""
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(data)
    temporary.replace(path)


def _scene(width: int, height: int, discs: int, random: np.random.Generator) -> Image.Image:
    """Light that falls softly, a horizon, discs with sharp rims, and grain."""
    sky, ground = random.uniform(40, 215, size=(2, 3))
    horizon = height * random.uniform(0.3, 0.8)
    below = np.clip((np.arange(height) - horizon) / 6 + 0.5, 0, 1).astype(np.float32)[:, None, None]
    scene = sky.astype(np.float32) * (1 - below) + ground.astype(np.float32) * below
    light = _clouds(width, height, random)
    scene = scene + 38 * light[..., None]
    flat = Image.fromarray(np.uint8(np.clip(scene, 0, 255)))
    draw = ImageDraw.Draw(flat)
    for _ in range(discs):
        radius = height * random.uniform(0.04, 0.15)
        x, y = random.uniform(radius, width - radius), random.uniform(radius, height - radius)
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), tuple(random.integers(0, 256, 3)))
    grain = 7 * random.standard_normal((height, width), dtype=np.float32)[..., None]
    return Image.fromarray(np.uint8(np.clip(np.asarray(flat, dtype=np.float32) + grain, 0, 255)))


def _clouds(width: int, height: int, random: np.random.Generator) -> np.ndarray:
    """Smooth noise of several sizes: (height, width), standard deviation 1."""
    light = np.zeros((height, width), dtype=np.float32)
    for cells in (3, 7, 19, 53, 151):
        coarse = Image.fromarray(random.standard_normal((cells, cells), dtype=np.float32))
        light += np.asarray(coarse.resize((width, height), Image.Resampling.BILINEAR)) / cells**0.5
    scaled: np.ndarray = light / light.std()
    return scaled


def _with_bar(jobs: list[tuple[Path, int, int]], shown: bool) -> Iterator[tuple[Path, int, int]]:
    from tqdm.auto import tqdm  # loader workers import this module and need no bar

    bar: Iterable[tuple[Path, int, int]] = tqdm(
        jobs, desc="making photographs", unit="photograph", disable=not shown or not jobs
    )
    yield from bar
