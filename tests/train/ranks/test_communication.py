"""Communication of real ranks: what the exchange adds to a step, and buckets that are sent before the end."""

import json
from typing import Any

import pytest
import torch

from course_lib.errors import CourseError
from course_lib.train.distributed import process_group
from course_lib.train.ranks.communication import BucketTrace, CommunicationShare, measure_communication
from course_lib.train.ranks.emulated_network import EmulatedNetwork
from course_lib.train.ranks.launch import launch_in_turn
from course_lib.train.ranks.link import LinkBenchmark, measure_link

EMULATED = "course_lib.train.ranks.communication_rank:measure_emulated"
SCALING = "course_lib.train.ranks.communication_rank:measure_scaling"


@pytest.fixture(scope="module")
def measured() -> list[list[dict[str, Any]]]:
    heavy = {"compute_s": 0.004, "gradient_mib": 32, "layers": 1, "bucket_cap_mb": 1024, "pairs": 5}
    light = {
        "compute_s": 0.1,
        "gradient_mib": 0.01,
        "layers": 4,
        "bucket_cap_mb": 0.002,
        "pairs": 3,
        "trace": True,
    }
    link = {"compute_s": 0.0, "gradient_mib": 1, "pairs": 2, "repeats": 5}
    calls = [(EMULATED, heavy), (EMULATED, light), (SCALING, link)]
    return launch_in_turn(calls, time_limit_s=600, on_line=None)


def test_much_to_send_and_little_to_compute_shows_and_the_reverse_does_not(measured: Any) -> None:
    heavy, light = (CommunicationShare(**answers[0]["share"]) for answers in measured[:2])
    assert heavy.share > 0.2
    assert heavy.share > light.share
    assert heavy.gradient_bytes == 32 * 2**20
    assert heavy.sent_bytes == 32 * 2**20, "two ranks: all of it, once"
    low, high = heavy.share_interval
    assert 0 <= low <= heavy.share <= high <= 1
    assert measured[0][0] == measured[0][1], "all ranks know the same"
    assert light.without_s >= 0.1


def test_buckets_are_sent_while_the_backward_pass_runs(measured: Any) -> None:
    trace = BucketTrace(**measured[1][0]["trace"])
    assert len(trace.sizes) > 1
    assert sum(trace.sizes) == 4 * (round(0.01 * 2**20) // 4 // 4) * 4
    rests_s = 3 * 0.1 / 4 * 2 / 3  # of the layers that the backward pass comes to after the first one
    assert trace.begin_s[0] < trace.backward_s - 0.9 * rests_s, "the first one leaves long before the end"
    assert all(begin < end for begin, end in zip(trace.begin_s, trace.end_s, strict=True))


def test_a_link_has_a_latency_and_a_bandwidth(measured: Any) -> None:
    link = LinkBenchmark(**measured[2][0]["link"])
    assert link.world_size == 2
    assert 1e6 < link.bandwidth < 1e12
    assert 0 <= link.latency_s < 1
    assert len(link.sizes) == len(link.seconds) == len(link.low_s)


def test_a_share_prints_and_turns_into_json() -> None:
    share = CommunicationShare(4, "gloo", 0.05, 0.04, 0.01, 0.008, 0.012, 2**20, 10)
    assert share.share == pytest.approx(0.2)
    assert share.sent_bytes == 1.5 * 2**20
    assert "20 % of a step (16 % to 24 %)" in str(share)
    assert "4, over gloo" in share._repr_html_()
    assert json.loads(share.to_json())["share"] == pytest.approx(0.2)
    assert CommunicationShare(2, "gloo", 0.05, 0.06, -0.01, -0.02, 0.0, 8, 1).share == 0


def test_alone_nothing_is_exposed_and_weights_are_put_back() -> None:
    with process_group(device="cpu") as ranks:
        model = ranks.wrap(torch.nn.Linear(3, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        before = [p.detach().clone() for p in model.parameters()]

        def step() -> None:
            optimizer.zero_grad()
            model(torch.rand(4, 3)).sum().backward()
            optimizer.step()

        share = measure_communication(model, step, pairs=2, warmup=1)
        assert share.sent_bytes == 0
        assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
        for pairs, warmup in ((0, 1), (1, 0)):
            with pytest.raises(CourseError, match="At least one pair"):
                measure_communication(model, step, pairs=pairs, warmup=warmup)
        with pytest.raises(CourseError, match="between two ranks"):
            measure_link()
        with pytest.raises(CourseError, match="two sizes"):
            measure_link([4])


def test_an_emulated_network_takes_its_time_and_has_gradients() -> None:
    network = EmulatedNetwork(compute_s=0.0, gradient_bytes=800, layers=2)
    network(torch.zeros(1, requires_grad=True)).sum().backward()
    assert [p.grad is not None and p.grad.nbytes for p in network.parameters()] == [400, 400]
    for wrong in ({"layers": 0}, {"compute_s": -1.0}, {"gradient_bytes": 4}):
        with pytest.raises(CourseError, match="emulated network needs"):
            EmulatedNetwork(**({"compute_s": 0.0, "gradient_bytes": 800, "layers": 2} | wrong))  # type: ignore[arg-type]
