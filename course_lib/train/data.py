"""What do the course's models train on, and in which order do they see it?

`Digits` is real data that needs no network. `mnist` is a bigger set, downloaded only when asked for.
`ResumableSampler` shuffles so that a stopped run can go on in the middle of an epoch.

Every class is importable, so loader workers can be spawned on any system, and this module imports only
torch and numpy, so each worker stays small.
"""

import zipfile
from collections.abc import Iterator, Sequence, Sized
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from course_lib.errors import CourseError
from course_lib.files import data_path

Split = Literal["train", "test"]

TEST_EVERY = 5  # one image in five of each class is kept for the test
INK = 16  # the darkest value in the file


def _check_split(split: str) -> None:
    if split not in get_args(Split):
        raise CourseError(f'There is no split {split!r}: use "train" or "test".')


class Digits(Dataset[tuple[Tensor, int]]):
    """Handwritten digits, 8 × 8 pixels: 1,442 to train on, 355 to test on.

    An item is an image, float32 of shape (1, 8, 8) with values from 0 (paper) to 1 (ink), and its label,
    an int from 0 to 9. The split is the same on every machine: of each class, every fifth image in the
    order of the file is for the test. Writers are not kept apart, so the test is about new images, not
    about new hands.

    Source and licence of the images: data/README.md.
    """

    def __init__(self, split: Split) -> None:
        _check_split(split)
        self.split: Split = split
        path = data_path("digits.npz")
        try:
            with np.load(path, allow_pickle=False) as file:
                images, labels = file["images"], file["labels"]
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise CourseError(
                f"The digits in {path} cannot be read ({error}): fetch that file again from the repository."
            ) from error
        chosen = _is_test(labels) == (split == "test")
        self.images = torch.from_numpy(images[chosen].astype(np.float32) / INK).unsqueeze(1)
        self.labels = torch.from_numpy(labels[chosen].astype(np.int64))

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.images[index], int(self.labels[index])

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Tensor, int]]:
        """Fetch a whole batch at once; `DataLoader` calls this when it exists."""
        chosen = torch.as_tensor(indices, dtype=torch.int64)
        return list(zip(self.images[chosen].unbind(), self.labels[chosen].tolist(), strict=True))

    def __reduce__(self) -> tuple[Any, ...]:
        # A spawned worker gets the name of the split and reads the small file itself.
        return type(self), (self.split,)

    def __repr__(self) -> str:
        return f"Digits({self.split!r}): {len(self)} images of 8 x 8 pixels, 10 classes"


def _is_test(labels: np.ndarray) -> np.ndarray:
    """Mark every fifth sample of each class. labels: (n,) ints. Returns (n,) bools."""
    test = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        test[np.flatnonzero(labels == label)[TEST_EVERY - 1 :: TEST_EVERY]] = True
    return test


def mnist(root: str | Path, split: Split = "train", *, download: bool = False) -> Dataset[tuple[Tensor, int]]:
    """MNIST through torchvision: 60,000 images to train on and 10,000 to test on, 28 × 28 pixels.

    An item is an image, float32 of shape (1, 28, 28) with values from 0 to 1, and its label.
    Nothing is fetched unless `download` is true (about 12 MB, once, into `root`).

    Raises CourseError when the files are not in `root` and cannot be fetched.
    """
    _check_split(split)
    from torchvision.datasets import MNIST
    from torchvision.transforms import v2

    transform = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
    try:
        dataset: Dataset[tuple[Tensor, int]] = MNIST(
            str(root), train=split == "train", transform=transform, download=download
        )
    except (OSError, RuntimeError) as error:
        if download:
            advice = "check the connection, or use Digits, which needs none"
        else:
            advice = "call mnist(root, download=True) once with a connection, or use Digits, which needs none"
        raise CourseError(f"MNIST is not in {root} and was not fetched: {advice}.") from error
    return dataset


class ResumableSampler(Sampler[int]):
    """Shuffles by seed and epoch alone, and can start in the middle of an epoch.

    The order of an epoch depends on (seed, epoch) and on nothing that happened before, so a resumed run
    sees exactly the samples that were still to come. `DataLoader` draws from the sampler in the main
    process: this holds with any number of workers.

        sampler = ResumableSampler(dataset, seed=0)
        loader = DataLoader(dataset, batch_size=64, sampler=sampler)
    """

    def __init__(self, dataset: Sized, seed: int = 0) -> None:
        if seed < 0:
            raise CourseError(f"The seed must be 0 or more, not {seed}.")
        self.length = len(dataset)
        self.seed = seed
        self.epoch = 0
        self.start = 0

    def set_epoch(self, epoch: int, start: int = 0) -> None:
        """Choose the epoch that the next pass is, and how many of its samples were seen already."""
        if epoch < 0 or not 0 <= start <= self.length:
            raise CourseError(
                f"Epoch {epoch} from sample {start} does not exist: epochs count from 0, and an epoch has "
                f"{self.length} samples."
            )
        self.epoch, self.start = epoch, start

    def __len__(self) -> int:
        return self.length - self.start

    def __iter__(self) -> Iterator[int]:
        mixed = np.random.SeedSequence([self.seed, self.epoch]).generate_state(1, np.uint64)[0]
        generator = torch.Generator().manual_seed(int(mixed) >> 1)
        yield from torch.randperm(self.length, generator=generator).tolist()[self.start :]
