"""On a real card: live figures agree with nvidia-smi's own, in each of its formats."""

import shutil
import subprocess

import pytest

from course_lib.diagnose.cards import diagnose
from course_lib.diagnose.gpu_status import GpuStatus, gpu_statuses, live_status

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no nvidia-smi: no NVIDIA card here"),
]
QUERY = ",".join(
    [
        "index",
        "name",
        "uuid",
        "memory.used",
        "memory.total",
        "utilization.gpu",
        "power.draw",
        "enforced.power.limit",
        "temperature.gpu",
        "clocks.sm",
        "clocks.max.sm",
        "clocks_throttle_reasons.active",
        "pcie.link.width.current",
        "pcie.link.width.max",
    ]
)
FORMS = {
    "table": [],
    "query": ["-q"],
    "xml": ["-q", "-x"],
    "csv": [f"--query-gpu={QUERY}", "--format=csv"],
    "dmon": ["dmon", "-c", "2", "-s", "pucm"],
}


def printed(arguments: list[str]) -> GpuStatus:
    done = subprocess.run(
        ["nvidia-smi", *arguments], capture_output=True, check=True, encoding="utf-8", timeout=60
    )
    statuses = gpu_statuses(done.stdout)
    assert len(statuses) == 1
    return statuses[0]


@pytest.fixture(scope="module")
def held() -> object:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no CUDA card")
    return torch.zeros(512, 2**20, dtype=torch.uint8, device="cuda")  # 512 MiB that must show


def test_live_figures(held: object) -> None:
    status = live_status()
    assert status.driver_version
    assert status.gpus
    for gpu in status.gpus:
        assert gpu.name
        assert gpu.total_mib
        assert 0 <= (gpu.used_mib or 0) <= gpu.total_mib
    assert max(gpu.used_mib or 0 for gpu in status.gpus) >= 512
    diagnose(status)


@pytest.mark.parametrize("form", FORMS)
def test_each_format_agrees_with_the_driver(form: str, held: object) -> None:
    live, shown = live_status(), printed(FORMS[form])
    assert len(shown.gpus) == len(live.gpus)
    for ours, theirs in zip(live.gpus, shown.gpus, strict=True):
        assert theirs.index == ours.index
        assert theirs.used_mib == pytest.approx(
            ours.used_mib, abs=700
        )  # reserved memory counts in some forms
        if form != "dmon":
            assert theirs.total_mib == pytest.approx(ours.total_mib, abs=1)
        if form in ("query", "xml", "csv"):
            assert theirs.max_sm_clock_mhz == ours.max_sm_clock_mhz
            assert theirs.pcie_width_max == ours.pcie_width_max
            assert theirs.throttle_reasons is not None
    diagnose(shown)
