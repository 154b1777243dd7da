"""How does what was measured on two ranks become a prediction for more? As a step and a link of
`plan/scaling.py`.
"""

from course_lib.errors import CourseError
from course_lib.plan.interconnects import Interconnect
from course_lib.plan.step_time import StepTime
from course_lib.train.ranks.link import LinkBenchmark

FORWARD_SHARE = 1 / 3
"""Of a step's computing: the backward pass takes about twice as long as the forward pass."""


def measured_step(
    seconds: float,
    gradient_bytes: int,
    *,
    layers: int = 8,
    batch_size: int = 1,
    model: str = "the measured step",
    device: str = "this computer",
) -> StepTime:
    """A step that took `seconds` on one rank, with equal layers whose gradients become ready one after the
    other.

    Raises CourseError for a time or a size that is not more than 0.
    """
    if not seconds > 0 or gradient_bytes < 1 or layers < 1:
        raise CourseError("A step to scale needs a time of more than 0 s, a layer, and a byte of gradients.")
    each = gradient_bytes // layers or 1
    return StepTime(
        model=model,
        card=device,
        batch_size=batch_size,
        precision="fp32",
        accumulate=1,
        seconds=seconds,
        low=seconds,
        high=seconds,
        bound="compute",
        flops=0.0,
        peak_flops_per_second=0.0,
        forward=FORWARD_SHARE * seconds,
        backward=(1 - FORWARD_SHARE) * seconds,
        optimizer=0.0,
        gradients=tuple(((layer + 1) / layers, each) for layer in range(layers)),
        modules=(),
        kinds=(),
        calibration="measured on one rank",
    )


def measured_link(link: LinkBenchmark, world_size: int, cores: int) -> Interconnect:
    """The link that a benchmark found, for another number of ranks on this computer.

    gloo copies with the processor: ranks that outnumber the cores share their bandwidth.
    """

    def cores_a_rank(ranks: int) -> float:
        return min(ranks, cores) / ranks

    bandwidth = link.bandwidth * cores_a_rank(world_size) / cores_a_rank(link.world_size)
    name = f"{link.backend} between ranks of this computer"
    return Interconnect(name, bandwidth, link.latency_s, network=False, source="measured here")
