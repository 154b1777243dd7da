"""Is accumulation equal to the large batch, and are broken steps told from right ones?

Run: python benchmarks/equivalence.py [--json]

- differences: the course's own step (`AccumulatingStep`) in float64 beside the plain large batch, over equal
  and unequal windows, tokens, clipping with a scaler, and on two gloo ranks with equal and unequal shares:
  the largest relative difference of a gradient, and of the weights at the end;
- faults: the broken steps of tests/train/equivalence, each of which must hear exactly its faults;
- right steps: those of the same folder, of which none may hear any.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import torch
from torch import Tensor

from course_lib.train.accumulation import AccumulatingStep, tokens_in
from course_lib.train.equivalence import Reference, prove
from course_lib.train.step import TrainingStep

TESTS = Path(__file__).resolve().parents[1] / "tests" / "train" / "equivalence"


def by_samples(model, loader, optimizer, criterion):  # type: ignore[no-untyped-def]
    step = AccumulatingStep(TrainingStep(model, optimizer, criterion), 4)
    for window in step.windows(loader):
        step(window)


def by_tokens(model, loader, optimizer, criterion):  # type: ignore[no-untyped-def]
    step = AccumulatingStep(TrainingStep(model, optimizer, criterion), 4, count=tokens_in)
    for window in step.windows(loader):
        step(window)


def with_all(model, loader, optimizer, scheduler, scaler):  # type: ignore[no-untyped-def]
    inner = TrainingStep(model, optimizer, grad_scaler=scaler, max_grad_norm=0.1)
    step = AccumulatingStep(inner, 4, scheduler=scheduler)
    for window in step.windows(loader):
        step(window)


def unequal() -> list[tuple[Tensor, Tensor]]:
    """Micro-batches of 1 to 8 samples."""
    return [(torch.randn(n, 12), torch.randint(5, (n,))) for n in (6, 1, 8, 3, 6, 2, 7, 5, 1)]


def differences() -> dict[str, tuple[float, float]]:
    """The largest relative difference of a gradient, and of the weights, by setting."""
    own = {
        "equal windows": (by_samples, Reference(micro_batches=12)),
        "last window partial": (by_samples, Reference(micro_batches=11)),
        "fewer batches than a window": (by_samples, Reference(micro_batches=3)),
        "unequal batches": (by_samples, Reference(make_batches=unequal)),
        "tokens": (by_tokens, Reference(weight_by="tokens")),
        "scaler, clipping and scheduler": (with_all, Reference()),
    }
    found = {}
    for name, (step, reference) in own.items():
        proof = prove(step, reference)
        found[name] = (proof.gradient_difference, proof.weight_difference)
    ranks = {
        "two ranks, 8 and 8 batches": ("by_course", Reference(ranks=(8, 8))),
        "two ranks, 7 and 5": ("by_course", Reference(ranks=(7, 5))),
        "two ranks, 9 and 3": ("by_course", Reference(ranks=(9, 3))),
        "two ranks, tokens, 9 and 4": ("tokens_by_course", Reference(ranks=(9, 4), weight_by="tokens")),
    }
    for name, (function, reference) in ranks.items():
        proof = prove(f"{TESTS / 'rank_steps.py'}:{function}", reference)
        found[name] = (proof.gradient_difference, proof.weight_difference)
    return found  # type: ignore[return-value]  # a proof without figures is a fault, and shows as null


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true")
    settings = parser.parse_args()
    torch.set_num_threads(1)
    sys.path.insert(0, str(TESTS))
    from right_steps import STYLES
    from wrong_steps import FAULTY

    measured = differences()
    begin = time.perf_counter()
    named = {
        step.__name__: {fault.id for fault in prove(step, reference).faults} == kinds
        for step, (reference, kinds) in FAULTY.items()
    }
    clean = {step.__name__: not prove(step, reference).faults for step, reference in STYLES.items()}
    seconds = (time.perf_counter() - begin) / (len(named) + len(clean))
    if settings.json:
        told = {"differences": measured, "faults_named": named, "right_steps_clean": clean}
        print(json.dumps(told | {"seconds_a_proof": seconds}, indent=2))
        return
    for name, (gradient, weights) in measured.items():
        print(f"{name:32} gradients {gradient:.1e}   weights {weights:.1e}")
    print(f"faults named right: {sum(named.values())} of {len(named)}")
    print(f"right steps without a fault: {sum(clean.values())} of {len(clean)}")
    print(f"{1000 * seconds:.0f} ms a proof")


if __name__ == "__main__":
    main()
