"""Is each text of a picture inside of it, and clear of all others?"""

from matplotlib.text import Text

from course_lib.teach.picture import Picture


def assert_laid_out(picture: Picture) -> None:
    """No text outside of the figure, and no two over each other."""
    figure = picture.figure
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    hidden = {
        id(label)
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]
        for label in (tick.label1, tick.label2)
        if tick not in axis._update_ticks() or not axes.axison
    }
    texts = [
        t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip() and id(t) not in hidden
    ]
    boxes = [
        (t.get_text(), Text.get_window_extent(t, renderer)) for t in texts
    ]  # without an annotation's line
    whole = figure.bbox
    for text, box in boxes:
        assert box.x0 >= whole.x0 - 1, text
        assert box.x1 <= whole.x1 + 1, text
        assert box.y0 >= whole.y0 - 1, text
        assert box.y1 <= whole.y1 + 1, text
    for number, (text, box) in enumerate(boxes):
        for other, its_box in boxes[number + 1 :]:
            assert not box.padded(-1.5).overlaps(its_box.padded(-1.5)), (text, other)
