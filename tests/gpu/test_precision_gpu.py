"""Number formats on a real card: what is set really changes the arithmetic, and a choice is measured."""

import pytest
import torch
from torch import nn
from torch.optim import AdamW

from course_lib.train.number_formats.dtype_inspector import inspect_dtypes
from course_lib.train.number_formats.float32_products import float32_products
from course_lib.train.number_formats.format_speed import matmul_speedups
from course_lib.train.precision import FORMATS, choose
from course_lib.train.step import TrainingStep

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA card"),
]


def test_all_formats_are_measured_and_the_fast_one_is_chosen() -> None:
    measured = matmul_speedups("cuda")
    assert set(measured) == {"tf32", "bf16", "fp16"}
    chosen = choose("cuda")
    assert chosen.format == "fp32" or measured[chosen.format] > 1


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability() < (8, 0), reason="TF32 needs Ampere"
)
def test_tf32_rounds_what_is_multiplied_and_ieee_does_not() -> None:
    torch.manual_seed(0)
    left, right = (torch.randn(512, 512, device="cuda", dtype=torch.float64) for _ in range(2))
    exact = left @ right
    off = {}
    for how in ("ieee", "tf32"):
        with float32_products(how):  # type: ignore[arg-type]
            off[how] = float(((left.float() @ right.float()).double() - exact).norm() / exact.norm())
    assert off["ieee"] < 1e-6
    assert 1e-5 < off["tf32"] < 1e-2


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("fused", [False, True])
def test_a_step_in_each_format_learns(name: str, fused: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4)).cuda()
    optimizer = AdamW(model.parameters(), lr=1e-2, fused=fused)
    step = TrainingStep(model, optimizer, precision=name, max_grad_norm=10.0)  # type: ignore[arg-type]
    batch = torch.randn(64, 16), torch.randint(0, 4, (64,))
    losses = [float(step(batch)) for _ in range(60)]
    assert losses[-1] < losses[0] / 2
    if name == "fp16":
        before = [parameter.clone() for parameter in model.parameters()]
        step((batch[0] * 30_000, batch[1]))
        assert step.skipped
        assert all(map(torch.equal, before, model.parameters()))


def test_autocast_on_a_card_shortens_products_and_keeps_the_loss() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)).cuda()
    batch = torch.randn(4, 8), torch.randint(0, 8, (4,))
    found = inspect_dtypes(model, batch, "fp16")
    assert found.by_operation()["addmm"] == {"fp16": 1}
    assert set(found.kept_in_fp32()) >= {"native_layer_norm", "_log_softmax"}
