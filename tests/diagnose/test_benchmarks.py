"""The runners of benchmarks/ that judge diagnosis: damaged input, cases in a folder, simulated clusters."""

import importlib.util
import json
import random
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", BENCHMARKS / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_two_thousand_damaged_pastes() -> None:
    fuzz = load("fuzz_diagnose")
    texts = fuzz.samples([fuzz.SAMPLES])
    rng = random.Random(20240501)
    known = 0
    for _ in range(2000):
        text = fuzz.mutated(rng, texts)[:10_000]
        try:
            known += fuzz.check(text).known
        except Exception as error:
            pytest.fail(f"{type(error).__name__}: {error} for {text[:500]!r}")
    assert known > 800  # damaged, not destroyed


def test_an_invented_size_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    fuzz = load("fuzz_diagnose")
    text = "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity)"
    read_well = fuzz.explain(text)
    monkeypatch.setattr(fuzz, "explain", lambda _: read_well)
    fuzz.check(text)
    with pytest.raises(AssertionError, match="does not stand"):
        fuzz.check(text.replace("8.00", "9.00"))


CASE = {
    "id": "901",
    "group": "a",
    "kind": "oom",
    "expected": {
        "extract": {
            "backend": "cuda",
            "gpu_index": 0,
            "free": None,
            "tried_to_allocate": {"raw": "9.00 GiB", "mib": 9216.0},
            "total_capacity": {"raw": "8.00 GiB", "mib": 8192.0},
        },
        "derived": {},
        "diagnosis": {"id": "oom.single_request_too_large"},
        "first_remedy": "Find the line that asks for it and cut what it scales with: batch or image size.",
        "wrong_advice": ["torch.cuda.empty_cache()"],
    },
}
TEXT = (
    "CUDA out of memory. Tried to allocate 9.00 GiB (GPU 0; 8.00 GiB total capacity; 1.00 GiB already "
    "allocated)"
)


def test_a_case_is_scored_and_a_wrong_expectation_fails(tmp_path: Path) -> None:
    cases = load("cases")
    (tmp_path / "901_oom.json").write_text(json.dumps(CASE), encoding="utf-8")
    (tmp_path / "901_oom.txt").write_text(TEXT, encoding="utf-8")
    (good,) = cases.run(tmp_path, "a")
    assert (good.figures, good.figures_right, good.diagnosis, good.remedy) == (5, 5, True, True)
    assert good.wrong_advice == []
    assert cases.run(tmp_path, "b") == []

    wrong = json.loads(json.dumps(CASE))
    wrong["expected"]["extract"]["free"] = {"raw": "1.00 GiB", "mib": 1024.0}
    wrong["expected"]["extract"]["total_capacity"]["mib"] = 8000.0
    wrong["expected"]["diagnosis"]["id"] = "oom.capacity"
    wrong["expected"]["first_remedy"] = "Reboot the machine and reinstall drivers."
    wrong["expected"]["wrong_advice"] = ["find the line and cut what it scales with"]
    bad = cases.score(wrong, TEXT)
    assert bad.figures_right == 3
    assert not bad.diagnosis
    assert not bad.remedy
    assert bad.wrong_advice


def test_clusters_are_simulated_apart_for_tuning_and_report() -> None:
    health = load("health")
    assert health.TUNING != health.REPORT
    result = health.run("report", 60)
    assert result["healthy"] == 20
    assert result["f1"] >= 0.9
    assert result["card_named"] >= 0.95
