"""The pictures of lesson 02: what they say in words, and labels that do not overlap at either end of a
slider.
"""

import pytest
from laid_out import assert_laid_out

from course_lib.errors import CourseError
from course_lib.teach.labs.ddp import scale_out
from course_lib.teach.plots_ddp import plot_buckets, plot_samples, plot_scaling
from course_lib.train.ranks.communication import BucketTrace


def test_samples_are_given_to_their_ranks() -> None:
    picture = plot_samples(
        {"epoch 1": [[[0, 1], [4]], [[2, 3], [5]]], "forgotten, 2": [[[0]], [[1]]]}, count=7, title="Who?"
    )
    assert_laid_out(picture)
    assert "epoch 1: rank 0, rank 0, rank 1, rank 1, rank 0, rank 1, nobody" in picture.alt
    with pytest.raises(CourseError, match="1 to 16 samples"):
        plot_samples({})
    with pytest.raises(CourseError, match="At most 4 ranks"):
        plot_samples({"many": [[[number]] for number in range(5)]})


def test_buckets_tell_what_is_exposed() -> None:
    one = BucketTrace((8 * 2**20,), (0.030,), (0.045,), 0.030)
    four = BucketTrace((2**21,) * 4, (0.008, 0.015, 0.023, 0.030), (0.012, 0.019, 0.027, 0.034), 0.030)
    picture = plot_buckets({"one bucket": one, "buckets of 2 MiB": four})
    assert_laid_out(picture)
    assert "one bucket: 1 bucket, 15.0 ms exposed; buckets of 2 MiB: 4 buckets, 4.0 ms exposed" in picture.alt
    with pytest.raises(CourseError, match="no step"):
        plot_buckets({})


@pytest.mark.parametrize(
    "setting",
    [
        (100, 100, "PCIe 4.0", "Ethernet 10G", 8),
        (1, 5000, "PCIe 3.0 without peer access", "Ethernet 1G", 1024),
        (1000, 1, "NVLink 5", "InfiniBand NDR", 1),
        (1, 1, "NVLink 5", "InfiniBand NDR", 1024),
        (10, 100, "NVLink 2", "Ethernet 25G", 16),
    ],
)
def test_scaling_is_drawn_at_the_ends_of_the_sliders(setting: tuple[float, float, str, str, int]) -> None:
    out = scale_out(*setting)
    picture = plot_scaling(out, {1: 1.0, 2: 0.9})
    assert_laid_out(picture)
    assert f"Chosen: {out}" in picture.alt
    assert "Measured with 2: 90 %" in picture.alt
