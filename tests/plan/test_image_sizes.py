"""A named vision transformer gets images of the size that its positions are made for."""

import pytest
import torch

from course_lib.plan.model_names import named_workload


@pytest.mark.parametrize(("name", "image_size", "pixels"), [("vit_h_14", None, 518), ("vit_b_16", 96, 96)])
def test_model_and_images_have_one_size(name: str, image_size: int | None, pixels: int) -> None:
    workload = named_workload(name, image_size=image_size)
    with torch.device("meta"):
        model = workload.model()
    assert model.image_size == pixels
    assert workload.batch(1).args[0].shape == (1, 3, pixels, pixels)
