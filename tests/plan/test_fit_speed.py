"""The script that fits the shares computes the law of ``predict``, and sees no case that it leaves out."""

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from course_lib.accelerators import find_accelerator
from course_lib.errors import CourseError
from course_lib.plan.coefficients import coefficients_from
from course_lib.plan.model_names import named_workload
from course_lib.plan.speed import predict
from course_lib.plan.step_work import StepWork, step_work
from course_lib.plan.tracer import trace

pytest.importorskip("timm", reason="the public measurements are of timm's models")
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def bench() -> Any:
    sys.path.insert(0, str(BENCHMARKS))
    import speed_cases
    import speed_model

    yield speed_cases, speed_model
    sys.path.remove(str(BENCHMARKS))


def work(name: str, batch: int, inference: bool = False) -> StepWork:
    settings = {"precision": "fp16", "channels_last": True, "micro_batch": batch}
    return step_work(trace(named_workload(name, **settings), inference=inference))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def found(bench: Any) -> list[Any]:
    cases, _ = bench
    train = cases.table_of(Path("train_rtx3090_amp_nhwc_timm.csv"))
    other = cases.table_of(Path("infer_rtx4090_amp_timm.csv"))
    made = []
    for name in ("resnet18", "mobilenet_v2", "regnet_x_400mf"):
        made.append(cases.Case(name, name, train, 0.1, work(name, 64)))
        made.append(cases.Case(name, name, other, 0.05, work(name, 64, inference=True)))
    return made


def model_of(bench: Any, found: list[Any]) -> Any:
    _, speed_model = bench
    return speed_model.SpeedModel(speed_model.Arrays(found), speed_model.Settings(iterations=40))


def test_the_fitted_law_is_the_one_that_predicts(bench: Any, found: list[Any]) -> None:
    _, speed_model = bench
    model = model_of(bench, found)
    torch.manual_seed(0)
    x = 0.5 * torch.randn_like(model.zero)
    told = model.log_seconds(x).exp()
    for case, seconds in zip(found, told, strict=True):
        row = speed_model.as_row(model, x, case.table.stack)
        row |= {"intervals": dict.fromkeys(("reference", "reference, rare kinds", "other card"), (0.5, 2.0))}
        table = coefficients_from("test", row | {"note": ""})
        step = predict(case.work, find_accelerator(case.table.card), coefficients=table)
        assert step.seconds == pytest.approx(float(seconds), rel=2e-3)
        assert not step.warnings


def test_known_shares_are_found_again(bench: Any, found: list[Any]) -> None:
    model = model_of(bench, found)
    torch.manual_seed(1)
    model.arrays.truth = model.log_seconds(0.7 * torch.randn_like(model.zero)).detach()
    before = (model.log_seconds(model.zero) - model.arrays.truth).abs()
    after = (model.log_seconds(model.fit(torch.ones(len(found)))) - model.arrays.truth).abs()
    assert float(after.max()) < 0.02
    assert float(before.median()) > 3 * float(after.median())


def test_a_case_left_out_is_not_looked_at(bench: Any, found: list[Any]) -> None:
    model = model_of(bench, found)
    weight = torch.ones(len(found))
    weight[:2] = 0
    first = model.fit(weight)
    model.arrays.truth[:2] += 3.0
    assert torch.equal(model.fit(weight), first)


def test_folds_split_no_family_and_hold_every_case(bench: Any) -> None:
    _, speed_model = bench
    groups = [name for number, name in enumerate("abcdefgh") for _ in range(number + 1)]
    fold = speed_model.folds(groups, 3)
    assert set(fold) == {0, 1, 2}
    for name in set(groups):
        assert len({number for number, group in zip(fold, groups, strict=True) if group == name}) == 1


def test_a_scaled_forward_pass_is_that_of_the_larger_batch(bench: Any) -> None:
    cases, _ = bench
    card = find_accelerator("RTX 3090")
    small, large = (work("resnet18", batch, inference=True) for batch in (64, 256))
    grown = cases.scaled(small, 256)
    assert predict(grown, card).seconds == pytest.approx(predict(large, card).seconds, rel=0.02)


def test_work_is_kept_and_read_again(bench: Any, found: list[Any], tmp_path: Path) -> None:
    cases, _ = bench
    kept = found[0].work
    cases.save_work(tmp_path / "work.json.gz", kept, 123)
    again, parameters = cases.load_work(tmp_path / "work.json.gz")
    assert parameters == 123
    card = find_accelerator("RTX 3090")
    assert predict(again, card).seconds == pytest.approx(predict(kept, card).seconds, rel=1e-5)


def test_the_name_of_a_table_tells_what_it_holds(bench: Any) -> None:
    cases, _ = bench
    table = cases.table_of(Path("infer_rtx4090_nchw_amp_timm.csv"))
    assert (table.mode, table.card, table.channels_last) == ("infer", "RTX 4090", False)
    table = cases.table_of(Path("train_rtx3090_amp_nhwc_timm.csv"))
    assert (table.mode, table.card, table.channels_last) == ("train", "RTX 3090", True)
    with pytest.raises(CourseError, match="does not tell"):
        cases.table_of(Path("speeds.csv"))


def test_a_card_of_best_value_is_named_right_and_wrong(bench: Any) -> None:
    import lambda_tables

    single = {"job": {"A": 100.0, "B": 150.0}}
    prices = {"A": 1000.0, "B": 2000.0}  # A gives 0.1 a dollar, B 0.075
    assert lambda_tables.best_value(single, {("job", "A"): 90.0, ("job", "B"): 140.0}, prices) == 1.0
    assert lambda_tables.best_value(single, {("job", "A"): 60.0, ("job", "B"): 190.0}, prices) == 0.0


def test_the_interval_holds_nine_tenths(bench: Any) -> None:
    import fit_speed

    low, high = fit_speed.interval([0.01 * number for number in range(-50, 51)])
    assert low == pytest.approx(math.exp(-0.45), abs=0.02)
    assert high == pytest.approx(math.exp(0.45), abs=0.02)


def test_merged_ideas_hold_the_families_together(bench: Any, found: list[Any]) -> None:
    case = replace(found[0], family="resnet")
    assert case.idea == replace(found[0], family="regnet").idea == "residual networks"
    assert replace(found[0], family="unheard_of").idea == "unheard_of"


def test_the_faster_memory_format_is_named_right_and_wrong(bench: Any, found: list[Any]) -> None:
    import speed

    one = found[0]
    slower = replace(one, seconds=one.seconds * 1.2)
    right = [(slower, (2.0, 1.0, 3.0))], [(one, (1.0, 0.5, 2.0))]
    assert speed.faster_of_two(*right)["faster_named"] == 1
    wrong = [(slower, (1.0, 0.5, 2.0))], [(one, (2.0, 1.0, 3.0))]
    assert speed.faster_of_two(*wrong)["faster_named"] == 0
    # Twice the images in twice the time is a draw, not a slower step; nothing is apart by 5 %.
    larger = replace(
        one, seconds=2.02 * one.seconds, work=replace(one.work, batch_size=2 * one.work.batch_size)
    )
    draw = speed.faster_of_two([(larger, (2.0, 1.0, 3.0))], [(one, (1.0, 0.5, 2.0))])
    assert draw["models_in_both"] == 1
    assert draw["models_apart"] == 0
