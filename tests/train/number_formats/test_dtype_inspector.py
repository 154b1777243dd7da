import pytest
import torch
from torch import nn

from course_lib.errors import CourseError
from course_lib.models.gpt import GPT, GPTConfig
from course_lib.models.zoo import DigitsCNN
from course_lib.train.number_formats.dtype_inspector import inspect_dtypes


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.rand(4, 1, 8, 8), torch.randint(0, 10, (4,))


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_products_are_short_and_the_loss_is_not(name: str) -> None:
    found = inspect_dtypes(DigitsCNN(), batch(), name)  # type: ignore[arg-type]
    forward = found.by_operation()
    assert forward["convolution"] == {name: 3}
    assert forward["addmm"] == {name: 1}
    assert found.by_layer()["loss"] == {"fp32": 2}
    assert set(found.kept_in_fp32()) == {"_log_softmax", "nll_loss_forward"}
    assert found.by_operation("backward")["convolution_backward"] == {name: 3}
    # One conversion for each weight and the first input, and the way back for the weights' gradients.
    assert len(found.casts) >= 6


def test_in_fp32_nothing_is_converted() -> None:
    found = inspect_dtypes(DigitsCNN(), batch(), "fp32")
    assert not found.casts
    assert {kind for types in found.by_operation().values() for kind in types} == {"fp32"}


def test_the_layer_of_an_operation_is_the_one_that_ran_it() -> None:
    found = inspect_dtypes(DigitsCNN(), batch(), "bf16")
    where = {
        operation.name: operation.layer for operation in found.operations if operation.phase == "forward"
    }
    assert where["addmm"] == "classifier.1"
    assert where["max_pool2d_with_indices"] == "features.6"


def test_a_gpt_keeps_layer_norm_and_the_softmax_of_its_loss_in_fp32() -> None:
    model = GPT(GPTConfig(vocabulary=16, context=4, layers=1, heads=2, width=8))
    ids = torch.randint(0, 16, (2, 4))

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())

    found = inspect_dtypes(model, (ids, ids), "bf16", loss)
    assert "_log_softmax" in found.kept_in_fp32()
    assert set(found.by_operation()["addmm"]) == {"bf16"}


def test_the_model_is_not_changed_and_has_no_hooks_left() -> None:
    model = DigitsCNN()
    mean = model.features[1].running_mean
    assert mean is not None
    before = mean.clone()
    found = inspect_dtypes(model, batch(), "bf16")
    assert torch.equal(mean, before)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert "convolution" in str(found)
    assert found.to_json()["forward"]["convolution"] == {"bf16": 3}


def test_what_does_not_fit_is_said() -> None:
    with pytest.raises(CourseError, match="do not fit together"):
        inspect_dtypes(nn.Linear(5, 2), batch(), "bf16")
