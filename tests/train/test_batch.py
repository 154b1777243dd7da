from collections import namedtuple

import torch

from course_lib.train.batch import samples_in, to_device

Pair = namedtuple("Pair", ["image", "label"])


def test_samples_are_counted_in_every_usual_batch() -> None:
    images, labels = torch.zeros(5, 3, 2, 2), torch.zeros(5)
    for batch in (
        images,
        (images, labels),
        [images, labels],
        {"x": images},
        Pair(images, labels),
        ([], images),
    ):
        assert samples_in(batch) == 5
    assert samples_in((["a", "b"], 3)) == 0
    assert samples_in(torch.tensor(1.0)) == 1


def test_a_batch_moves_as_a_whole_and_keeps_its_shape() -> None:
    class Custom:
        def to(self, device: torch.device) -> str:
            return f"moved to {device}"

    batch = {"pair": Pair(torch.ones(2), [torch.ones(1)]), "name": "seven", "own": Custom()}
    moved = to_device(batch, torch.device("meta"))
    assert isinstance(moved["pair"], Pair)
    assert moved["pair"].image.is_meta
    assert moved["pair"].label[0].is_meta
    assert moved["name"] == "seven"
    assert moved["own"] == "moved to meta"
    assert not batch["pair"].image.is_meta  # the batch itself stays where it was
