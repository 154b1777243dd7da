import pytest
import torch
from torch import nn

from course_lib.errors import CourseError
from course_lib.models.zoo import DigitsCNN
from course_lib.train import levers as module
from course_lib.train.levers import LeverGain, time_levers
from course_lib.train.number_formats.published_speedups import published_speedups


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(4, 1, 8, 8), torch.randint(0, 10, (4,))


def test_each_lever_is_pulled_alone_and_the_model_left_as_it_was() -> None:
    model = DigitsCNN()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = time_levers(model, batch(), rounds=4, budget_s=0.2)
    assert set(found.gains) == {"bf16", "channels_last", "fused optimizer"}
    assert found.left_out == ("TF32",)
    assert "TF32: cannot be tested here" in str(found)
    assert all(gain.low <= gain.times <= gain.high for gain in found.gains.values())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_the_levers_do_what_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, set[str]] = {}
    real = module.TrainingStep

    def watched(
        model: nn.Module, optimizer: torch.optim.Optimizer, *rest: object, **settings: object
    ) -> object:
        def look(layer: nn.Module, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
            facts = seen.setdefault(f"{len(made)}", set())
            facts.add(str(output.dtype))
            if inputs[0].is_contiguous(memory_format=torch.channels_last) and inputs[0].shape[1] > 1:
                facts.add("channels_last")
            if optimizer.param_groups[0]["fused"]:
                facts.add("fused")

        made.append(model)
        convolution = model.features[3]
        assert isinstance(convolution, nn.Conv2d)
        convolution.register_forward_hook(look)
        return real(model, optimizer, *rest, **settings)  # type: ignore[arg-type]

    for lever, fact in (
        ("bf16", "torch.bfloat16"),
        ("channels_last", "channels_last"),
        ("fused optimizer", "fused"),
    ):
        made: list[nn.Module] = []
        seen.clear()
        monkeypatch.setattr(module, "TrainingStep", watched)
        time_levers(DigitsCNN(), batch(), levers=[lever], rounds=3, budget_s=0.01)
        facts = set().union(*seen.values())
        assert fact in facts


@pytest.mark.parametrize(
    ("gain", "shows"),
    [
        (LeverGain("x", 1.5, 1.2, 1.8, 9), True),
        (LeverGain("x", 0.5, 0.4, 0.8, 9), True),
        (LeverGain("x", 1.5, 0.9, 1.8, 9), False),  # the interval holds 1
        (LeverGain("x", 1.01, 1.005, 1.02, 9), False),  # an effect, but too small to matter
    ],
)
def test_an_effect_is_one_beyond_the_noise(gain: LeverGain, shows: bool) -> None:
    assert gain.shows is shows
    assert ("no effect seen" in str(gain)) is not shows


def test_the_interval_of_a_median_holds_it_about_19_times_in_20() -> None:
    generator = torch.Generator().manual_seed(0)
    inside = 0
    for _ in range(400):
        own = (1 + torch.rand(30, generator=generator)).tolist()  # plain is 1, so the median ratio is 1 / 1.5
        gain = module._gain("x", [1.0] * 30, own)
        inside += gain.low <= 1 / 1.5 <= gain.high
    assert 0.92 < inside / 400 <= 1


def test_an_unknown_lever_is_said() -> None:
    with pytest.raises(CourseError, match="channels_last"):
        time_levers(DigitsCNN(), batch(), levers=["turbo"])


def test_what_is_published_names_its_page_and_gains() -> None:
    rows = published_speedups()
    assert len(rows) >= 5
    for row in rows:
        assert row.source.startswith("https://")
        assert row.from_rate > 0
        assert 1 <= row.times < 8
        assert row.from_format == ("tf32" if "A100" in row.card else "fp32")
    first = next(row for row in rows if row.model.startswith("ResNet-50") and "V100" in row.card)
    assert first.times == pytest.approx(3.26, abs=0.02)  # as the page itself rounds it
