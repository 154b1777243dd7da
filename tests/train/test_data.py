import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from course_lib.errors import CourseError
from course_lib.files import data_path
from course_lib.train import data
from course_lib.train.data import Digits, ResumableSampler, mnist


def test_the_digits_are_split_once_for_all_and_evenly_over_the_classes() -> None:
    train, test = Digits("train"), Digits("test")
    assert (len(train), len(test)) == (1442, 355)
    shares = torch.bincount(test.labels) / torch.bincount(torch.cat([train.labels, test.labels]))
    assert shares.min() > 0.19
    assert shares.max() <= 0.2
    with np.load(data_path("digits.npz"), allow_pickle=False) as file:
        pixels = torch.from_numpy(file["images"])
    both = torch.cat([train.images, test.images]).mul(16).flatten(1).to(torch.uint8)
    assert sorted(map(bytes, both.numpy())) == sorted(map(bytes, pixels.flatten(1).numpy()))


def test_an_item_is_an_image_and_an_int() -> None:
    digits = Digits("test")
    image, label = digits[3]
    assert (image.shape, image.dtype, type(label)) == ((1, 8, 8), torch.float32, int)
    assert digits.images.min() == 0
    assert digits.images.max() == 1


@given(st.lists(st.integers(0, 354), max_size=70))
def test_a_batch_at_once_is_the_items_one_by_one(indices: list[int]) -> None:
    digits = Digits("test")
    at_once = digits.__getitems__(indices)
    assert [label for _, label in at_once] == [digits[index][1] for index in indices]
    assert all(
        torch.equal(image, digits[index][0]) for (image, _), index in zip(at_once, indices, strict=True)
    )


def test_spawned_workers_get_the_name_of_the_split_and_give_the_same_batches() -> None:
    digits = Digits("test")
    assert len(pickle.dumps(digits)) < 200
    spawned = DataLoader(digits, 100, num_workers=1, multiprocessing_context="spawn")
    for (images, labels), (same_images, same_labels) in zip(spawned, DataLoader(digits, 100), strict=True):
        assert torch.equal(images, same_images)
        assert torch.equal(labels, same_labels)


def test_a_worker_is_spared_torchvision_and_scikit_learn() -> None:
    code = (
        "import sys, course_lib.train.data; "
        "print([name for name in ('torchvision', 'sklearn', 'PIL') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_unknown_split_and_a_broken_file_are_said(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong: Any = "val"
    with pytest.raises(CourseError, match="train"):
        Digits(wrong)
    with pytest.raises(CourseError, match="train"):
        mnist(tmp_path, wrong)
    whole = data_path("digits.npz").read_bytes()
    for broken in (b"", whole[:1000], b"text"):
        file = tmp_path / "digits.npz"
        file.write_bytes(broken)
        monkeypatch.setattr(data, "data_path", lambda name, file=file: file)
        with pytest.raises(CourseError, match="cannot be read"):
            Digits("train")


def test_a_pickle_in_place_of_the_digits_is_not_run(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "digits.npz"
    np.savez(file, images=np.array([print], dtype=object), labels=np.array([0]))
    monkeypatch.setattr(data, "data_path", lambda name: file)
    with pytest.raises(CourseError, match="cannot be read"):
        Digits("train")


def test_mnist_without_its_files_says_how_to_get_them(tmp_path: Any) -> None:
    with pytest.raises(CourseError, match=r"download=True.*Digits"):
        mnist(tmp_path)


def test_mnist_without_a_connection_says_so(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchvision.datasets import MNIST

    monkeypatch.setattr(MNIST, "mirrors", ["http://127.0.0.1:9/"])  # nobody listens there
    with pytest.raises(CourseError, match="check the connection"):
        mnist(tmp_path, download=True)


@given(st.integers(1, 60), st.integers(0, 5), st.integers(0, 5), st.data())
def test_the_order_goes_on_where_it_stopped(length: int, seed: int, epoch: int, more: Any) -> None:
    sampler = ResumableSampler(range(length), seed)
    sampler.set_epoch(epoch)
    whole = list(sampler)
    assert sorted(whole) == list(range(length))
    start = more.draw(st.integers(0, length))
    torch.rand(3)  # what happened before plays no part
    resumed = ResumableSampler(range(length), seed)
    resumed.set_epoch(epoch, start)
    assert list(resumed) == whole[start:]
    assert len(resumed) == length - start


def test_epochs_and_seeds_differ() -> None:
    orders = set()
    for seed in range(4):
        for epoch in range(4):
            sampler = ResumableSampler(range(50), seed)
            sampler.set_epoch(epoch)
            orders.add(tuple(sampler))
    assert len(orders) == 16


def test_positions_that_do_not_exist_are_refused() -> None:
    sampler = ResumableSampler(range(10))
    for epoch, start in ((-1, 0), (0, -1), (0, 11)):
        with pytest.raises(CourseError, match="10 samples"):
            sampler.set_epoch(epoch, start)
    with pytest.raises(CourseError, match="seed"):
        ResumableSampler(range(10), seed=-1)
