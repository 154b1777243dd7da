from pathlib import Path

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from course_lib.errors import CourseError
from course_lib.train.formats import (
    ArchivedPhotographs,
    InMemoryPhotographs,
    MemoryMappedPhotographs,
    SlowDisk,
    mirror_some,
    resize_once,
    write_archive,
    write_memory_map,
)
from course_lib.train.photographs import BatchedPhotographs, Photographs, normalise, write_photographs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photographs(tmp_path_factory.mktemp("p"), 10, width=160, height=120, progress=False)


def test_the_same_settings_give_the_same_files_and_what_is_there_is_kept(
    folder: Path, tmp_path: Path
) -> None:
    again = write_photographs(tmp_path, 10, width=160, height=120, progress=False)
    names = sorted(path.name for path in folder.iterdir())
    assert names == sorted(path.name for path in again.iterdir())
    assert all((folder / name).read_bytes() == (again / name).read_bytes() for name in names)
    (again / names[3]).unlink()
    (again / names[4]).write_bytes(b"kept")
    write_photographs(tmp_path, 10, width=160, height=120, progress=False)
    assert (again / names[3]).read_bytes() == (folder / names[3]).read_bytes()
    assert (again / names[4]).read_bytes() == b"kept"


def test_a_full_size_file_has_the_entropy_of_a_photograph(tmp_path: Path) -> None:
    made = write_photographs(tmp_path, 2, progress=False)
    for path in made.iterdir():
        with Image.open(path) as picture:
            assert picture.size == (800, 600)
        assert 1.2 < 8 * path.stat().st_size / (800 * 600) < 3.5, "bits a pixel"


@pytest.mark.parametrize("kind", [Photographs, BatchedPhotographs, InMemoryPhotographs])
def test_items_have_the_shape_that_is_promised(folder: Path, kind: type[Photographs]) -> None:
    floats, labels = next(iter(DataLoader(kind(folder, 32), batch_size=4)))
    assert floats.shape == (4, 3, 32, 32)
    assert floats.dtype == torch.float32
    assert 0.2 < floats.std() < 3
    small, _ = next(iter(DataLoader(kind(folder, 32, wire="uint8", decode_to_size=True), batch_size=4)))
    assert small.dtype == torch.uint8
    assert labels.tolist() == Photographs(folder).labels[:4]


def test_uint8_on_the_wire_gives_the_same_pictures(folder: Path) -> None:
    torch.manual_seed(3)
    floats = Photographs(folder, 32)[0][0]
    torch.manual_seed(3)
    raw = Photographs(folder, 32, wire="uint8")[0][0]
    torch.testing.assert_close(normalise(raw.unsqueeze(0))[0], floats)


def test_decoding_to_size_loses_next_to_nothing(folder: Path) -> None:
    for index in range(4):
        torch.manual_seed(index)
        whole = Photographs(folder, 16, wire="uint8")[index][0].float()
        torch.manual_seed(index)
        to_size = Photographs(folder, 16, wire="uint8", decode_to_size=True)[index][0].float()
        assert (whole - to_size).abs().mean() < 6, "of 255"


def test_an_archive_gives_each_picture_once_for_any_number_of_workers(folder: Path) -> None:
    path = write_archive(folder)
    assert write_archive(folder) == path
    for workers in (0, 2):
        archive = ArchivedPhotographs(path, 16, buffer=3, wire="uint8")
        labels = [
            label for _, batch in DataLoader(archive, 4, num_workers=workers) for label in batch.tolist()
        ]
        assert sorted(labels) == sorted(Photographs(folder).labels)


def test_a_memory_map_holds_the_pictures_and_travels_to_a_new_process(folder: Path) -> None:
    path = write_memory_map(folder, 64)
    dataset = MemoryMappedPhotographs(path, 64)
    whole = dataset[0][0]
    with Image.open(folder / Photographs(folder).names[0]) as file:
        square = file.convert("RGB").crop((20, 0, 140, 120)).resize((64, 64), Image.Resampling.BICUBIC)
    expected = torch.tensor(
        list(square.get_flattened_data() if hasattr(square, "get_flattened_data") else square.getdata())
    )
    assert (whole.permute(1, 2, 0).reshape(-1, 3) - expected).abs().float().mean() < 3
    assert "_mapped" not in dataset.__getstate__()
    assert (dataset[0][0] == whole).all()
    whole += 1
    assert (MemoryMappedPhotographs(path, 64)[0][0] + 1 == whole).all(), "writing to an item reaches no file"
    images, labels = next(iter(DataLoader(MemoryMappedPhotographs(path, 48), 10)))
    assert images.shape == (10, 3, 48, 48)
    assert labels.tolist() == Photographs(folder).labels


def test_a_resized_copy_is_smaller_and_complete(folder: Path) -> None:
    small = resize_once(folder, 32)
    assert Photographs(small).names == Photographs(folder).names
    with Image.open(small / Photographs(small).names[0]) as picture:
        assert min(picture.size) == 32


def test_mirroring_reaches_about_half_and_changes_nothing_else() -> None:
    torch.manual_seed(0)
    batch = torch.arange(400 * 3 * 2 * 2).view(400, 3, 2, 2)
    mirrored = mirror_some(batch)
    same = (mirrored == batch).flatten(1).all(1)
    assert ((mirrored == batch.flip(-1)).flatten(1).all(1) ^ same).all()
    assert 140 < same.sum() < 260


def test_bad_input_is_told_in_a_sentence(folder: Path, tmp_path: Path) -> None:
    for settings in ({"count": 0}, {"width": 8}, {"height": 5000}, {"seed": -1}):
        with pytest.raises(CourseError, match="cannot be made"):
            write_photographs(tmp_path, **{"count": 1, "progress": False, **settings})  # type: ignore[arg-type]
    with pytest.raises(CourseError, match="no folder of photographs"):
        Photographs(tmp_path / "nowhere")
    with pytest.raises(CourseError, match="no photograph in"):
        Photographs(tmp_path)
    with pytest.raises(CourseError, match="float32"):
        Photographs(folder, wire="int4")  # type: ignore[arg-type]
    with pytest.raises(CourseError, match="call write_archive"):
        ArchivedPhotographs(tmp_path / "x.tar")
    with pytest.raises(CourseError, match="call write_memory_map"):
        MemoryMappedPhotographs(tmp_path / "x.npy")
    with pytest.raises(CourseError, match="0 to 60"):
        SlowDisk(Photographs(folder), -1)
    with pytest.raises(CourseError, match="1 to 64 pixels"):
        MemoryMappedPhotographs(write_memory_map(folder, 64), 65)


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    made = write_photographs(tmp_path, 1, width=64, height=64, progress=False)
    path = next(made.iterdir())
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(CourseError, match="is damaged"):
        Photographs(made)[0]
