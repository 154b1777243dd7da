"""What does a loader do that reads real image files?

`write_image_files` makes a folder of JPEG or PNG pictures, and `ImageFiles` reads, decodes and augments
them, as a loader for photographs does. The work is real: nothing here sleeps.
"""

import re
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from PIL import Image, ImageEnhance
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from course_lib.errors import CourseError
from course_lib.train.data import Digits

Format = Literal["jpeg", "png"]
Job = tuple[Path, np.ndarray, np.random.Generator]

SUFFIX = {"jpeg": ".jpg", "png": ".png"}
NAME = re.compile(r"\d+_(\d+)\.(?:jpg|png)")
JPEG_QUALITY = 90
LARGEST_SIZE = 4096


def write_image_files(
    folder: str | Path,
    count: int = 128,
    size: int = 320,
    format: Format = "jpeg",
    seed: int = 0,
    *,
    progress: bool = True,
) -> Path:
    """Make `count` square pictures of `size` pixels in a folder of their own below `folder`; return its path.

    Each shows a handwritten digit of `Digits("train")`, enlarged, turned and coloured, on a cloudy
    background with film grain, so that a JPEG takes about as many bits a pixel as a photograph (2 to 3).
    The label is in the file's name: 00017_4.jpg shows a 4. The same settings give the same pictures.

    Files that are there already are kept, each is written whole or not at all, and a half-made folder is
    completed. By default it is about 4 MB and takes a few seconds, the first time.

    Raises CourseError for settings that make no sense, and when the folder cannot be written.
    """
    if format not in get_args(Format):
        raise CourseError(f'There is no image format {format!r} here: use "jpeg" or "png".')
    if count < 1 or not 16 <= size <= LARGEST_SIZE or seed < 0:
        raise CourseError(
            f"{count} pictures of {size} pixels with seed {seed} cannot be made: take at least 1 picture, "
            f"16 to {LARGEST_SIZE} pixels, and a seed of 0 or more."
        )
    made = Path(folder) / f"{format}_{size}px_{count}_seed{seed}"
    digits = Digits("train")
    try:
        made.mkdir(parents=True, exist_ok=True)
        missing = []
        for index in range(count):
            random = np.random.default_rng((seed, index))
            image, label = digits[int(random.integers(len(digits)))]
            path = made / f"{index:05}_{label}{SUFFIX[format]}"
            if not path.exists():
                missing.append((path, image[0].numpy(), random))
        for path, digit, random in _with_bar(missing, progress):
            _write(path, _picture(digit, size, random), format)
    except OSError as error:
        raise CourseError(
            f"The pictures cannot be written to {made} ({error.strerror or error}): free some disk space or "
            "choose a folder you may write to."
        ) from error
    return made


class ImageFiles(Dataset[tuple[Tensor, int]]):
    """The pictures of a folder that `write_image_files` made, read and decoded anew each time.

    An item is a grey picture, float32 of shape (1, image_size, image_size) with values from 0 to 1, and
    its label. With `augment`, each is turned by up to 12 degrees, cut to a random part and changed in
    brightness, contrast and colour, at full size, before it is made small. There is no mirroring: a
    mirrored digit is no digit.

    The augmentation depends on (seed, epoch, index) alone, so no two pictures share it, whichever worker
    makes them, and a resumed run repeats it. `set_epoch` also reaches workers that are kept alive.

    Raises CourseError when the folder or a file cannot be read.
    """

    def __init__(
        self, folder: str | Path, image_size: int = 16, *, augment: bool = True, seed: int = 0
    ) -> None:
        if image_size < 1:
            raise CourseError(f"The image size must be 1 pixel or more, not {image_size}.")
        self.folder = Path(folder)
        try:
            names = sorted(entry.name for entry in self.folder.iterdir())
        except OSError as error:
            raise CourseError(
                f"There is no folder of pictures at {folder}: call write_image_files first."
            ) from error
        found = [(name, int(match[1])) for name in names if (match := NAME.fullmatch(name))]
        if not found:
            raise CourseError(f"There is no picture in {folder}: give the folder write_image_files returned.")
        self.names = [name for name, _ in found]
        self.labels = [label for _, label in found]
        self.image_size = image_size
        self.augment = augment
        self.seed = seed
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose augmentations are drawn."""
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        path = self.folder / self.names[index]
        try:
            with Image.open(path) as file:
                picture = file.convert("RGB")
        except FileNotFoundError as error:
            raise CourseError(f"The picture {path} is gone: call write_image_files again.") from error
        except (OSError, SyntaxError, ValueError) as error:  # Pillow tells a broken PNG by a SyntaxError
            raise CourseError(
                f"The picture {path} is damaged: delete it and call write_image_files again."
            ) from error
        if self.augment:
            picture = _augmented(picture, np.random.default_rng((self.seed, int(self._epoch), index)))
        size = (self.image_size, self.image_size)
        small = picture.convert("L").resize(size, Image.Resampling.BICUBIC)
        pixels = torch.from_numpy(np.asarray(small, dtype=np.float32) / 255)
        return pixels.unsqueeze(0), self.labels[index]

    def __repr__(self) -> str:
        return f"ImageFiles: {len(self)} pictures in {self.folder}"


def decode_once(dataset: Dataset[tuple[Tensor, int]]) -> TensorDataset:
    """Every item of a data set, made once and kept in memory: the loader then only picks.

    Returns a TensorDataset of the stacked images and the labels (int64).
    """
    items = [dataset[index] for index in range(len(dataset))]  # type: ignore[arg-type]
    images, labels = zip(*items, strict=True)
    return TensorDataset(torch.stack(images), torch.tensor(labels))


def _augmented(picture: Image.Image, random: np.random.Generator) -> Image.Image:
    picture = picture.rotate(random.uniform(-12, 12), Image.Resampling.BILINEAR, expand=False)
    width, height = picture.size
    part = random.uniform(0.75, 1)
    left, top = random.uniform(0, 1 - part, size=2)
    box = (left * width, top * height, (left + part) * width, (top + part) * height)
    picture = picture.resize(picture.size, Image.Resampling.BILINEAR, box=box)
    for enhance in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
        picture = enhance(picture).enhance(random.uniform(0.7, 1.3))
    return picture


def _picture(digit: np.ndarray, size: int, random: np.random.Generator) -> Image.Image:
    """Paint a digit, (8, 8) floats from 0 to 1, on a cloudy background."""
    light = _clouds(size, random)
    tint = random.uniform(40, 215, size=3)
    grain = random.normal(0, 5, size=(size, size))
    background = tint + 45 * light[..., None] + grain[..., None]

    ink = Image.fromarray(np.uint8(255 * np.pad(digit, 1)))  # with a rim of paper, so that strokes end round
    side = int(size * random.uniform(0.6, 0.85))
    ink = ink.resize((side, side), Image.Resampling.BICUBIC)
    ink = ink.rotate(random.uniform(-12, 12), Image.Resampling.BILINEAR)
    mask = Image.new("L", (size, size))
    mask.paste(ink, (int(random.uniform(0, size - side)), int(random.uniform(0, size - side))))
    # A steep curve gives the soft enlarged digit a pen's edge.
    cover = np.clip((np.asarray(mask, dtype=np.float64) / 255 - 0.35) * 5, 0, 1)[..., None]
    colour = random.uniform(0, 60, size=3) if tint.mean() > 128 else random.uniform(195, 255, size=3)
    stroke = colour + 12 * light[..., None] + grain[..., None]
    painted = background * (1 - cover) + stroke * cover
    return Image.fromarray(np.uint8(np.clip(painted, 0, 255)))


def _clouds(size: int, random: np.random.Generator) -> np.ndarray:
    """Smooth noise of several sizes, as light falls in a photograph: (size, size), standard deviation 1."""
    light = np.zeros((size, size))
    for cells in (3, 7, 19, 53, 127):
        coarse = Image.fromarray(random.normal(size=(cells, cells)).astype(np.float32))
        light += np.asarray(coarse.resize((size, size), Image.Resampling.BICUBIC)) / cells**0.5
    scaled: np.ndarray = light / light.std()
    return scaled


def _write(path: Path, picture: Image.Image, format: Format) -> None:
    data = BytesIO()
    picture.save(data, format, quality=JPEG_QUALITY)
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(data.getvalue())
    temporary.replace(path)


def _with_bar(jobs: list[Job], shown: bool) -> Iterator[Job]:
    from tqdm.auto import tqdm  # loader workers import this module and need no bar

    yield from tqdm(jobs, desc="making pictures", unit="picture", disable=not shown or not jobs)
