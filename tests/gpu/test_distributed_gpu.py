"""Ranks on real cards, over NCCL: the twenty lines train, and the exchange is measured without a profiler."""

import pytest
import torch

from course_lib.train.ranks.communication import CommunicationShare
from course_lib.train.ranks.launch import launch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA card"),
]


def cards() -> int:
    return torch.cuda.device_count()


def test_the_twenty_lines_train_on_every_card() -> None:
    run = launch("course_lib.train.ranks.ddp_twenty:main", cards(), on_line=None, time_limit_s=120)
    assert len(set(run.values)) == 1, "all ranks know the same loss"
    assert run.values[0] < 1.0


def test_the_exchange_is_measured_over_nccl() -> None:
    target = "course_lib.train.ranks.communication_rank:measure_network"
    run = launch(target, cards(), arguments={"width": 2048}, on_line=None, time_limit_s=120)
    share = CommunicationShare(**run.values[0])
    assert share.backend == "nccl"
    assert 0 <= share.share < 1
    if cards() == 1:
        assert share.sent_bytes == 0
        assert abs(share.exposed_s) < share.with_s / 2


def test_a_rank_without_a_card_is_told_so() -> None:
    run = launch(
        "course_lib.train.ranks.ddp_twenty:main", cards() + 1, on_line=None, check=False, time_limit_s=120
    )
    assert run.first_error is not None
    assert f"needs card {cards()}, and there are {cards()}" in run.first_error.text
