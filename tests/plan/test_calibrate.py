"""A device is measured by running real steps on it, and what is fitted tells those steps again."""

import json
import math
from pathlib import Path

import pytest
import torch
from torch import nn

from course_lib.errors import CourseError
from course_lib.plan.calibrate import Calibration, calibrate, load_calibration
from course_lib.plan.calibration_nets import CalibrationNet, calibration_nets
from course_lib.plan.coefficients import coefficients_from
from course_lib.plan.fit_shares import fit_shares
from course_lib.plan.model_names import named_workload
from course_lib.plan.roofline import Rates
from course_lib.plan.speed import predict
from course_lib.plan.timed_steps import Timed, TimingRecorder, measure_rates, time_net
from course_lib.plan.tracer import trace
from course_lib.plan.work import Work
from course_lib.plan.work_timer import WorkTimer


def small_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip


NET = CalibrationNet("small", small_net, (3, 32, 32))


@pytest.fixture(scope="module")
def made() -> Calibration:
    return calibrate("cpu", batch_size=2, seconds=10, nets=[NET])


def test_every_operation_of_a_step_is_timed() -> None:
    recorder = TimingRecorder("cpu")
    model = small_net()
    with recorder:
        recorder.phase = "forward"
        loss = model(torch.randn(2, 3, 32, 32)).sum()
        recorder.phase = "backward"
        loss.backward()
    assert len(recorder.times) == len(recorder.ops) > 10
    assert all(seconds > 0 for seconds in recorder.times)
    names = [op.name for op in recorder.ops]
    assert names.count("convolution.default") == names.count("convolution_backward.default") == 2


def test_the_time_of_an_operation_is_shared_out_whole() -> None:
    timed = time_net(NET, "cpu", 2, 1.0)
    kinds = {item.work.kind for item in timed}
    assert {"stem.forward.nchw.single", "dense3_s2.data.nchw.single", "optimizer"} <= kinds
    assert all(item.seconds > 0 for item in timed)


def test_a_known_device_is_found_again() -> None:
    """Times made by the law with known shares give these shares back."""
    rates = Rates("made up", 1e10, {"fp32": 1e11})
    works = [
        Work("dense3.forward", "convolution", flops, nbytes)
        for flops in (1e8, 1e9, 1e10)
        for nbytes in (1e6, 1e7, 1e8)
    ]
    timed = [
        Timed(work, math.hypot(work.flops / 1e11 / 0.5, work.nbytes / 1e10 / 0.25) + 1e-6) for work in works
    ]
    timed.append(Timed(Work("nothing", "copy", 0, 0), 1e-6))
    table = coefficients_from("made up", fit_shares([timed], rates))
    share = table.kinds["dense3.forward"]
    assert share.compute == pytest.approx(0.5, rel=0.1)
    assert share.memory == pytest.approx(0.25, rel=0.1)
    timer = WorkTimer("fp32", rates, table)
    for item in timed[:-1]:
        assert timer.time(item.work)[0] == pytest.approx(item.seconds, rel=0.1)


def test_rates_are_those_of_a_real_machine() -> None:
    rates = measure_rates("cpu")
    assert 1e9 < rates.peak("fp32") < 1e14
    assert 1e8 < rates.bandwidth < 1e12
    assert "this machine" in rates.name


def test_it_is_saved_loaded_and_used(made: Calibration, tmp_path: Path) -> None:
    assert load_calibration(tmp_path) is None
    path = made.save(tmp_path)
    assert path == tmp_path / ".course" / "calibration.json"
    found = load_calibration(tmp_path)
    assert found is not None
    assert found.rates == made.rates
    assert found.coefficients.kinds == made.coefficients.kinds
    step = predict(trace(named_workload("cnn", micro_batch=4)), found.rates, coefficients=found.coefficients)
    assert 0 < step.low < step.seconds < step.high < 60
    assert step.card == found.rates.name
    assert "this machine" in str(found)
    assert made.to_json()["kinds"] == len(made.coefficients.kinds)


@pytest.mark.parametrize("broken", ["{", "[]", '{"format": 99}', '{"format": 1}'])
def test_a_broken_file_is_told_in_one_sentence(broken: str, tmp_path: Path) -> None:
    path = tmp_path / ".course" / "calibration.json"
    path.parent.mkdir()
    path.write_text(broken, encoding="utf-8")
    with pytest.raises(CourseError, match="course calibrate"):
        load_calibration(tmp_path)


def test_nonsense_is_refused() -> None:
    with pytest.raises(CourseError, match="no device 'tpu'"):
        calibrate("tpu")
    with pytest.raises(CourseError, match="at least 5 s"):
        calibrate("cpu", seconds=1)


def test_the_networks_build_and_hold_the_usual_kinds() -> None:
    """Traced, not run: each takes its sample, and together they hold what image models and transformers
    do.
    """
    from course_lib.plan.step_work import step_work
    from course_lib.plan.workload import Batch, Workload, default_loss

    kinds: set[str] = set()
    for net in calibration_nets():

        def batch(size: int, shape: tuple[int, ...] = net.sample) -> Batch:
            return Batch((torch.empty(size, *shape),), target=torch.empty(size, dtype=torch.long))

        work = step_work(trace(Workload(net.name, net.build, batch, default_loss, micro_batch=2)))
        kinds |= {piece.kind.split(".")[0] for piece, _, _ in work.pieces}
    wanted = {
        "stem", "stem_patch", "patch", "dense3", "dense3_s2", "pointwise", "pointwise_s2", "depthwise3",
        "depthwise5", "depthwise7", "depthwise3_s2", "linear", "batch_norm", "layer_norm", "max_pool",
        "average_pool", "math", "plain", "join",
    }  # fmt: skip
    assert wanted <= kinds
    assert any(kind.startswith("grouped") for kind in kinds)
    assert any("attention" in kind for kind in kinds)


def test_the_saved_file_is_plain_json(made: Calibration, tmp_path: Path) -> None:
    data = json.loads(made.save(tmp_path).read_text(encoding="utf-8"))
    assert data["device"] == "cpu"
    assert data["rates"]["peaks"]["fp32"] == made.rates.peaks["fp32"]
