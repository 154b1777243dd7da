import contextlib
import json

import psutil
import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from course_lib.errors import CourseError
from course_lib.models.zoo import build
from course_lib.train.forecast import IMAGENET_IMAGES, Forecast, StageTime, forecast
from course_lib.train.stages import VGG16, ConvStage, LinearStage, measure

FIRST, SECOND = ConvStage("first", (3, 8, 8), 16), ConvStage("second", (8, 16), 8)
TINY = (FIRST, SECOND, LinearStage("last", (256, 32, 10)))


def children() -> list[psutil.Process]:
    """The measuring children of this process that are alive."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):  # it ends just now
            if child.status() != psutil.STATUS_ZOMBIE and "course_lib.train.stages" in child.cmdline():
                found.append(child)
    return found


def test_the_stages_are_vgg16() -> None:
    with torch.device("meta"):
        model, image = build("vgg16"), torch.zeros(1, 3, 224, 224)
    counter = FlopCounterMode(display=False)
    with counter:
        model.eval()(image)
    assert sum(stage.forward_flops for stage in VGG16) == counter.get_total_flops()
    convolutions = [stage for stage in VGG16 if isinstance(stage, ConvStage)]
    built = sum(parameter.numel() for stage in convolutions for parameter in stage.build().parameters())
    assert built == sum(parameter.numel() for parameter in model.features.parameters())


def test_one_stage_fits_onto_the_next() -> None:
    with torch.device("meta"):
        picture = torch.zeros(1, 3, 224, 224)
        for stage in VGG16:
            if isinstance(stage, ConvStage):
                assert picture.shape == (1, stage.channels[0], stage.size, stage.size)
                picture = stage.build()(picture)
            else:
                assert picture.numel() == stage.features[0]


def test_a_training_pass_is_three_forward_passes() -> None:
    model = SECOND.build()
    images = torch.zeros(1, 8, 8, 8, requires_grad=True)
    counter = FlopCounterMode(display=False)
    with counter:
        model(images).sum().backward()
    row = StageTime("second", SECOND.forward_flops, 1.0, "measured")
    assert row.training_flops == counter.get_total_flops()


def test_convolutions_are_measured_and_the_rest_is_scaled_at_their_rate() -> None:
    told: list[tuple[int, int]] = []
    result = forecast(
        TINY, network="tiny", images_per_epoch=1000, batch_size=2, budget_s=0.1,
        progress=lambda done, of: told.append((done, of)),
    )  # fmt: skip
    assert told == [(1, 2), (2, 2)]
    assert [(row.name, row.how) for row in result.rows] == [
        ("first", "measured"), ("second", "measured"), ("last", "scaled"),
    ]  # fmt: skip
    first, second, last = result.rows
    assert first.seconds > 0
    rate = 3 * (first.forward_flops + second.forward_flops) / (first.seconds + second.seconds)
    assert result.flops_per_second == pytest.approx(rate)
    assert last.seconds == pytest.approx(3 * last.forward_flops / rate)
    assert result.seconds_per_image == pytest.approx(first.seconds + second.seconds + last.seconds)
    assert children() == []


def test_the_arithmetic_is_right_and_shown() -> None:
    rows = (StageTime("a", 10**9, 0.2, "measured"), StageTime("b", 10**9, 0.05, "scaled"))
    result = Forecast("net", "cpu", 1, rows, IMAGENET_IMAGES)
    assert result.images_per_second == pytest.approx(4)
    assert result.epoch_hours == pytest.approx(IMAGENET_IMAGES / 4 / 3600)
    assert result.days(74) == pytest.approx(74 * IMAGENET_IMAGES / 4 / 86400)
    text = str(result)
    for words in (
        "15 GFLOP a second",
        "250 ms an image",
        "1,281,167 images",
        "74 epochs: 274 days",
        "scaled",
    ):
        assert words in text
    told = json.loads(result.to_json())
    assert told["epoch_hours"] == pytest.approx(result.epoch_hours)
    assert told["rows"][1]["how"] == "scaled"


def test_the_page_is_escaped() -> None:
    page = Forecast("<net>", "cpu", 1, (StageTime("a<b", 1, 1.0, "measured"),), 1)._repr_html_()
    assert "<net>" not in page
    assert "a&lt;b" in page


def test_what_cannot_be_forecast_is_said() -> None:
    with pytest.raises(CourseError, match="at least one ConvStage"):
        forecast([LinearStage("last", (4, 2))])
    with pytest.raises(CourseError, match="at least 1 image"):
        forecast(TINY, batch_size=0)


def test_a_child_that_fails_is_told_with_its_reason() -> None:
    with pytest.raises(
        CourseError, match=r"Stage first could not be run on cpu .*memory.*smaller batch_size"
    ):
        forecast(TINY, batch_size=10**12)


def test_a_child_that_takes_too_long_is_ended() -> None:
    endless = measure([FIRST], batch_size=1, device="cpu", budget_s=1e9, time_limit_s=0.4)
    with pytest.raises(CourseError, match="Stage first was not done after 0 s"):
        next(endless)
    assert children() == []


def test_a_caller_that_stops_listening_leaves_no_child() -> None:
    times = measure([FIRST, SECOND], batch_size=1, device="cpu", budget_s=0.2)
    assert next(times) > 0
    assert len(children()) == 1
    times.close()
    assert children() == []


def test_a_stage_is_a_module_of_its_layers() -> None:
    kinds = [type(layer) for layer in FIRST.build()]
    assert kinds == [nn.Conv2d, nn.ReLU, nn.Conv2d, nn.ReLU, nn.MaxPool2d]
