import gc
import itertools
import os
import subprocess
import sys
import weakref
from io import BytesIO
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
import torch
from bs4 import BeautifulSoup
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from nbformat.v4 import new_code_cell, new_notebook
from PIL import Image

from course_lib.errors import CourseError
from course_lib.teach.look import MEMORY_COLOURS, TIME_COLOURS, text_on
from course_lib.teach.picture import Picture
from course_lib.teach.plots import plot_history, plot_split, show_files, show_images
from course_lib.teach.running.headless import execute
from course_lib.teach.running.page import write_page
from course_lib.train.data import Digits
from course_lib.train.history import EpochResult, Evaluation, History
from course_lib.train.images import write_image_files
from course_lib.train.split import PHASES, StepSplit

times = st.one_of(st.just(0.0), st.floats(1e-7, 10.0))
splits = st.fixed_dictionaries(dict.fromkeys(PHASES, times)).map(
    lambda seconds: StepSplit.from_seconds(batch_size=64, **seconds)
)
names = st.text(st.characters(codec="ascii", exclude_categories=["C"]), min_size=1, max_size=80)


def texts_in(figure: Figure) -> list[Text]:
    figure.draw_without_rendering()
    return [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]


def words_of(picture: Picture) -> str:
    return " ".join(text.get_text().replace("\n", " ") for text in texts_in(picture.figure))


def segments(picture: Picture) -> list[Rectangle]:
    """The coloured bars, without hatches and the small squares of the names."""
    axes = picture.figure.axes[0]
    return [p for p in axes.patches if isinstance(p, Rectangle) and p.get_fill() and p.get_height() > 0.2]


LONG = StepSplit.from_seconds(data=0.999, forward=0.001, batch_size=64)
SHORT = StepSplit.from_seconds(**dict.fromkeys(PHASES, 0.002), batch_size=64)  # its names need two lines


@settings(max_examples=40)
@example({"short": SHORT, "long": LONG, "short again": SHORT}, "measured")
@given(st.dictionaries(names, splits, min_size=1, max_size=6), st.sampled_from(["measured", "predicted"]))
def test_every_part_is_named_and_no_label_is_clipped_or_overlaps(
    named: dict[str, StepSplit], how: Any
) -> None:
    picture = plot_split(named, how=how)
    words = words_of(picture)
    for split in named.values():
        for phase, share in split.shares.items():
            assert share == 0 or phase in words
    whole = picture.figure.bbox
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts_in(picture.figure)]
    for label, box in boxes:
        assert box.x0 >= whole.x0 - 1, label
        assert box.x1 <= whole.x1 + 1, label
        assert box.y0 >= whole.y0 - 1, label
        assert box.y1 <= whole.y1 + 1, label
    for (label, box), (other, other_box) in itertools.combinations(boxes, 2):
        overlap_x = min(box.x1, other_box.x1) - max(box.x0, other_box.x0)
        overlap_y = min(box.y1, other_box.y1) - max(box.y0, other_box.y0)
        assert overlap_x < 1 or overlap_y < 1, (label, other)


@settings(max_examples=30)
@given(st.dictionaries(names, splits, min_size=1, max_size=4))
def test_lengths_are_times_from_zero_on_one_scale(named: dict[str, StepSplit]) -> None:
    picture = plot_split(named)
    expected = [s for split in named.values() for s in split.seconds.values() if s > 0]
    drawn = segments(picture)
    assert len(drawn) == len(expected)
    if expected:
        scale = drawn[0].get_width() / expected[0]
        assert [bar.get_width() for bar in drawn] == pytest.approx([s * scale for s in expected], rel=1e-6)
        longest = max(split.step.mean_s for split in named.values())
        assert picture.figure.axes[0].get_xlim() == pytest.approx((0, longest * scale))


def test_phases_stand_in_their_order_in_their_colours() -> None:
    picture = plot_split(StepSplit.from_seconds(**dict.fromkeys(PHASES, 0.01)))
    drawn = segments(picture)
    assert [to_hex(bar.get_facecolor()).upper() for bar in drawn] == [TIME_COLOURS[name] for name in PHASES]
    ends = [bar.get_x() + bar.get_width() for bar in drawn]
    assert [bar.get_x() for bar in drawn] == pytest.approx([0, *ends[:-1]])


def test_the_colours_mean_what_the_design_says() -> None:
    page = Path(__file__).parents[2] / "docs" / "design.md"
    said = " ".join(page.read_text(encoding="utf-8").split())
    words = {"#E69F00": "orange", "#F0E442": "yellow", "#56B4E9": "sky blue", "#0072B2": "blue"}
    words |= {"#009E73": "green", "#CC79A7": "purple", "#999999": "grey"}
    for thing, colour in (TIME_COLOURS | MEMORY_COLOURS).items():
        spoken = {"data": "waiting for data", "rest": "the rest"}.get(thing, thing)
        assert f"{spoken} {words[colour]}" in said


@pytest.mark.parametrize("colour", [*TIME_COLOURS.values(), *MEMORY_COLOURS.values()])
def test_labels_inside_can_be_read(colour: str) -> None:
    def luminance(name: str) -> float:
        channels = np.array([int(name[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    light, dark = sorted((luminance(colour), {"white": 1.0, "black": 0.0}[text_on(colour)]), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_how_certain_a_bar_is_can_be_seen_and_read() -> None:
    split = StepSplit.from_seconds(forward=0.1)
    picture = plot_split({"a": split, "b": split, "c": split}, how={"b": "predicted", "c": "emulated"})
    hatches = [p.get_hatch() for p in picture.figure.axes[0].patches if isinstance(p, Rectangle)]
    assert len({hatch for hatch in hatches if hatch}) == 2
    for word in ("measured", "predicted", "emulated"):
        assert word in words_of(picture)
        assert word in picture.alt


def test_times_of_a_sample_compare_batches() -> None:
    small = StepSplit.from_seconds(forward=0.01, batch_size=8)
    large = StepSplit.from_seconds(forward=0.02, batch_size=32)
    picture = plot_split({"8": small, "32": large}, per="sample")
    first, second = (bar.get_width() for bar in segments(picture))
    assert first == pytest.approx(2 * second)
    assert "time of one sample (ms)" in words_of(picture)
    with pytest.raises(CourseError, match="how many samples"):
        plot_split(StepSplit.from_seconds(forward=0.01), per="sample")


def test_no_time_at_all_is_drawn_as_that() -> None:
    picture = plot_split(StepSplit.from_seconds())
    assert segments(picture) == []
    assert "no time at all" in words_of(picture)
    for nothing in ({}, 3, None):
        with pytest.raises(CourseError, match="no split"):
            plot_split(nothing)


def test_the_alternative_text_tells_the_numbers_and_is_escaped() -> None:
    picture = plot_split({'"<b> & $x_': StepSplit.from_seconds(data=0.03, forward=0.01, batch_size=8)})
    assert "40 ms a step, 200 samples a second, measured: data 75 %, forward 25 %" in picture.alt
    image = BeautifulSoup(picture._repr_html_(), "html.parser").img
    assert image is not None
    assert image["alt"] == picture.alt
    assert str(picture) == picture.alt


def test_a_picture_is_a_png_of_its_size_and_leaves_nothing_behind() -> None:
    picture = show_images([np.zeros((4, 4))], title="one")
    bundle = picture._repr_mimebundle_()
    assert set(bundle) == {"text/html", "image/png", "text/plain"}
    width, height = Image.open(BytesIO(picture.png())).size
    image = BeautifulSoup(bundle["text/html"], "html.parser").img
    assert image is not None
    assert int(str(image["width"])) * picture.sharpness == pytest.approx(width, abs=2)
    assert int(str(image["height"])) * picture.sharpness == pytest.approx(height, abs=2)
    figure = weakref.ref(picture.figure)
    del picture
    gc.collect()
    assert figure() is None


def test_no_picture_needs_pyplot() -> None:
    code = (
        "import sys\nfrom course_lib.teach.plots import plot_split\n"
        "from course_lib.train.split import StepSplit\n"
        "plot_split(StepSplit.from_seconds(data=1.0)).png()\n"
        "sys.exit('matplotlib.pyplot' in sys.modules or 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def history(*losses: float, tested: bool = True) -> History:
    return History(
        tuple(
            EpochResult(epoch, loss, Evaluation(loss / 2, 1 - loss / 10, 355) if tested else None, 1.0)
            for epoch, loss in enumerate(losses, start=1)
        )
    )


@pytest.mark.parametrize("losses", [(2.0,), (2.0, 0.5, 0.01), (0.0, 0.0), (1e4, 9e3), (1e-6,) * 40])
@pytest.mark.parametrize("tested", [True, False])
def test_learning_is_drawn_from_zero_with_its_last_values_beside_it(
    losses: tuple[float, ...], tested: bool
) -> None:
    picture = plot_history(history(*losses, tested=tested))
    loss, accuracy = picture.figure.axes
    assert loss.get_ylim()[0] == 0
    assert accuracy.get_ylim()[0] == 0
    assert accuracy.get_ylim()[1] >= 1
    assert loss.get_ylim()[1] > max(losses)
    words = words_of(picture)
    assert f"training {losses[-1]:.2g}" in words
    assert ("not tested" in words) != tested
    drawn = sorted(list(line.get_ydata()) for line in loss.lines)  # type: ignore[arg-type]
    assert drawn == sorted([list(losses), [x / 2 for x in losses]] if tested else [list(losses)])
    boxes = [
        t.get_window_extent() for t in texts_in(picture.figure) if t.get_text()[:5] in ("train", "test ")
    ]
    for box, other in itertools.combinations(boxes, 2):
        assert min(box.y1, other.y1) - max(box.y0, other.y0) < 1
    assert all(box.x1 <= picture.figure.bbox.x1 for box in boxes)


def test_images_are_shown_as_they_are_with_their_labels() -> None:
    digits = Digits("train")
    picture = show_images([digits[i] for i in range(9)], title="Nine")
    assert len(picture.figure.axes) == 9
    np.testing.assert_array_equal(picture.figure.axes[3].images[0].get_array(), digits[3][0][0])
    assert [axes.get_xlabel() for axes in picture.figure.axes] == [str(digits[i][1]) for i in range(9)]
    assert "9 images, with the labels" in picture.alt
    paper_at = {
        ink: Image.open(BytesIO(show_images([np.zeros((2, 2))], ink=ink).png())) for ink in (True, False)
    }
    assert paper_at[True].convert("L").getpixel((60, 50)) == 255
    assert paper_at[False].convert("L").getpixel((60, 50)) == 0


@pytest.mark.parametrize(
    "image", [torch.rand(3, 5, 4), torch.rand(1, 5, 4), np.ones((5, 4)), (torch.rand(5, 4), torch.tensor(7))]
)
def test_images_may_have_these_shapes(image: Any) -> None:
    shown = show_images([image]).figure.axes[0].images[0].get_array()
    assert shown is not None
    assert shown.shape[:2] == (5, 4)


@pytest.mark.parametrize("image", [torch.rand(2, 5, 4), np.ones(5), np.ones((0, 4)), np.ones((1, 3, 5, 4))])
def test_other_shapes_are_refused(image: Any) -> None:
    with pytest.raises(CourseError, match=r"An image of shape .* cannot be shown"):
        show_images([image])


def test_files_are_shown_in_colour_and_a_missing_folder_is_told(tmp_path: Path) -> None:
    picture = show_files(write_image_files(tmp_path, count=3, size=64, progress=False), count=2)
    arrays = [axes.images[0].get_array() for axes in picture.figure.axes]
    assert [array.shape for array in arrays if array is not None] == [(64, 64, 3)] * 2
    with pytest.raises(CourseError, match="no folder of pictures"):
        show_files(tmp_path / "nowhere")
    with pytest.raises(CourseError, match="no image"):
        show_images([])


LIVE = """
from course_lib.teach.plots import plot_learning
from course_lib.train.history import EpochResult, Progress
results = ()
with plot_learning(epochs=3) as picture:
    for epoch in range(1, 4):
        results += (EpochResult(epoch, 1 / epoch, None, 1.0),)
        picture.update(Progress(epoch, 1, 1, 0.0, results))
"""


def test_a_live_picture_changes_in_its_place_and_its_text_reaches_the_page(tmp_path: Path) -> None:
    notebook = new_notebook(cells=[new_code_cell(LIVE)])
    notebook.metadata.kernelspec = {"display_name": "Python 3", "language": "python", "name": "python3"}
    nbformat.write(notebook, tmp_path / "live.ipynb")
    ran = execute(
        tmp_path / "live.ipynb",
        tmp_path / "executed.ipynb",
        parameters={},
        folder=tmp_path,
        environment=os.environ,
        cell_limit_s=60,
    )
    assert ran.failure is None
    (output,) = ran.notebook.cells[0].outputs
    assert "From epoch 1 to 3, the training loss goes from 1 to 0.333" in output.data["text/plain"]
    write_page(ran.notebook, tmp_path / "page.html", title="live")
    page = BeautifulSoup((tmp_path / "page.html").read_text(encoding="utf-8"), "html.parser")
    assert [image["alt"] for image in page.find_all("img")] == [output.data["text/plain"]]
