"""The replayed allocator against ``torch.cuda.memory_stats`` of the same step. Needs a CUDA card: pytest
-m gpu.
"""

import pytest
import torch

from course_lib.plan.allocator import MIB, CachingAllocator
from course_lib.plan.model_names import named_workload
from course_lib.plan.optimizers import optimizer_rule
from course_lib.plan.replay import compile_program, replay
from course_lib.plan.tracer import trace
from course_lib.plan.workload import Workload

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA card on this machine"),
]


def really(workload: Workload) -> tuple[int, int]:
    """Peak allocated and reserved bytes of two real steps of SGD with momentum and weight decay."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    start_allocated, start_reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    model = workload.model().train().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4)
    for _ in range(2):
        optimizer.zero_grad(set_to_none=True)
        batch = workload.batch(workload.micro_batch)
        args = tuple(torch.zeros(x.shape, dtype=x.dtype, device="cuda") for x in batch.args)
        target = torch.zeros(batch.target.shape, dtype=batch.target.dtype, device="cuda")
        loss = workload.loss(model(*args), target)
        loss.backward()
        del loss
        optimizer.step()
    torch.cuda.synchronize()
    return (
        torch.cuda.max_memory_allocated() - start_allocated,
        torch.cuda.max_memory_reserved() - start_reserved,
    )


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("gpt", {"sequence": 256, "micro_batch": 4}),
        ("vit_b_16", {"micro_batch": 16}),
        ("resnet50", {"micro_batch": 16}),
    ],
)
def test_the_replay_agrees_with_memory_stats(model: str, settings: dict[str, int]) -> None:
    workload = named_workload(model, **settings)
    allocator = CachingAllocator()
    replay(compile_program(trace(workload)), allocator, optimizer_rule("sgd"))
    allocated, reserved = really(workload)
    workspaces = 64 * MIB  # cuBLAS and cuDNN borrow from the same allocator
    assert allocator.allocated_peak <= allocated * 1.02
    assert allocator.allocated_peak == pytest.approx(allocated, rel=0.05, abs=workspaces)
    assert allocator.reserved_peak == pytest.approx(reserved, rel=0.10, abs=2 * workspaces)


def test_single_allocations_are_rounded_and_cached_alike() -> None:
    sizes = [100, 513, MIB, MIB + 1, 5 * MIB, 9 * MIB, 11 * MIB, 40 * MIB]
    torch.cuda.empty_cache()
    base_allocated, base_reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    allocator = CachingAllocator()
    tensors, addresses = [], []
    for size in sizes:
        tensors.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        addresses.append(allocator.allocate(size))
        assert torch.cuda.memory_allocated() - base_allocated == allocator.allocated
        if base_reserved == 0:
            assert torch.cuda.memory_reserved() == allocator.reserved
    for index in (3, 1, 6):
        tensors[index] = torch.empty(0, device="cuda")
        allocator.release(addresses[index])
        assert torch.cuda.memory_allocated() - base_allocated == allocator.allocated
