"""The mountain of memory: its layers add up to the timeline's peak, and rise and fall as they must."""

import pytest

from course_lib.plan.alive import LAYERS, alive_over_step
from course_lib.plan.model_names import named_workload
from course_lib.plan.optimizers import optimizer_rule
from course_lib.plan.step_trace import StepTrace
from course_lib.plan.timeline import timeline
from course_lib.plan.tracer import trace


@pytest.fixture(scope="module")
def step() -> StepTrace:
    return trace(named_workload("cnn", micro_batch=16))


@pytest.mark.parametrize("optimizer", ["sgd-plain", "sgd", "adamw"])
def test_the_summit_is_the_timelines_peak(step: StepTrace, optimizer: str) -> None:
    alive = alive_over_step(step, optimizer)
    moments = timeline(step, optimizer_rule(optimizer))
    assert max(alive.totals) == moments.peak_bytes
    assert alive.phases[alive.peak] == moments.phase
    assert set(alive.bytes_of) == set(LAYERS)
    assert {len(values) for values in alive.bytes_of.values()} == {len(alive.phases)}


def test_activations_pile_up_and_go_away_and_gradients_stay(step: StepTrace) -> None:
    alive = alive_over_step(step, "adamw")
    forward = alive.phases.count("forward")
    activations, gradients = alive.bytes_of["activations"], alive.bytes_of["gradients"]
    assert max(activations[: forward + 1]) == max(activations)
    assert activations[-1] < 0.05 * max(activations)
    assert max(gradients[:forward]) == 0
    assert gradients[-1] == step.bytes_of("parameter")
    assert set(alive.bytes_of["optimizer states"]) == {2 * step.bytes_of("parameter")}
    assert alive.phases[-1] == "optimizer"
