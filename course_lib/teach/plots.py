"""Which pictures do the lessons draw? Each function returns, or shows, a `Picture` in the look of look.py."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.ticker import MaxNLocator, PercentFormatter

from course_lib.errors import CourseError
from course_lib.teach.look import (
    INK,
    MARGIN_IN,
    QUIET,
    SMALL_PT,
    TEXT_PT,
    VERMILLION,
    WIDTH_IN,
    add_axes,
    new_figure,
)
from course_lib.teach.picture import LivePicture, Picture
from course_lib.teach.split_bars import plot_split
from course_lib.train.history import EpochResult, History, Progress

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_history", "plot_learning", "plot_split", "show_files", "show_images"]

_COLUMNS = 8  # of a grid of images


class LearningPicture(LivePicture):
    """The loss and the accuracy of a training, drawn anew after each epoch. See `plot_learning`."""

    def __init__(self, epochs: int | None = None) -> None:
        super().__init__(lambda: _draw_learning(self._results, epochs))
        self._results: tuple[EpochResult, ...] = ()

    def update(self, progress: Progress) -> None:
        """Take in how far the training is; pass this method to ``train`` as its callback."""
        if len(progress.epochs) != len(self._results):
            self._results = progress.epochs
            self.refresh()


def plot_learning(epochs: int | None = None) -> LearningPicture:
    """A live picture of a training: loss and accuracy against the epoch, while the cell runs.

        with plot_learning(epochs=12) as picture:
            train(..., epochs=12, callback=picture.update)

    Args:
        epochs: how many there will be; the axes then have their width from the start.
    """
    return LearningPicture(epochs)


def plot_history(history: History) -> Picture:
    """The loss and the accuracy of a training that has ended."""
    return _draw_learning(history.epochs, None)


def show_images(items: Sequence[Any], *, title: str = "", ink: bool = True) -> Picture:
    """Images side by side, eight in a row, each with its label below.

    Args:
        items: images, or pairs (image, label). An image is a tensor or an array of shape (height, width),
            (1, height, width) or (3, height, width), with values from 0 to 1.
        title: stands above.
        ink: whether 1 is black in a grey image, as ink on paper; otherwise it is white.

    Raises:
        CourseError: there is no image, or one has another shape.
    """
    import numpy as np

    images, labels = [], []
    for item in items:
        image, label = item if isinstance(item, (tuple, list)) and len(item) == 2 else (item, None)
        pixels = np.asarray(image.detach().cpu() if hasattr(image, "detach") else image, dtype=np.float32)
        if pixels.ndim == 3 and pixels.shape[0] in (1, 3):
            pixels = np.moveaxis(pixels, 0, -1)
        if pixels.ndim == 3 and pixels.shape[-1] == 1:
            pixels = pixels[..., 0]
        if pixels.ndim not in (2, 3) or 0 in pixels.shape or (pixels.ndim == 3 and pixels.shape[-1] != 3):
            raise CourseError(
                f"An image of shape {tuple(np.shape(image))} cannot be shown: use (height, width), "
                "(1, height, width) or (3, height, width)."
            )
        images.append(pixels)
        labels.append("" if label is None else str(int(label) if hasattr(label, "item") else label))
    return _draw_grid(images, labels, title, "gray_r" if ink else "gray")


def show_files(folder: str | Path, count: int = 8, *, title: str = "") -> Picture:
    """The first pictures of a folder that ``write_image_files`` made, in colour, each with its label.

    Raises:
        CourseError: there is no such folder, no picture in it, or one cannot be read.
    """
    import numpy as np
    from PIL import Image

    from course_lib.train.images import ImageFiles

    files = ImageFiles(folder)
    images, labels = [], []
    for name, label in islice(zip(files.names, files.labels, strict=True), count):
        try:
            with Image.open(files.folder / name) as file:
                file.draft("RGB", (160, 160))
                picture = file.convert("RGB")
        except (OSError, SyntaxError, ValueError) as error:
            raise CourseError(f"The picture {files.folder / name} cannot be read: make it again.") from error
        picture.thumbnail((160, 160))
        images.append(np.asarray(picture, dtype=np.float32) / 255)
        labels.append(str(label))
    return _draw_grid(images, labels, title, "gray")


def _draw_grid(images: Sequence[Any], labels: Sequence[str], title: str, colours: str) -> Picture:
    if not images:
        raise CourseError("There is no image to show.")
    rows = -(-len(images) // _COLUMNS)
    pitch = (WIDTH_IN - 2 * MARGIN_IN) / _COLUMNS
    side, label_room = pitch - 0.08, 0.2 if any(labels) else 0.0
    head = 0.42 if title else MARGIN_IN
    height = head + rows * (pitch + label_room) + 0.05
    figure = new_figure(height, title)
    for index, (image, label) in enumerate(zip(images, labels, strict=True)):
        row, column = divmod(index, _COLUMNS)
        top = height - head - row * (pitch + label_room)
        axes = add_axes(figure, MARGIN_IN + column * pitch, top - side, side, side)
        axes.imshow(image, cmap=colours, vmin=0, vmax=1, interpolation="nearest")
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(True)
        axes.spines[:].set(color="#cccccc", linewidth=0.6)
        axes.set_xlabel(label, fontsize=TEXT_PT, color=INK, labelpad=2)
    said = f", with the labels {', '.join(labels)}" if any(labels) else ""
    many = f"{len(images)} image{'s' if len(images) != 1 else ''}"
    return Picture(figure, f"{title + '. ' if title else ''}{many}{said}.", sharpness=1.5)


def _draw_learning(results: Sequence[EpochResult], epochs: int | None) -> Picture:
    last = max(epochs or 1, len(results))
    figure = new_figure(2.75, "")
    loss, accuracy = (add_axes(figure, left, 0.55, 1.65, 1.75) for left in (0.6, 4.05))
    for axes, title in ((loss, "Loss"), (accuracy, "Test accuracy")):
        axes.set(xlim=(0, last), xlabel="epoch")
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.set_title(title, fontsize=TEXT_PT, color=INK, weight="bold", loc="left")
    trained = [(r.epoch, r.train_loss) for r in results]
    tested = [(r.epoch, r.test.loss) for r in results if r.test]
    hits = [(r.epoch, r.test.accuracy) for r in results if r.test]
    highest = max((value for _, value in trained + tested), default=1.0) or 1.0
    loss.set_ylim(0, 1.05 * highest)
    accuracy.set(ylim=(0, 1.05), yticks=[0, 0.2, 0.4, 0.6, 0.8, 1])
    accuracy.yaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
    curves = [(trained, QUIET, "training {:.2g}"), (tested, VERMILLION, "test {:.2g}")]
    _draw_curves(loss, [(points, colour, label) for points, colour, label in curves if points])
    _draw_curves(accuracy, [(hits, VERMILLION, "{:.1%}")] if hits else [])
    if not results:
        loss.text(0.5, 0.5, "first epoch ...", transform=loss.transAxes, ha="center", color=QUIET)
    elif not hits:
        accuracy.text(0.5, 0.5, "not tested", transform=accuracy.transAxes, ha="center", color=QUIET)
    return Picture(figure, _learning_alt(results))


def _draw_curves(axes: Axes, curves: Sequence[tuple[list[tuple[int, float]], str, str]]) -> None:
    """Draw curves, each with its last value beside its end: the names stand one line apart at least."""
    low, high = axes.get_ylim()
    line = 0.1 * (high - low)
    free_from = low + 0.3 * line
    for points, colour, label in sorted(curves, key=lambda curve: curve[0][-1][1]):
        epochs, values = zip(*points, strict=True)
        axes.plot(epochs, values, color=colour, marker="o", markersize=3.5, linewidth=1.8, clip_on=False)
        y = max(values[-1], free_from)
        free_from = y + line
        axes.annotate(
            label.format(values[-1]).replace("%", " %"),
            (epochs[-1], y),
            xytext=(6, 0),
            textcoords="offset points",
            fontsize=SMALL_PT,
            color=colour,
            va="center_baseline",
            annotation_clip=False,
        )


def _learning_alt(results: Sequence[EpochResult]) -> str:
    if not results:
        return "The loss and the accuracy of the training, before the end of the first epoch."
    first, last = results[0], results[-1]
    parts = [f"the training loss goes from {first.train_loss:.3g} to {last.train_loss:.3g}"]
    if first.test and last.test:
        parts += [
            f"the test loss from {first.test.loss:.3g} to {last.test.loss:.3g}",
            f"the test accuracy from {first.test.accuracy:.1%} to {last.test.accuracy:.1%}".replace(
                "%", " %"
            ),
        ]
    return (
        f"Curves against the epoch, measured. From epoch {first.epoch} to {last.epoch}, {', '.join(parts)}."
    )
