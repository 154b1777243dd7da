import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from course_lib.errors import CourseError
from course_lib.train import images
from course_lib.train.images import ImageFiles, decode_once, write_image_files


def contents(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}


def make(folder: Path, **settings: Any) -> Path:
    return write_image_files(folder, **({"count": 6, "size": 48, "progress": False} | settings))


def test_the_same_settings_give_the_same_pictures_and_others_differ(tmp_path: Path) -> None:
    first = make(tmp_path / "a")
    assert contents(first) == contents(make(tmp_path / "b"))
    other = make(tmp_path / "a", seed=1)
    assert other != first
    assert not set(contents(other).values()) & set(contents(first).values())
    assert len(set(contents(first).values())) == 6


@pytest.mark.parametrize(("format", "kind"), [("jpeg", "JPEG"), ("png", "PNG")])
def test_the_files_are_what_their_names_say(format: str, kind: str, tmp_path: Path) -> None:
    folder = make(tmp_path, format=format)
    for file in folder.iterdir():
        with Image.open(file) as picture:
            assert (picture.format, picture.size, picture.mode) == (kind, (48, 48), "RGB")


def test_a_jpeg_takes_as_many_bits_as_a_photograph(tmp_path: Path) -> None:
    folder = make(tmp_path, count=4, size=320)
    bits = [8 * file.stat().st_size / 320**2 for file in folder.iterdir()]
    assert min(bits) > 1.5
    assert max(bits) < 4


def test_a_half_made_folder_is_completed_and_whole_files_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = contents(make(tmp_path / "whole"))
    write = images._write
    written: list[Path] = []

    def die_at_the_fourth(path: Path, *rest: Any) -> None:
        if len(written) == 3:
            path.with_suffix(".tmp").write_bytes(b"half a file")
            raise KeyboardInterrupt
        written.append(path)
        write(path, *rest)

    monkeypatch.setattr(images, "_write", die_at_the_fourth)
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "half")
    monkeypatch.undo()
    kept = {path: path.stat().st_mtime_ns for path in written}
    assert len(kept) == 3
    folder = make(tmp_path / "half")
    assert contents(folder) == expected
    assert {path: path.stat().st_mtime_ns for path in written} == kept
    assert len(ImageFiles(folder)) == 6


def test_an_item_is_a_small_grey_picture_and_its_label(tmp_path: Path) -> None:
    dataset = ImageFiles(make(tmp_path), image_size=12)
    for index, name in enumerate(dataset.names):
        image, label = dataset[index]
        assert (image.shape, image.dtype) == ((1, 12, 12), torch.float32)
        assert 0 <= image.min() < image.max() <= 1
        assert name.endswith(f"_{label}.jpg")


def test_the_digit_can_be_seen(tmp_path: Path) -> None:
    dataset = ImageFiles(make(tmp_path, count=20, size=64), augment=False)
    contrasts = torch.stack([dataset[index][0].std() for index in range(20)])
    assert contrasts.min() > 0.05


def test_augmentation_depends_on_seed_epoch_and_index_alone(tmp_path: Path) -> None:
    folder = make(tmp_path)
    dataset, same = ImageFiles(folder), ImageFiles(folder)
    first = decode_once(dataset).tensors[0]
    torch.rand(5)
    assert torch.equal(first, decode_once(same).tensors[0])
    dataset.set_epoch(1)
    assert not torch.equal(first, decode_once(dataset).tensors[0])
    dataset.set_epoch(0)
    assert torch.equal(first, decode_once(dataset).tensors[0])
    assert not torch.equal(first, decode_once(ImageFiles(folder, seed=1)).tensors[0])
    plain = ImageFiles(folder, augment=False)
    unchanged = decode_once(plain).tensors[0]
    plain.set_epoch(1)
    assert torch.equal(unchanged, decode_once(plain).tensors[0])


@pytest.mark.parametrize("start", ["spawn", "fork"])
def test_workers_that_live_on_hear_of_the_new_epoch(start: str, tmp_path: Path) -> None:
    if start == "fork" and not hasattr(os, "fork"):
        pytest.skip("this system cannot fork")
    dataset = ImageFiles(make(tmp_path))
    loader = DataLoader(dataset, 6, num_workers=1, persistent_workers=True, multiprocessing_context=start)
    for epoch in range(2):
        dataset.set_epoch(epoch)
        (batch, _), expected = next(iter(loader)), decode_once(dataset).tensors[0]
        assert torch.equal(batch, expected)


def test_damaged_and_missing_files_are_named(tmp_path: Path) -> None:
    for format in ("jpeg", "png"):
        folder = make(tmp_path, format=format)
        dataset = ImageFiles(folder)
        for index, content in enumerate((b"", b"text", None)):
            path = folder / dataset.names[index]
            path.write_bytes(path.read_bytes()[:600] if content is None else content)
            with pytest.raises(CourseError, match=f"{path.name} is damaged: delete it"):
                dataset[index]
        (folder / dataset.names[3]).unlink()
        with pytest.raises(CourseError, match=f"{dataset.names[3]} is gone"):
            dataset[3]


def test_a_folder_without_pictures_is_said(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="call write_image_files first"):
        ImageFiles(tmp_path / "nowhere")
    (tmp_path / "notes.txt").write_text("x", encoding="utf-8")
    with pytest.raises(CourseError, match="no picture"):
        ImageFiles(tmp_path)
    with pytest.raises(CourseError, match="1 pixel"):
        ImageFiles(tmp_path, image_size=0)


@pytest.mark.parametrize(
    "wrong", [{"count": 0}, {"size": 8}, {"size": 10**6}, {"seed": -1}, {"format": "gif"}]
)
def test_settings_that_make_no_sense_are_said(wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(CourseError):
        make(tmp_path, **wrong)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(CourseError, match="cannot be written"):
        make(tmp_path / "file")
