import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from course_lib.errors import CourseError
from course_lib.models.zoo import DigitsCNN
from course_lib.train.number_formats.exponents import histogram
from course_lib.train.number_formats.value_ranges import value_ranges


def batch(samples: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.rand(samples, 1, 8, 8), torch.randint(0, 10, (samples,))


def test_the_numbers_are_those_of_the_step() -> None:
    model = nn.Sequential(nn.Linear(3, 2, bias=False), nn.ReLU())
    inputs, targets = torch.tensor([[1.0, 2.0, 4.0]]), torch.tensor([[0.5, 0.25]])
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, 0.0, 0.0], [0.0, -1.0, 0.0]]))
    found = value_ranges(model, (inputs, targets), mse_loss)
    # Activations: 1 and -2; after the ReLU 1 and 0. Gradients by hand: d loss / d out = out - target, halves.
    assert found.of("activations", "0") == histogram(torch.tensor([1.0, -2.0]))
    assert found.of("activations", "1") == histogram(torch.tensor([1.0, 0.0]))
    assert found.of("activation gradients", "1") == histogram(torch.tensor([0.5, -0.25]))
    assert found.of("activation gradients", "0") == histogram(torch.tensor([0.5, 0.0]))
    assert found.of("weight gradients") == histogram(torch.tensor([0.5, 1.0, 2.0, 0.0, 0.0, 0.0]))


def test_bf16_is_eight_times_as_coarse_as_fp16_where_both_reach() -> None:
    found = value_ranges(DigitsCNN(), batch())
    for one in found.ranges:
        if one.kind == "activations" and one.histogram.total > 1000:
            assert 6 < one.bf16_error / one.fp16_error < 10
            assert one.bf16_error < 2.0**-8  # at most half a step


def test_a_smaller_loss_has_smaller_gradients_and_more_of_them_vanish() -> None:
    def tiny(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(output, target) * 2.0**-16

    plain, small = (
        value_ranges(DigitsCNN(dropout=0), batch()),
        value_ranges(DigitsCNN(dropout=0), batch(), tiny),
    )
    gradients = small.of("activation gradients")
    assert gradients.becomes_zero("fp16") > 0.5 > plain.of("activation gradients").becomes_zero("fp16")
    assert gradients.becomes_zero("fp16", 2.0**16) < 0.1


def test_the_model_is_not_changed() -> None:
    model = DigitsCNN()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = value_ranges(model, batch())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())
    assert "×2^16" in str(found)
    assert "&#x27;" not in found._repr_html_()
    assert sum(one["total"] for one in found.to_json() if one["kind"] == "weight gradients") == sum(
        parameter.numel() for parameter in model.parameters()
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_model_in_another_type_is_looked_at_in_float32(dtype: torch.dtype) -> None:
    inputs, targets = batch()
    found = value_ranges(DigitsCNN().to(dtype), (inputs.to(dtype), targets))
    assert found.of("activations").nonzero > 1000


def test_what_does_not_fit_is_said() -> None:
    with pytest.raises(CourseError, match="do not fit together"):
        value_ranges(nn.Linear(5, 2), batch())
    with pytest.raises(CourseError, match="'nonsense'"):
        value_ranges(DigitsCNN(), batch()).of("activations", "nonsense")
