"""Faulty ways to accumulate, each with the kinds of fault it has, after mistakes that people made."""

import torch
from torch.nn.functional import cross_entropy

from course_lib.train.equivalence import Reference

K = 4
TOKENS = Reference(weight_by="tokens")
EVEN = Reference(micro_batches=12)


def true_length(at, loader):
    return min(K, len(loader) - at // K * K)


def ends(i, loader):
    return (i + 1) % K == 0 or i + 1 == len(loader)


def loss_not_divided(model, loader, optimizer):
    for i, (x, y) in enumerate(loader):
        cross_entropy(model(x), y).backward()
        if ends(i, loader):
            optimizer.step()
            optimizer.zero_grad()


def loss_divided_twice(model, window, optimizer):
    optimizer.zero_grad()
    for x, y in window:
        loss = cross_entropy(model(x), y) / len(window)
        (loss / len(window)).backward()
    optimizer.step()


def zero_grad_forgotten(model, loader, optimizer):
    for i, (x, y) in enumerate(loader):
        (cross_entropy(model(x), y) / true_length(i, loader)).backward()
        if ends(i, loader):
            optimizer.step()


def zero_grad_forgotten_with_scaler(model, loader, optimizer, scaler):
    for x, y in loader:
        # optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def zero_grad_once_an_epoch(model, loader, optimizer):
    optimizer.zero_grad()
    for i, (x, y) in enumerate(loader):
        (cross_entropy(model(x), y) / true_length(i, loader)).backward()
        if ends(i, loader):
            optimizer.step()


def zero_grad_before_the_last_backward(model, loader, optimizer):
    for iteration, (x, y) in enumerate(loader, start=1):
        model.train()
        if iteration % K == 0:
            optimizer.zero_grad()
        loss = cross_entropy(model(x), y) / K
        loss.backward()
        if iteration % K == 0:
            optimizer.step()


def zero_grad_every_micro_batch(model, loader, optimizer):
    for i, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        (cross_entropy(model(x), y) / true_length(i, loader)).backward()
        if ends(i, loader):
            optimizer.step()


def zero_grad_between_backward_and_step(model, loader, optimizer):
    for i, (x, y) in enumerate(loader):
        (cross_entropy(model(x), y) / true_length(i, loader)).backward()
        if ends(i, loader):
            optimizer.zero_grad()
            optimizer.step()


def zero_grad_before_the_step_of_the_scaler(model, loader, optimizer, scaler):
    for i, (x, y) in enumerate(loader):
        scaler.scale(cross_entropy(model(x), y) / true_length(i, loader)).backward()
        if ends(i, loader):
            optimizer.zero_grad()
            scaler.step(optimizer)
            scaler.update()


def last_window_dropped(model, loader, optimizer, scheduler):
    for step, (x, y) in enumerate(loader):
        loss = cross_entropy(model(x), y) / K
        loss.backward()
        if (step + 1) % K == 0:
            optimizer.step()
            scheduler.step()
            model.zero_grad()


def last_window_dropped_and_forgotten(model, loader, optimizer):
    optimizer.zero_grad()
    for step, (x, y) in enumerate(loader):
        (cross_entropy(model(x), y) / K).backward()
        if (step + 1) % K == 0:
            optimizer.step()
            optimizer.zero_grad()


def last_batches_never_seen(model, loader, optimizer):
    for i, (x, y) in enumerate(loader):
        if i == len(loader) // K * K:
            break
        (cross_entropy(model(x), y) / K).backward()
        if (i + 1) % K == 0:
            optimizer.step()
            optimizer.zero_grad()


def last_window_divided_by_k(model, loader, optimizer):
    for i, (x, y) in enumerate(loader):
        (cross_entropy(model(x), y) / K).backward()
        if ends(i, loader):
            optimizer.step()
            optimizer.zero_grad()


def undivided_and_dropped(model, loader, optimizer):
    accum, running = 4, 0.0
    for i, (x, y) in enumerate(loader):
        loss = cross_entropy(model(x), y)
        loss.backward()
        running += loss.item()
        if (i + 1) % accum == 0:
            optimizer.step()
            optimizer.zero_grad()
            running = 0.0


def mean_over_tokens_of_each_batch(model, window, optimizer, criterion):
    optimizer.zero_grad()
    for x, y in window:
        (criterion(model(x), y) / len(window)).backward()
    optimizer.step()


def sum_over_tokens_not_divided(model, window, optimizer):
    optimizer.zero_grad()
    for x, y in window:
        cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum").backward()
    optimizer.step()


def padding_counted(model, window, optimizer):
    optimizer.zero_grad()
    total = sum(y.numel() for _, y in window)
    for x, y in window:
        (cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum") / total).backward()
    optimizer.step()


def short_batch_counts_as_a_long_one(model, window, optimizer):
    optimizer.zero_grad()
    for x, y in window:
        (cross_entropy(model(x), y) / len(window)).backward()
    optimizer.step()


def clip_before_unscale(model, loader, optimizer, scaler):
    for i, (x, y) in enumerate(loader):
        scaler.scale(cross_entropy(model(x), y) / true_length(i, loader)).backward()
        if ends(i, loader):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


def unscale_commented_out(model, loader, optimizer, scaler, scheduler):
    for i, (x, y) in enumerate(loader):
        scaler.scale(cross_entropy(model(x), y) / true_length(i, loader)).backward()
        if ends(i, loader):
            # scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            optimizer.zero_grad()


def unscale_every_micro_batch(model, loader, optimizer, scaler):
    for i, (x, y) in enumerate(loader):
        scaler.scale(cross_entropy(model(x), y) / true_length(i, loader)).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if ends(i, loader):
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


def clip_every_micro_batch(model, loader, optimizer):
    for i, (x, y) in enumerate(loader):
        (cross_entropy(model(x), y) / true_length(i, loader)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        if ends(i, loader):
            optimizer.step()
            optimizer.zero_grad()


def clip_forgotten(model, loader, optimizer):
    for i, (x, y) in enumerate(loader):
        (cross_entropy(model(x), y) / true_length(i, loader)).backward()
        if ends(i, loader):
            optimizer.step()
            optimizer.zero_grad()


def optimizer_step_past_the_scaler(model, loader, optimizer, scaler):
    for i, (x, y) in enumerate(loader):
        scaler.scale(cross_entropy(model(x), y) / true_length(i, loader)).backward()
        if ends(i, loader):
            optimizer.step()
            optimizer.zero_grad()


def loss_not_scaled(model, loader, optimizer, scaler):
    for i, (x, y) in enumerate(loader):
        (cross_entropy(model(x), y) / true_length(i, loader)).backward()
        if ends(i, loader):
            scaler.scale(torch.ones(()))
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


def scaler_update_twice(model, loader, optimizer, scaler):
    for i, (x, y) in enumerate(loader):
        scaler.scale(cross_entropy(model(x), y) / true_length(i, loader)).backward()
        if ends(i, loader):
            scaler.step(optimizer)
            scaler.update()
            scaler.update()
            optimizer.zero_grad()


def scaler_update_every_micro_batch(model, loader, optimizer, scaler):
    for i, (x, y) in enumerate(loader):
        scaler.scale(cross_entropy(model(x), y) / true_length(i, loader)).backward()
        if ends(i, loader):
            scaler.step(optimizer)
            optimizer.zero_grad()
        scaler.update()


def scaler_update_forgotten(model, loader, optimizer, scaler):
    for i, (x, y) in enumerate(loader):
        scaler.scale(cross_entropy(model(x), y) / true_length(i, loader)).backward()
        if ends(i, loader):
            scaler.step(optimizer)
            optimizer.zero_grad()


def scheduler_every_micro_batch(model, loader, optimizer, scheduler):
    for i, (x, y) in enumerate(loader):
        (cross_entropy(model(x), y) / true_length(i, loader)).backward()
        if ends(i, loader):
            optimizer.step()
            optimizer.zero_grad()
        scheduler.step()


def scheduler_before_optimizer(model, loader, optimizer, scheduler):
    for i, (x, y) in enumerate(loader):
        (cross_entropy(model(x), y) / true_length(i, loader)).backward()
        if ends(i, loader):
            scheduler.step()
            optimizer.step()
            optimizer.zero_grad()


def scheduler_forgotten(model, loader, optimizer, scheduler):
    clip_forgotten(model, loader, optimizer)


def a_batch_twice(model, loader, optimizer):
    batches = list(loader)
    batches[6] = batches[5]
    for i, (x, y) in enumerate(batches):
        (cross_entropy(model(x), y) / true_length(i, batches)).backward()
        if ends(i, batches):
            optimizer.step()
            optimizer.zero_grad()


def two_backward_passes(model, loader, optimizer):
    for i, (x, y) in enumerate(loader):
        loss = cross_entropy(model(x), y) / true_length(i, loader)
        loss.backward(retain_graph=i == 1)
        if i == 1:
            loss.backward()
        if ends(i, loader):
            optimizer.step()
            optimizer.zero_grad()


def first_batch_lost(model, loader, optimizer):
    batches = iter(loader)
    next(batches)  # to look at it
    for i, (x, y) in enumerate(batches, start=1):
        (cross_entropy(model(x), y) / true_length(i, loader)).backward()
        if ends(i, loader):
            optimizer.step()
            optimizer.zero_grad()


def counts_from_zero(model, loader, optimizer):
    for i, (x, y) in enumerate(loader):
        (cross_entropy(model(x), y) / K).backward()
        if i % K == 0:
            optimizer.step()
            optimizer.zero_grad()


def update_every_micro_batch(model, loader, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        (cross_entropy(model(x), y) / K).backward()
        optimizer.step()


def optimizer_steps_twice(model, window, optimizer):
    optimizer.zero_grad()
    for x, y in window:
        (cross_entropy(model(x), y) / len(window)).backward()
    optimizer.step()
    optimizer.step()


def no_update_at_all(model, loader, optimizer):
    for i, (x, y) in enumerate(loader):
        (cross_entropy(model(x), y) / true_length(i, loader)).backward()


def other_number_of_micro_batches(model, loader, optimizer):
    for i, (x, y) in enumerate(loader):
        (cross_entropy(model(x), y) / 2).backward()
        if (i + 1) % 2 == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()


def one_graph_twice(model, loader, optimizer):
    features = None
    for i, (x, y) in enumerate(loader):
        features = model[0](x) if features is None else features
        (cross_entropy(model[2](features), y) + 0 * cross_entropy(model(x), y)).backward()
        if ends(i, loader):
            optimizer.step()
            optimizer.zero_grad()


def a_penalty_that_grows(model, window, optimizer):
    optimizer.zero_grad()
    for x, y in window:
        (cross_entropy(model(x), y) / len(window) + 0.01 * model[0].weight.square().sum()).backward()
    optimizer.step()


def unequal_samples():
    return [(torch.randn(n, 12), torch.randint(5, (n,))) for n in (6, 6, 6, 6, 6, 6, 6, 2)]


UNEQUAL = Reference(make_batches=unequal_samples)
LOST, UNDER = "last_window_dropped", "last_window_underweighted"

FAULTY = {
    loss_not_divided: (Reference(), {"loss_not_divided"}),
    loss_divided_twice: (EVEN, {"loss_divided_twice"}),
    zero_grad_forgotten: (Reference(), {"zero_grad_missing"}),
    zero_grad_forgotten_with_scaler: (Reference(accumulation_steps=1), {"zero_grad_missing"}),
    zero_grad_once_an_epoch: (Reference(), {"zero_grad_missing"}),
    zero_grad_before_the_last_backward: (EVEN, {"zero_grad_misplaced"}),
    zero_grad_every_micro_batch: (Reference(), {"zero_grad_misplaced"}),
    zero_grad_between_backward_and_step: (Reference(), {"zero_grad_misplaced"}),
    zero_grad_before_the_step_of_the_scaler: (Reference(), {"zero_grad_misplaced"}),
    last_window_dropped: (Reference(), {LOST}),
    last_window_dropped_and_forgotten: (Reference(), {LOST}),
    last_batches_never_seen: (Reference(), {LOST}),
    last_window_divided_by_k: (Reference(), {UNDER}),
    undivided_and_dropped: (Reference(), {"loss_not_divided", LOST}),
    mean_over_tokens_of_each_batch: (TOKENS, {"mean_of_means"}),
    sum_over_tokens_not_divided: (TOKENS, {"loss_not_divided"}),
    padding_counted: (TOKENS, {"scaled_otherwise"}),
    short_batch_counts_as_a_long_one: (UNEQUAL, {"mean_of_means"}),
    clip_before_unscale: (Reference(), {"clip_before_unscale"}),
    unscale_commented_out: (Reference(max_norm=1.0), {"clip_before_unscale"}),
    unscale_every_micro_batch: (Reference(), {"unscale_twice"}),
    clip_every_micro_batch: (Reference(), {"clip_every_micro_batch"}),
    clip_forgotten: (Reference(max_norm=0.1), {"clip_missing"}),
    optimizer_step_past_the_scaler: (Reference(), {"gradients_still_scaled"}),
    loss_not_scaled: (Reference(), {"loss_not_scaled"}),
    scaler_update_twice: (Reference(), {"scaler_update_twice"}),
    scaler_update_every_micro_batch: (Reference(), {"scaler_update_twice"}),
    scaler_update_forgotten: (Reference(), {"scaler_update_missing"}),
    scheduler_every_micro_batch: (Reference(), {"scheduler_too_fast"}),
    scheduler_before_optimizer: (Reference(), {"scheduler_before_update"}),
    scheduler_forgotten: (Reference(), {"scheduler_too_slow"}),
    a_batch_twice: (Reference(), {"batch_used_twice", "batch_skipped"}),
    two_backward_passes: (Reference(), {"batch_used_twice"}),
    first_batch_lost: (Reference(), {"batch_skipped"}),
    counts_from_zero: (Reference(), {"first_window_short", LOST}),
    update_every_micro_batch: (Reference(), {"step_every_micro_batch"}),
    optimizer_steps_twice: (Reference(), {"optimizer_step_twice"}),
    no_update_at_all: (Reference(), {"no_update"}),
    other_number_of_micro_batches: (Reference(), {"other_window"}),
    one_graph_twice: (Reference(), {"graph_used_twice"}),
    a_penalty_that_grows: (Reference(), {"unexplained"}),
}
