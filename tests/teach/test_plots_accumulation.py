"""The pictures of lesson 05: nothing overlaps, and what they show is said in words too."""

import pytest
from laid_out import assert_laid_out
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle
from torch.nn.functional import cross_entropy

from course_lib.errors import CourseError
from course_lib.teach.look import SKY_BLUE, VERMILLION
from course_lib.teach.picture import Picture
from course_lib.teach.plots_accumulation import plot_made_of, plot_update_costs
from course_lib.train.equivalence import Reference, prove
from course_lib.train.update_cost import UpdateCost


def popular(model, loader, optimizer):
    for i, (x, y) in enumerate(loader):
        (cross_entropy(model(x), y) / 4).backward()
        if (i + 1) % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()


def undivided(model, window, optimizer):
    optimizer.zero_grad()
    for x, y in window:
        cross_entropy(model(x), y).backward()
    optimizer.step()


def never(model, loader, optimizer):
    for x, y in loader:
        cross_entropy(model(x), y).backward()


def colours(picture: Picture) -> list[str]:
    return [
        to_hex(patch.get_facecolor()).upper()
        for patch in picture.figure.findobj(Rectangle)
        if patch.get_fill() and patch.get_width() == 1
    ]


def test_right_cells_are_blue_and_wrong_ones_red() -> None:
    picture = plot_made_of({"popular": prove(popular), "undivided": prove(undivided)}, title="Two loops")
    assert_laid_out(picture)
    assert colours(picture).count(SKY_BLUE.upper()) == 8
    assert colours(picture).count(VERMILLION.upper()) == 11 + 22
    assert "update 3 holds micro-batches 1.9 to 2.4, counting .75 and 1" in picture.alt
    assert "2 updates are missing" in picture.alt


def test_a_loop_without_an_update_has_frames_only() -> None:
    picture = plot_made_of(prove(never), title="Nothing")
    assert_laid_out(picture)
    assert not {SKY_BLUE.upper(), VERMILLION.upper()} & set(colours(picture))


def test_texts_and_small_tasks_are_drawn() -> None:
    for reference in (Reference(weight_by="tokens"), Reference(micro_batches=1, epochs=1)):
        assert_laid_out(plot_made_of(prove(undivided_mean, reference), title="Small"))


def undivided_mean(model, window, optimizer, criterion):
    optimizer.zero_grad()
    for x, y in window:
        (criterion(model(x), y) / len(window)).backward()
    optimizer.step()


@pytest.mark.parametrize(
    "costs",
    [
        [UpdateCost(512, 512, 142_000_000, 900_000, 0.3, 5), UpdateCost(512, 8, 2_200_000, 900_000, 0.41, 5)],
        [UpdateCost(64, size, size * 270_000, 900_000, 5.0 / size, 1) for size in (8, 16, 32, 64, 64)],
        [UpdateCost(64, 8, 0, 0, 0.0, 1)],
    ],
)
def test_costs_are_drawn_without_overlap(costs: list[UpdateCost]) -> None:
    picture = plot_update_costs(costs, title="One update")
    assert_laid_out(picture)
    assert f"{costs[0].accumulation_steps} × {costs[0].micro_batch}" in picture.alt


def test_what_cannot_be_drawn_is_told() -> None:
    with pytest.raises(CourseError, match="no measurement"):
        plot_update_costs([], title="")
    with pytest.raises(CourseError, match="no update to draw"):
        plot_made_of({}, title="")
