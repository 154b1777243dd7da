"""How often is the right fault found, and the right card named, on simulated jobs of eight cards?

Run: python benchmarks/health.py [--traces 600] [--part report|tuning] [--json]

The thresholds of course_lib/diagnose/health_checks.py were chosen on the part "tuning". The part "report" has
other seeds and other ranges: other cards and limits, other noise, weaker and stronger faults, more missing
figures. A third of the traces is healthy. A trace counts as right for a fault when that fault is among those
found; every fault that is found and not there is a false alarm. ``f1`` is over all faults together,
``f1_by_fault`` for each; ``card_named`` is the share of found faults whose card is the right one.
"""

import argparse
import json
from collections import Counter

from course_lib.diagnose.health import Thresholds, by_the_guide, examine
from course_lib.diagnose.simulated_cluster import FAULTS, Fault, Ranges, simulate

TUNING = Ranges()
REPORT = Ranges(
    samples=(90, 420),
    power_cap_w=(250.0, 350.0, 450.0, 1000.0),
    total_mib=(16384.0, 32768.0, 81559.0, 143771.0),
    compute_power=(0.52, 0.98),
    spin_power=(0.24, 0.42),
    communication=(0.01, 0.32),
    input_wait=(0.0, 0.4),
    memory_activity=(10.0, 80.0),
    memory_fill=(0.18, 0.93),
    power_spread=(0.008, 0.04),
    clock_spread=(0.003, 0.02),
    memory_spread=(0.001, 0.04),
    util_noise=(1.0, 12.0),
    power_noise=(0.01, 0.1),
    missing=(0.0, 0.08),
    more_work=(0.09, 1.2),
    first_card_extra=(0.0, 0.14),
    imbalance=(0.14, 0.9),
    clock_loss=(0.05, 0.6),
    starved_wait=(0.09, 1.2),
    guest_mib=(200, 1600),
    duty=(0.5, 1.0),
)
PARTS = {"tuning": (TUNING, 1_000_000), "report": (REPORT, 5_000_000)}


def faults_of(count: int) -> list[Fault | None]:
    """A third healthy, the rest evenly over the faults."""
    healthy = count // 3
    rest = [FAULTS[i % len(FAULTS)] for i in range(count - healthy)]
    return [None] * healthy + list(rest)


def run(part: str, count: int) -> dict[str, object]:
    ranges, first_seed = PARTS[part]
    right: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    false: Counter[str] = Counter()
    named = guide_false = guide_missed = healthy = 0
    wrong: list[dict[str, object]] = []
    for number, fault in enumerate(faults_of(count)):
        case = simulate(first_seed + number, fault, ranges)
        found = {f.kind: f.gpu for f in reversed(examine(case.series))}
        guide = bool(by_the_guide(case.series, Thresholds()))
        if fault is None:
            healthy += 1
            guide_false += guide
        else:
            guide_missed += not guide
            if fault in found:
                right[fault] += 1
                named += found[fault] == case.gpu
            else:
                missed[fault] += 1
        false.update(kind for kind in found if kind != fault)
        if set(found) != ({fault} if fault else set()):
            wrong.append(
                {
                    "seed": first_seed + number,
                    "fault": fault,
                    "size": round(case.size, 3),
                    "found": sorted(found),
                }
            )
    return {
        "part": part,
        "traces": count,
        "healthy": healthy,
        "f1": round(_f1(sum(right.values()), sum(missed.values()), sum(false.values())), 4),
        "f1_by_fault": {f: round(_f1(right[f], missed[f], false[f]), 4) for f in FAULTS},
        "card_named": round(named / max(sum(right.values()), 1), 4),
        "guide_false_alarms": round(guide_false / max(healthy, 1), 3),
        "guide_missed": round(guide_missed / max(count - healthy, 1), 3),
        "wrong": wrong,
    }


def _f1(right: int, missed: int, false: int) -> float:
    return 2 * right / max(2 * right + missed + false, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=int, default=600)
    parser.add_argument("--part", choices=sorted(PARTS), default="report")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = run(options.part, options.traces)
    if options.json:
        print(json.dumps(result, indent=2))
        return
    print(f"{result['traces']} simulated jobs of eight cards ({result['part']}), {result['healthy']} healthy")
    print(f"  F1 of the fault found:   {result['f1']}")
    for fault, score in dict(result["f1_by_fault"]).items():  # type: ignore[call-overload]
        print(f"    {fault:<24} {score}")
    print(f"  right card named:        {result['card_named']}")
    print(
        f"  the guide's thresholds:  {result['guide_false_alarms']} false alarms a healthy job, "
        f"{result['guide_missed']} of the faults without an alarm"
    )


if __name__ == "__main__":
    main()
