"""Which faults can a step have? Their names, and what to write instead."""

from __future__ import annotations

from typing import Final

from course_lib.train.equivalence.proof import Fault

CATALOGUE: Final[dict[str, tuple[str, str]]] = {
    "no_update": (
        "the optimizer never steps",
        "call optimizer.step() once a window, on the optimizer that was handed in",
    ),
    "step_every_micro_batch": (
        "an update after every micro-batch",
        "call optimizer.step() and zero_grad() only after the last micro-batch of a window",
    ),
    "other_window": (
        "another number of micro-batches in an update",
        "give the same number to both, as in Reference(accumulation_steps=8), or correct the step",
    ),
    "first_window_short": (
        "the first update comes too early",
        "count from 1: `if (i + 1) % accumulation_steps == 0`",
    ),
    "optimizer_step_twice": (
        "the same gradient is used for two updates",
        "call optimizer.step() (or scaler.step) once a window",
    ),
    "last_window_dropped": (
        "the last window of an epoch is lost",
        "make an update after the last batch too, divided by the number of micro-batches that it has",
    ),
    "last_window_underweighted": (
        "the last window of an epoch counts too little",
        "divide by the number of micro-batches that the window really has",
    ),
    "batch_used_twice": (
        "a batch is used twice",
        "let each batch pass forward and backward once an epoch",
    ),
    "batch_skipped": ("a batch is never used", "train on every batch that the loader gives"),
    "zero_grad_missing": (
        "old gradients stay: zero_grad is missing",
        "call optimizer.zero_grad() once a window, after the update",
    ),
    "zero_grad_misplaced": (
        "zero_grad throws gradients of the window away",
        "call zero_grad() after optimizer.step(), in the same branch, and nowhere else",
    ),
    "loss_not_divided": (
        "the loss is not divided",
        "divide each loss by the number of micro-batches in the window before backward()",
    ),
    "loss_divided_twice": (
        "the loss is divided twice",
        "divide once; frameworks with an accumulation setting, such as accelerate, do it themselves",
    ),
    "divided_by_world_size": (
        "the loss is divided by the number of ranks too",
        "leave that out: DistributedDataParallel takes the mean over ranks already",
    ),
    "scaled_otherwise": (
        "all gradients are too large or too small by one factor",
        "make the weights of a window's losses add up to 1",
    ),
    "mean_of_means": (
        "a mean of means: small batches count as much as large ones",
        "sum the losses of all samples (or tokens) of the window, and divide by their number",
    ),
    "clip_before_unscale": (
        "gradients are clipped while they carry the loss scale",
        "call scaler.unscale_(optimizer) before clipping",
    ),
    "clip_every_micro_batch": (
        "gradients are clipped after every micro-batch",
        "clip once a window, just before the update (with accelerate: if accelerator.sync_gradients)",
    ),
    "clip_missing": ("gradients are not clipped", "call clip_grad_norm_ just before the update"),
    "gradients_still_scaled": (
        "the update uses gradients that carry the loss scale",
        "call scaler.step(optimizer) in place of optimizer.step()",
    ),
    "loss_not_scaled": (
        "the scaler divides gradients that were never multiplied",
        "call scaler.scale(loss).backward()",
    ),
    "unscale_twice": (
        "unscale_ is called twice for one update",
        "move unscale_, clip, step, update and zero_grad together into the branch of the last micro-batch",
    ),
    "scaler_update_twice": (
        "scaler.update() is called without an update before it",
        "call scaler.update() once, directly after scaler.step(optimizer)",
    ),
    "scaler_update_missing": (
        "scaler.update() is missing",
        "call scaler.update() once, directly after scaler.step(optimizer)",
    ),
    "graph_used_twice": (
        "backward() runs twice through one graph",
        "compute the loss anew for each backward(), inside the loop",
    ),
    "scheduler_too_fast": (
        "the learning rate changes too fast",
        "call scheduler.step() once a window, after the update",
    ),
    "scheduler_too_slow": (
        "the learning rate changes too slowly",
        "call scheduler.step() once a window, after the update",
    ),
    "scheduler_before_update": (
        "the first learning rate is skipped",
        "call scheduler.step() after optimizer.step(), not before it",
    ),
    "no_sync_inverted": (
        "no_sync is the wrong way round",
        "use no_sync() on all micro-batches of a window except the last",
    ),
    "no_sync_without_forward": (
        "no_sync does not cover the forward pass",
        "put forward and backward under no_sync(): what is sent is decided in the forward pass",
    ),
    "never_synchronised": (
        "the ranks never exchange gradients",
        "leave the last micro-batch of each window outside of no_sync()",
    ),
    "ranks_out_of_step": (
        "the ranks wait for each other in vain",
        "let each rank make the same number of updates, also one that has run out of batches "
        "(course_lib.train.accumulation.windows does)",
    ),
    "unexplained": (
        "the gradients differ, and no known fault explains it",
        "compare the step with a plain loop, line by line",
    ),
}  # id -> title, remedy


def fault(kind: str, evidence: str) -> Fault:
    """The fault of that kind, with what was seen."""
    title, remedy = CATALOGUE[kind]
    return Fault(kind, title, evidence, remedy)
