"""Operations are sorted into kinds of work, and the arithmetic of each is counted right."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.plan.op_kinds import work_of
from course_lib.plan.recorder import Recorder
from course_lib.plan.step_trace import Op
from course_lib.plan.work import Work


def convolution(
    cin: int, cout: int, kernel: int, groups: int, stride: int, *, side: int = 16, half: bool = True
) -> Op:
    out = (side + 2 * (kernel // 2) - kernel) // stride + 1
    options = (
        ("stride", (stride, stride)),
        ("padding", (kernel // 2,) * 2),
        ("dilation", (1, 1)),
        ("transposed", False),
        ("groups", groups),
        ("mask", ()),
        ("layouts", ("channels_last", "channels_last")),
    )
    inputs = ((2, cin, side, side), (cout, cin // groups, kernel, kernel))
    outputs = ((2, cout, out, out),)
    moved = sum(math.prod(shape) for shape in (*inputs, *outputs)) * (2 if half else 4)
    dtype = "float16" if half else "float32"
    return Op(
        "convolution.default", "forward", "c", dtype, "channels_last", 0, moved, inputs, outputs, options
    )


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (convolution(64, 64, 3, 1, 1), "dense3.forward"),
        (convolution(64, 128, 3, 1, 2), "dense3_s2.forward"),
        (convolution(64, 64, 5, 1, 1), "dense5.forward"),
        (convolution(64, 256, 1, 1, 1), "pointwise.forward"),
        (convolution(60, 30, 1, 1, 1), "pointwise_odd.forward"),
        (convolution(3, 64, 7, 1, 2), "stem.forward"),
        (convolution(3, 96, 4, 1, 4), "stem_patch.forward"),
        (convolution(64, 128, 2, 1, 2), "patch.forward"),
        (convolution(96, 96, 3, 96, 1), "depthwise3.forward"),
        (convolution(96, 96, 7, 96, 2), "depthwise7_s2.forward"),
        (convolution(128, 128, 3, 32, 1), "grouped_by32.forward"),
        (convolution(64, 64, 3, 1, 1, half=False), "dense3.forward.single"),
    ],
)
def test_a_convolution_is_named_by_its_shape(made: Op, kind: str) -> None:
    (work,) = work_of(made, channels_last=True)
    assert work.kind == kind
    plain = replace(
        made,
        layout="contiguous",
        options=tuple(
            (name, ("contiguous",) * 2 if name == "layouts" else value) for name, value in made.options
        ),
    )
    assert work_of(plain, channels_last=False)[0].kind == kind.replace(".forward", ".forward.nchw")


@pytest.mark.parametrize(
    ("made", "last", "plain", "groups"),
    [
        (convolution(32, 32, 3, 4, 1), "grouped_thin", "grouped8", 4.0),
        (convolution(64, 64, 3, 4, 1), "grouped_mid", "grouped16", 4.0),
        (convolution(96, 192, 1, 2, 1), "grouped_mid_1x1", "grouped48_1x1", 2.0),
        (convolution(336, 336, 3, 6, 2), "grouped_wide_s2", "grouped64_s2", 6.0),
        (convolution(128, 128, 3, 32, 1), "grouped_by32", "grouped_by32", 0.0),
        (convolution(128, 128, 3, 128, 1), "depthwise3", "depthwise3", 0.0),
        (convolution(128, 128, 3, 1, 1), "dense3", "dense3", 0.0),
    ],
)
def test_only_channels_last_runs_group_by_group_and_only_without_a_kernel_for_it(
    made: Op, last: str, plain: str, groups: float
) -> None:
    (work,) = work_of(made, channels_last=True)
    assert (work.kind, work.groups) == (f"{last}.forward", groups)
    options = tuple(pair for pair in made.options if pair[0] != "layouts")
    (work,) = work_of(replace(made, layout="contiguous", options=options), channels_last=False)
    assert (work.kind, work.groups) == (f"{plain}.forward.nchw", 0.0)


@given(
    cin=st.sampled_from([8, 16, 64]),
    cout=st.sampled_from([8, 32, 64]),
    kernel=st.sampled_from([1, 3, 5]),
    stride=st.sampled_from([1, 2]),
    groups=st.sampled_from([1, 2, 8]),
)
def test_the_flops_of_a_convolution_are_twice_its_multiplications(
    cin: int, cout: int, kernel: int, stride: int, groups: int
) -> None:
    made = convolution(cin, cout, kernel, groups, stride)
    (work,) = work_of(made, channels_last=True)
    batch, channels, height, width = made.outputs[0]
    assert work.flops == 2 * batch * channels * height * width * (cin // groups) * kernel**2
    assert work.nbytes == made.bytes_moved


def test_the_pieces_of_a_backward_convolution_are_the_gradients_that_are_asked_for() -> None:
    forward = convolution(64, 32, 3, 1, 1)
    image, weight = forward.inputs
    grad = forward.outputs[0]
    for mask, kinds in (
        ((True, True, False), ["dense3.data", "dense3.weight"]),
        ((False, True, False), ["dense3.weight"]),
        ((True, True, True), ["dense3.data", "dense3.weight", "bias_grad"]),
    ):
        options = tuple((name, mask if name == "mask" else value) for name, value in forward.options)
        options = tuple(
            (name, ("channels_last",) * 3 if name == "layouts" else value) for name, value in options
        )
        op = Op(
            "convolution_backward.default",
            "backward",
            "c",
            "float16",
            "channels_last",
            0,
            0,
            (grad, image, weight),
            (image, weight),
            options,
        )
        works = work_of(op, channels_last=True)
        assert [work.kind for work in works] == kinds
        assert all(work.flops == work_of(forward, True)[0].flops for work in works if work.flops)


def record(work: object) -> list[Op]:
    recorder = Recorder()
    recorder.phase = "forward"
    with recorder:
        work()  # type: ignore[operator]
    return recorder.ops


def works(work: object) -> list[Work]:
    return [piece for op in record(work) for piece in work_of(op, False)]


@pytest.mark.parametrize(
    ("work", "kind", "family"),
    [
        (lambda: torch.ones(8, 16) @ torch.ones(16, 24), "linear.forward.single", "matmul"),
        (lambda: torch.bmm(torch.ones(3, 8, 16), torch.ones(3, 16, 8)), "batched.forward.single", "matmul"),
        (lambda: torch.ones(8, 8) + torch.ones(8, 8), "plain.single", "pointwise"),
        (lambda: torch.ones(8, 8) * torch.ones(8, 1), "plain_broadcast.single", "pointwise"),
        (lambda: torch.nn.functional.gelu(torch.ones(8, 8)), "math.single", "pointwise"),
        (lambda: torch.ones(8, 4).sum(1), "reduce_rows.single", "reduction"),
        (lambda: torch.ones(8, 4).sum(0), "reduce_columns.single", "reduction"),
        (lambda: torch.softmax(torch.ones(8, 8), 1), "softmax.forward.single", "softmax"),
        (lambda: torch.cat([torch.ones(8), torch.ones(8)]), "join", "copy"),
        (lambda: torch.nn.functional.layer_norm(torch.ones(8, 8), (8,)), "layer_norm.forward.single", "norm"),
        (
            lambda: torch.nn.functional.embedding(torch.zeros(4, dtype=torch.long), torch.ones(9, 8)),
            "gather",
            "gather",
        ),
        (lambda: torch.nn.functional.max_pool2d(torch.ones(1, 8, 8, 8), 2), "max_pool.forward.nchw", "pool"),
    ],
)
def test_real_operations_find_their_kind(work: object, kind: str, family: str) -> None:
    assert (kind, family) in {(piece.kind, piece.family) for piece in works(work)}


def test_a_matrix_product_counts_its_flops_and_sides() -> None:
    piece = next(p for p in works(lambda: torch.ones(8, 16) @ torch.ones(16, 24)) if p.flops)
    assert piece.flops == 2 * 8 * 16 * 24
    assert piece.dims == (8, 24, 16)


def test_memory_that_is_only_set_aside_is_no_work() -> None:
    assert works(lambda: torch.empty(8)) == []
    assert works(lambda: torch.ones(8).view(2, 4)) == works(lambda: torch.ones(8))
