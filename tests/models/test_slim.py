import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from course_lib.errors import CourseError
from course_lib.models.slim import SeparableConv2d, compare, cost_of, pooled_head, separable, smaller_head
from course_lib.models.zoo import DigitsCNN, build


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@settings(max_examples=40)
@given(st.data(), st.booleans())
def test_a_separable_convolution_has_the_shape_of_the_plain_one(data: st.DataObject, bias: bool) -> None:
    limits = ((1, 5), (1, 5), (2, 5), (1, 3), (0, 2), (1, 2))
    channels, out, kernel, stride, padding, dilation = (data.draw(st.integers(*pair)) for pair in limits)
    plain = nn.Conv2d(channels, out, kernel, stride, padding, dilation, bias=bias)
    slim = SeparableConv2d(plain)
    images = torch.rand(2, channels, 12, 15)
    assert slim(images).shape == plain(images).shape
    assert parameters(slim) == channels * kernel**2 + channels * out + (out if bias else 0)


def test_the_first_stays_and_the_original_is_not_touched() -> None:
    model = DigitsCNN()
    before = parameters(model)
    slim = separable(model)
    assert parameters(model) == before
    kinds = [type(slim.features[index]) for index in (0, 3, 7)]
    assert kinds == [nn.Conv2d, SeparableConv2d, SeparableConv2d]
    assert parameters(slim) == before - 9 * 64 * (32 + 64) + 9 * (32 + 64) + 64 * (32 + 64)
    assert isinstance(separable(model, ["features.0"]).features[0], SeparableConv2d)
    one = separable(model, ["*.7"])
    assert [type(one.features[index]) for index in (3, 7)] == [nn.Conv2d, SeparableConv2d]


def test_a_slim_model_trains() -> None:
    torch.manual_seed(0)
    model = separable(DigitsCNN(num_classes=4, dropout=0.0))
    images, labels = torch.rand(12, 1, 8, 8), torch.arange(12) % 4
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(100):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    assert (model(images).argmax(1) == labels).all()


def test_grouped_and_one_by_one_convolutions_are_not_plain() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, groups=2), nn.Conv2d(8, 8, 1))
    with pytest.raises(CourseError, match="the model has 0"):
        separable(model)
    with pytest.raises(CourseError, match="none at all"):
        separable(nn.Sequential(nn.Linear(2, 2)))


def test_vgg_with_a_pooled_head_loses_nine_tenths_of_its_parameters() -> None:
    with torch.device("meta"):
        vgg = build("vgg16")
    slim = pooled_head(vgg)
    assert parameters(vgg) == 138_357_544
    assert parameters(slim) == 14_714_688 + 512 * 1000 + 1000
    report = compare(vgg, slim, torch.empty(2, 3, 224, 224, device="meta"))
    assert report.before.parameter_bytes == 4 * 138_357_544
    assert report.after.forward_flops < report.before.forward_flops
    assert report.after.activation_bytes < report.before.activation_bytes
    assert json.loads(report.to_json())["after"]["parameters"] == parameters(slim)
    assert "× 0.11" in str(report)
    assert "2 × 3 × 224 × 224" in report._repr_html_()


def test_a_smaller_head_keeps_both_ends() -> None:
    with torch.device("meta"):
        alexnet = build("alexnet", num_classes=7)
    slim = smaller_head(alexnet, 100)
    shapes = [(m.in_features, m.out_features) for m in slim.classifier.modules() if isinstance(m, nn.Linear)]
    assert shapes == [(9216, 100), (100, 100), (100, 7)]
    assert slim(torch.empty(2, 3, 224, 224, device="meta")).shape == (2, 7)
    assert [type(m) for m in slim.classifier] == [type(m) for m in alexnet.classifier]


def test_heads_that_do_not_fit_are_refused() -> None:
    with torch.device("meta"):
        resnet, vgg = build("resnet18"), build("vgg11")
    with pytest.raises(CourseError, match="nothing to save"):
        pooled_head(resnet, head="fc")
    with pytest.raises(CourseError, match="has no part 'head'"):
        pooled_head(resnet, head="head")
    with pytest.raises(CourseError, match="not an AdaptiveAvgPool2d"):
        pooled_head(vgg, pool="features")
    with pytest.raises(CourseError, match="no fully connected"):
        pooled_head(vgg, head="features")
    with pytest.raises(CourseError, match="they have: 4096, 4096"):
        smaller_head(vgg, 4096)
    with pytest.raises(CourseError, match="1 wide or more"):
        smaller_head(vgg, 0)
    wrong = nn.ModuleDict({"avgpool": nn.AdaptiveAvgPool2d(2), "classifier": nn.Linear(7, 2)})
    with pytest.raises(CourseError, match="do not divide"):
        pooled_head(wrong)


def test_costs_by_hand() -> None:
    """One convolution of 4 × 4 pictures, one ReLU, one matrix."""
    model = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(48, 5))
    cost = cost_of(model, torch.zeros(10, 2, 4, 4))
    assert cost.parameters == 2 * 3 * 9 + 3 + 48 * 5 + 5
    assert cost.forward_flops == 2 * 10 * (16 * 9 * 2 * 3 + 48 * 5)
    # kept: the picture for the convolution, the ReLU's output for itself and for the matrix
    assert cost.activation_bytes == 4 * 10 * (2 * 16 + 3 * 16)


def test_what_is_kept_is_what_a_real_forward_pass_keeps() -> None:
    model, images = DigitsCNN(), torch.rand(4, 1, 28, 28)
    own = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage()._cdata not in own:
            kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(images)
    real = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    assert cost_of(model, images).activation_bytes == pytest.approx(real, rel=0.02)


def test_separable_convolutions_keep_more_activations() -> None:
    """The price that is seldom told: the picture between the two convolutions is kept as well."""
    model = DigitsCNN()
    report = compare(model, separable(model), torch.zeros(4, 1, 28, 28))
    assert report.after.forward_flops < 0.4 * report.before.forward_flops
    assert report.after.activation_bytes > report.before.activation_bytes


def test_inputs_that_do_not_fit_are_refused() -> None:
    with pytest.raises(CourseError, match=r"shape \(4, 3, 28, 28\)"):
        cost_of(DigitsCNN(), torch.zeros(4, 3, 28, 28))

    class Looks(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images * images.sum().item()

    with pytest.raises(CourseError, match="cannot be counted"):
        cost_of(Looks(), torch.zeros(1, 1))
