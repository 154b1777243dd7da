"""What other libraries would leave, by arithmetic: checked against sums done by hand."""

import math

import pytest

from course_lib.plan.model_names import named_workload
from course_lib.plan.optimizers import optimizer_rule
from course_lib.plan.step_trace import StepTrace
from course_lib.plan.timeline import timeline
from course_lib.plan.trace_changes import (
    adapters_only,
    eight_bit,
    fully_sharded,
    sharded_states,
    share_in_matrices,
)
from course_lib.plan.tracer import trace


@pytest.fixture(scope="module")
def cnn() -> StepTrace:
    return trace(named_workload("cnn", micro_batch=4))


def states(step: StepTrace, rule: object) -> int:
    return dict(timeline(step, rule).alive).get("optimizer", 0)  # type: ignore[arg-type]


def test_eight_bit_states_take_a_byte_an_element_and_small_ones_stay() -> None:
    rule = eight_bit(optimizer_rule("adamw"))
    assert sum(rule.state_bytes((1024, 1024), 4 * 2**20)) == 2 * (2**20 + 4 * 4096)
    assert sum(rule.state_bytes((64,), 256)) == 2 * 256
    assert rule.temporaries == 0


def test_states_over_four_cards_are_a_quarter(cnn: StepTrace) -> None:
    rule = optimizer_rule("adamw")
    assert states(cnn, sharded_states(rule, 4)) == pytest.approx(states(cnn, rule) / 4, rel=0.001)


def test_full_sharding_leaves_a_quarter_and_room_for_the_largest_parts(cnn: StepTrace) -> None:
    rule = optimizer_rule("adamw")
    sharded = fully_sharded(cnn, 4)
    whole = cnn.bytes_of("parameter")
    parts: dict[str, int] = {}
    for block in cnn.parameters:
        parts[block.module.rsplit(".", 1)[0]] = parts.get(block.module.rsplit(".", 1)[0], 0) + block.nbytes
    assert sharded.bytes_of("parameter") == pytest.approx(whole / 4 + 3 * max(parts.values()), rel=0.001)
    assert states(sharded, rule) == pytest.approx(states(cnn, rule) / 4, rel=0.01)
    assert sharded.bytes_of("activation") == cnn.bytes_of("activation")
    assert sum(b.nbytes for b in sharded.gradients) == pytest.approx(
        sum(b.nbytes for b in cnn.gradients) / 4, rel=0.001
    )


def test_adapters_have_the_gradients_and_states_of_two_thin_matrices() -> None:
    step = trace(named_workload("gpt", micro_batch=1, sequence=16))
    thin = adapters_only(step, 8)
    matrices = [block.shape for block in step.gradients if len(block.shape) == 2]
    trained = sum(8 * sum(shape) for shape in matrices)
    assert sum(block.nbytes for block in thin.gradients) == 4 * trained
    assert states(thin, optimizer_rule("adamw")) == 8 * trained
    assert thin.bytes_of("parameter") == step.bytes_of("parameter") + 4 * trained
    assert share_in_matrices(step) > 0.99


def test_a_network_of_convolutions_is_not_made_of_matrices(cnn: StepTrace) -> None:
    assert share_in_matrices(cnn) < 0.05
    assert math.isclose(cnn.live_peak(), adapters_only(cnn, 8).live_peak(), rel_tol=0.2)
