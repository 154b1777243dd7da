"""A memory plan adds up, knows its card's limit, and grows with the batch."""

import json
import math
from statistics import fmean

import pytest

from course_lib.accelerators import Accelerator, find_accelerator
from course_lib.errors import CourseError
from course_lib.plan.allocator import MIB, CachingAllocator, OutOfMemoryError
from course_lib.plan.batch_size import BatchTraces, largest_batch, plan_workload, traces_of
from course_lib.plan.memory import CHOICES, largest_batch_that, margin, plan_memory, reserve
from course_lib.plan.model_names import named_workload
from course_lib.plan.optimizers import optimizer_rule
from course_lib.plan.replay import Borrowed, Program, compile_program, replay
from course_lib.plan.stacks import find_stack
from course_lib.plan.step_trace import Op, StepTrace
from course_lib.plan.timeline import timeline
from course_lib.plan.tracer import trace
from course_lib.plan.workspaces import WorkspaceRule, kind_of


def card_of(mib: int) -> Accelerator:
    return Accelerator("test card", "", "", "", mib / 1000, mib, False, "a test")


@pytest.fixture(scope="module")
def resnet() -> StepTrace:
    return trace(named_workload("resnet18", micro_batch=16))


@pytest.fixture(scope="module")
def cnn_traces() -> BatchTraces:
    return traces_of(named_workload("cnn"))


def test_the_parts_add_up_to_the_total(resnet: StepTrace) -> None:
    plan = plan_memory(resnet, find_accelerator("RTX 3090"))
    assert sum(part.nbytes for part in plan.parts) == plan.total
    assert plan.allocated <= plan.reserved <= plan.total <= plan.safe
    assert {part.origin for part in plan.parts} <= {"computed", "sourced", "calibrated"}
    assert plan.fits
    assert not plan.tight


def test_the_peak_is_the_sum_of_what_is_alive_and_no_tensor_is_larger(resnet: StepTrace) -> None:
    moments = timeline(resnet, optimizer_rule("sgd"))
    assert sum(nbytes for _, nbytes in moments.alive) == moments.peak_bytes
    assert moments.peak_bytes == max(point.live_bytes for point in moments.points)
    sizes = [tensor.nbytes for tensor in moments.largest]
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) == 10
    assert moments.largest[0].module == "conv1"
    assert "resnet.py:" in moments.largest[0].line


def test_the_replay_without_workspaces_allocates_the_live_peak_and_its_rounding(resnet: StepTrace) -> None:
    allocator = CachingAllocator()
    replay(compile_program(resnet), allocator, optimizer_rule("sgd"))
    live = timeline(resnet, optimizer_rule("sgd")).peak_bytes
    assert (
        live <= allocator.allocated_peak <= live * 1.03
    )  # rounding, and blocks that were not worth splitting


def test_a_card_may_be_named(resnet: StepTrace) -> None:
    assert plan_memory(resnet, "3090") == plan_memory(resnet, find_accelerator("RTX 3090"))
    with pytest.raises(CourseError, match="not in the table"):
        plan_memory(resnet, "RTX 9999")


def test_adam_keeps_twice_as_much_as_momentum(resnet: StepTrace) -> None:
    weights = resnet.bytes_of("parameter")
    states = [
        dict(timeline(resnet, optimizer_rule(name)).alive).get("optimizer", 0)
        for name in ("sgd-plain", "sgd", "adamw")
    ]
    assert states == [0, weights, 2 * weights]


def test_accumulation_keeps_gradients_through_the_forward_pass(resnet: StepTrace) -> None:
    card = find_accelerator("RTX 3090")
    once, often = (plan_memory(resnet, card, accumulate=n) for n in (1, 4))
    assert dict(once.timeline.alive).get("gradient", 0) < resnet.bytes_of("gradient")
    assert dict(often.timeline.alive)["gradient"] >= resnet.bytes_of("gradient")
    assert often.allocated > once.allocated
    assert plan_memory(resnet, card, accumulate=8).allocated == often.allocated


def test_fits_tight_and_does_not_fit(resnet: StepTrace) -> None:
    plan = plan_memory(resnet, card_of(10**6))
    total, safe = math.ceil(plan.total / MIB), math.ceil(plan.safe / MIB)
    assert plan_memory(resnet, card_of(safe + 1)).fits
    between = plan_memory(resnet, card_of((total + safe) // 2))
    assert between.tight
    assert not between.fits
    small = plan_memory(resnet, card_of(800))
    assert not small.fits
    assert not small.tight
    assert "does not fit" in str(small)


def test_at_the_limit_the_cache_is_given_back(resnet: StepTrace) -> None:
    free = plan_memory(resnet, card_of(10**6))
    pressed = plan_memory(resnet, card_of(math.ceil(free.total / MIB) - 20))
    assert pressed.total < free.total
    assert pressed.total <= pressed.capacity


def test_expandable_segments_reserve_no_more(resnet: StepTrace) -> None:
    card = find_accelerator("RTX 3090")
    plain, expandable = (plan_memory(resnet, card, expandable_segments=on) for on in (False, True))
    assert expandable.allocated <= expandable.reserved <= plain.reserved
    assert expandable.reserved < 1.1 * expandable.allocated


def test_a_plan_is_json_and_shows_itself_safely(resnet: StepTrace) -> None:
    from dataclasses import replace

    plan = plan_memory(replace(resnet, model="<script>"), find_accelerator("T4"))
    data = json.loads(json.dumps(plan.to_json(), allow_nan=False))
    assert {
        "card",
        "batch_size",
        "allocated_mib",
        "reserved_mib",
        "total_mib",
        "safe_mib",
        "capacity_mib",
        "fits",
    } <= set(data)
    assert "<script>" not in plan._repr_html_()
    assert "T4" in str(plan)


def test_the_largest_batch_fits_and_the_next_does_not(cnn_traces: BatchTraces) -> None:
    workload, card = named_workload("cnn"), card_of(1500)
    largest = largest_batch(workload, card, traces=cnn_traces)
    assert largest > 1
    assert plan_workload(workload, card, traces=cnn_traces, batch_size=largest).fits
    assert not plan_workload(workload, card, traces=cnn_traces, batch_size=largest + 1).fits
    assert largest_batch(workload, card_of(300), traces=cnn_traces) == 0


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 7, 8, 100, 4095])
def test_the_search_finds_the_last_that_fits(limit: int) -> None:
    asked: list[int] = []
    assert largest_batch_that(lambda n: (asked.append(n), n <= limit)[1]) == limit  # type: ignore[func-returns-value]
    assert len(asked) <= 2 * math.log2(limit + 2) + 2


def conv(groups: int, channels: int, kernel: int, layout: str = "contiguous") -> Op:
    image, weight = (2, channels, 8, 8), (channels, channels // groups, kernel, kernel)
    options = (("groups", groups), ("stride", (1, 1)), ("mask", ()), ("layouts", (layout, "contiguous")))
    return Op(
        "convolution.default", "forward", "", "float32", layout, 0, 0, (image, weight), (image,), options
    )


@pytest.mark.parametrize(
    ("op", "kind"),
    [
        (conv(1, 3, 7), "stem"),
        (conv(1, 16, 3), "dense"),
        (conv(1, 16, 1), "pointwise"),
        (conv(4, 16, 3), "grouped"),
        (conv(16, 16, 3), "depthwise"),
        (conv(16, 16, 3, "channels_last"), "depthwise_nhwc"),
        (conv(16, 16, 7, "channels_last"), "wide_depthwise_nhwc"),
    ],
)
def test_kinds_of_convolutions(op: Op, kind: str) -> None:
    assert kind_of(op) == kind
    borrowed = WorkspaceRule({f"{kind}.forward": 0.5}, benchmark=True)(op)
    touched = 4 * (2 * math.prod(op.inputs[0]) + math.prod(op.inputs[1]))
    assert borrowed == Borrowed((touched // 2,), tried=True, chosen=True)


def test_a_workspace_raises_the_peak_and_trials_empty_the_cache(resnet: StepTrace) -> None:
    def peak(rule: WorkspaceRule | None) -> CachingAllocator:
        allocator = CachingAllocator()
        replay(compile_program(resnet, rule), allocator, optimizer_rule("sgd"))
        return allocator

    bare = peak(None)
    large = peak(WorkspaceRule({"dense.data": 8.0}, benchmark=False))
    assert large.reserved_peak > bare.reserved_peak
    assert peak(WorkspaceRule({}, benchmark=True)).reserved_peak != bare.reserved_peak


def peaks_by_choice(program: Program, capacity: int | None = None) -> list[int]:
    """The reserved peak with each share of the workspaces; the capacity where one does not fit."""
    found = []
    for share in CHOICES:
        allocator = CachingAllocator(capacity)
        try:
            replay(program, allocator, optimizer_rule("sgd"), share=share)
        except OutOfMemoryError:
            assert capacity is not None
            found.append(capacity)
        else:
            found.append(allocator.reserved_peak)
    return found


def test_the_reserved_bytes_are_the_mean_over_what_cudnn_may_choose(resnet: StepTrace) -> None:
    program = compile_program(
        resnet, WorkspaceRule({"dense.data": 8.0, "dense.forward": 8.0}, benchmark=False)
    )
    peaks = peaks_by_choice(program)
    assert peaks[0] < peaks[1] < peaks[-1]
    bare = CachingAllocator()
    replay(compile_program(resnet), bare, optimizer_rule("sgd"))
    assert peaks[0] == bare.reserved_peak, "no share of a workspace is none"
    found = reserve(program, optimizer_rule("sgd"))
    assert found.reserved == round(fmean(peaks))
    assert found.fitted


def test_a_workspace_that_does_not_fit_is_not_chosen(resnet: StepTrace) -> None:
    program = compile_program(
        resnet, WorkspaceRule({"dense.data": 8.0, "dense.forward": 8.0}, benchmark=False)
    )
    free = peaks_by_choice(program)
    limit = (free[0] + free[-1]) // 2
    pressed = peaks_by_choice(program, limit)
    assert pressed[0] < limit == pressed[-1], "without workspaces it fits, with the largest it does not"
    found = reserve(program, optimizer_rule("sgd"), limit=limit)
    assert found.fitted
    assert found.reserved == round(fmean(pressed)) <= limit
    tiny = reserve(program, optimizer_rule("sgd"), limit=resnet.bytes_of("parameter"))
    assert not tiny.fitted
    assert tiny.reserved == round(fmean(free))


def test_copies_and_attention_are_no_choice_of_cudnn(resnet: StepTrace) -> None:
    program = compile_program(resnet, lambda op: Borrowed((64 * MIB,)))
    assert not program.has_choices
    assert len(set(peaks_by_choice(program))) == 1
    assert not compile_program(resnet, WorkspaceRule({}, benchmark=True)).has_choices
    assert compile_program(resnet, WorkspaceRule({"stem.forward": 1.0}, benchmark=True)).has_choices


def test_stacks(resnet: StepTrace) -> None:
    for name in ("current", "a100-timm", "rtx3090-timm"):
        stack = find_stack(name)
        assert 200 < stack.context_mib < 2500
        assert 0 < margin(resnet, stack) < 0.5
        plan = plan_memory(resnet, card_of(100_000), stack=stack)
        assert plan.safe - plan.total == int(plan.reserved * margin(resnet, stack)), "not of the context too"
    with pytest.raises(CourseError, match="known are current"):
        find_stack("none")
