"""A trace shows what a step does: checked against a real step on this CPU, and between the two roads."""

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from course_lib.errors import CourseError
from course_lib.plan.model_names import named_workload
from course_lib.plan.step_trace import StepTrace
from course_lib.plan.tracer import trace
from course_lib.plan.workload import Workload, workload_from

TEXT = {"sequence": 64, "micro_batch": 2}
IMAGES = {"micro_batch": 4}
# Models whose CPU kernels borrow little beside what PyTorch allocates. oneDNN rearranges the weights of dense
# convolutions: with 3 x 3 kernels of many channels that is 1 to 2 % (resnet18, vgg11) and not in the trace.
REAL = [
    ("cnn", IMAGES),
    ("gpt", TEXT),
    ("mobilenet_v2", IMAGES),
    ("mobilenet_v3_small", IMAGES),
    ("shufflenet_v2_x0_5", IMAGES),
    ("mobilenet_v3_large", IMAGES),
    ("regnet_x_400mf", IMAGES),
    ("mnasnet0_5", IMAGES),
    ("swin_t", IMAGES),
    ("efficientnet_b0", IMAGES),
]


def really_allocated(workload: Workload) -> int:
    """The most bytes that one real forward and backward pass on the CPU adds to what is there before, by
    torch's profiler.
    """
    torch.manual_seed(0)
    model = workload.model().train()
    batch = workload.batch(workload.micro_batch)
    filled = tuple(
        torch.zeros_like(x) if not x.is_floating_point() else torch.randn_like(x) for x in batch.args
    )
    target = torch.zeros_like(batch.target)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        loss = workload.loss(model(*filled), target)
        loss.backward()
        del loss
    events = [e for e in recorded.profiler.kineto_results.events() if e.name() == "[memory]"]  # type: ignore[union-attr]
    live = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


def predicted(made: StepTrace) -> int:
    """The same from a trace."""
    return made.live_peak() - sum(block.nbytes for block in made.blocks if block.op < 0)


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(CourseError, match=r"3 is no torch\.nn\.Module"):
        workload_from(3, torch.zeros(2, 3))  # type: ignore[arg-type]


@pytest.mark.parametrize(("model", "sizes"), REAL)
def test_predicted_bytes_are_the_really_allocated_ones(model: str, sizes: dict[str, int]) -> None:
    workload = named_workload(model, **sizes)
    assert predicted(trace(workload, device="cpu")) == pytest.approx(really_allocated(workload), rel=0.01)


@pytest.mark.skipif(
    not torch.backends.cuda.is_built(), reason="this torch cannot fake CUDA tensors: one road only"
)
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize(
    ("model", "sizes"),
    [
        ("gpt", TEXT),
        ("resnet18", IMAGES),
        ("vit_b_32", IMAGES),
        ("mobilenet_v3_small", IMAGES),
    ],
)
def test_both_roads_agree(model: str, sizes: dict[str, int], precision: str) -> None:
    workload = named_workload(model, precision=precision, **sizes)
    cuda, cpu = trace(workload, device="cuda"), trace(workload, device="cpu")
    assert cpu.live_peak() == pytest.approx(cuda.live_peak(), rel=0.002)
    assert cpu.bytes_of("activation") == pytest.approx(cuda.bytes_of("activation"), rel=0.05)
    assert cpu.parameter_count == cuda.parameter_count
    assert cpu.flops == cuda.flops


def test_flops_of_a_matrix_product_are_counted_in_all_three_passes() -> None:
    made = trace(
        workload_from(
            nn.Sequential(nn.Linear(64, 32, bias=False), nn.Linear(32, 16, bias=False)), torch.zeros(8, 64)
        )
    )
    first, second = 2 * 8 * 64 * 32, 2 * 8 * 32 * 16
    assert made.flops == 2 * first + 3 * second  # no gradient for the input


def test_categories_and_places() -> None:
    made = trace(named_workload("cnn", micro_batch=2))
    assert made.bytes_of("parameter") == 4 * made.parameter_count == made.bytes_of("gradient")
    assert {op.phase for op in made.ops} == {"forward", "backward"}
    places = {op.module for op in made.ops if op.name == "convolution.default"}
    assert places == {"features.0", "features.3", "features.7"}
    assert places <= {op.module for op in made.ops if op.name == "convolution_backward.default"}
    kept = [b for b in made.blocks if b.category == "activation" and b.module == "features.0"]
    assert kept
    assert all("zoo.py:" in b.line for b in kept)


def test_autocast_keeps_less_and_checkpointing_still_less() -> None:
    plain, half, checkpointed = (
        trace(named_workload("gpt", sequence=512, micro_batch=8, **settings))
        for settings in ({}, {"precision": "bf16"}, {"precision": "bf16", "checkpointing": True})
    )
    assert checkpointed.bytes_of("activation") < half.bytes_of("activation") < plain.bytes_of("activation")
    assert checkpointed.flops > 1.1 * half.flops
    assert len(checkpointed.gradients) == len(plain.gradients)


def test_a_model_without_blocks_is_not_checkpointed_in_silence() -> None:
    with pytest.raises(CourseError, match="no repeated blocks"):
        trace(workload_from(nn.Linear(2, 2), torch.zeros(4, 2), checkpointing=True))


def test_the_learners_module_is_left_as_it_was() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.LazyLinear(2))
    module(torch.zeros(2, 3, 8, 8))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    module.eval()
    made = trace(workload_from(module, torch.zeros(2, 3, 8, 8), torch.zeros(2, dtype=torch.long)))
    assert made.parameter_count == sum(p.numel() for p in module.parameters())
    assert not module.training
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])


def test_shared_weights_are_counted_once() -> None:
    made = trace(named_workload("gpt", **TEXT))
    assert made.parameter_count == pytest.approx(124.5e6, rel=0.01)


def test_frozen_parameters_get_no_gradient() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))
    for parameter in module[0].parameters():
        parameter.requires_grad_(False)
    made = trace(workload_from(module, torch.zeros(4, 8), torch.zeros(4, 2)))
    assert len(made.gradients) == 2


class ReadsValues(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        return y if y.sum().item() > 0 else 2 * y


def test_a_model_that_cannot_be_traced_is_told_with_operation_and_module() -> None:
    module = nn.Sequential(nn.Linear(4, 4), ReadsValues())
    with pytest.raises(CourseError, match=r"_local_scalar_dense.*in module '1'"):
        trace(workload_from(module, torch.zeros(2, 4)))


def test_a_loss_without_parameters_or_with_many_numbers_is_told() -> None:
    frozen = nn.Linear(2, 2).requires_grad_(False)
    with pytest.raises(CourseError, match=r"A Workload is traced, not 3: make one with workload_from"):
        trace(3)  # type: ignore[arg-type]
    with pytest.raises(CourseError, match="does not depend on any parameter"):
        trace(workload_from(frozen, torch.zeros(2, 2)))
    with pytest.raises(CourseError, match="must be one number"):
        trace(workload_from(nn.Linear(2, 2), torch.zeros(2, 2), loss=lambda output, target: output))


def test_seven_billion_parameters_cost_no_memory() -> None:
    import resource
    import sys

    from course_lib.models.gpt import GPT, GPTConfig

    config = GPTConfig(vocabulary=32000, context=128, layers=32, heads=32, width=4096)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    made = trace(workload_from_gpt(GPT, config))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * (
        1 if sys.platform == "darwin" else 1024
    )
    assert made.parameter_count > 6.5e9
    assert grown < 2 * 2**30


def workload_from_gpt(kind: type[nn.Module], config: object) -> Workload:
    from dataclasses import replace

    base = named_workload("gpt", sequence=128, micro_batch=1)
    return replace(base, model=lambda: kind(config))
