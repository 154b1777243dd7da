"""Correct ways to accumulate, in the styles in which people write them. None of them has a fault.

Each asks for what it needs by name, as a learner's step does. STYLES tells which need another reference.
"""

import contextlib
import itertools

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from course_lib.train.accumulation import AccumulatingStep, tokens_in, windows
from course_lib.train.equivalence import Reference
from course_lib.train.step import TrainingStep

K = 4
TOKENS = Reference(weight_by="tokens")


def true_length(at, loader):
    """How many micro-batches the window that holds number `at` (from 0) has."""
    return min(K, len(loader) - at // K * K)


def modulo_and_end(model, loader, optimizer, criterion):
    for i, (x, y) in enumerate(loader):
        loss = criterion(model(x), y) / true_length(i, loader)
        loss.backward()
        if (i + 1) % K == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()


def zero_at_the_start_of_a_window(model, loader, optimizer, criterion):
    for i, (x, y) in enumerate(loader):
        if i % K == 0:
            optimizer.zero_grad()
        (criterion(model(x), y) / true_length(i, loader)).backward()
        if i % K == K - 1 or i == len(loader) - 1:
            optimizer.step()


def zeros_kept_in_place(model, loader, optimizer):
    for i, (x, y) in enumerate(loader):
        (cross_entropy(model(x), y) / true_length(i, loader)).backward()
        if (i + 1) % K == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)


def model_zero_grad(net, train_loader, opt):
    net.zero_grad()
    for i, (x, y) in enumerate(train_loader, start=1):
        loss = cross_entropy(net(x), y)
        loss = loss / true_length(i - 1, train_loader)
        loss.backward()
        if i % K == 0 or i == len(train_loader):
            opt.step()
            net.zero_grad()


def gradients_set_to_none(model, loader, optimizer):
    for i, (x, y) in enumerate(loader):
        (cross_entropy(model(x), y) / true_length(i, loader)).backward()
        if (i + 1) % K == 0 or i + 1 == len(loader):
            optimizer.step()
            for p in model.parameters():
                p.grad = None


def windows_by_islice(model, loader, optimizer):
    batches = iter(loader)
    while window := list(itertools.islice(batches, K)):
        optimizer.zero_grad()
        for x, y in window:
            (cross_entropy(model(x), y) / len(window)).backward()
        optimizer.step()


def a_window_at_a_time(model, window, optimizer):
    optimizer.zero_grad()
    for x, y in window:
        (cross_entropy(model(x), y) / len(window)).backward()
    optimizer.step()


def by_samples(model, window, optimizer):
    total = sum(len(y) for _, y in window)
    optimizer.zero_grad()
    for x, y in window:
        (cross_entropy(model(x), y, reduction="sum") / total).backward()
    optimizer.step()


def one_backward_for_all(model, window, optimizer):
    optimizer.zero_grad()
    torch.stack([cross_entropy(model(x), y) for x, y in window]).mean().backward()
    optimizer.step()


def one_forward_for_all(model, window, optimizer):
    x, y = (torch.cat(parts) for parts in zip(*window, strict=True))
    optimizer.zero_grad()
    cross_entropy(model(x), y).backward()
    optimizer.step()


def smaller_pieces(model, window, optimizer):
    x, y = (torch.cat(parts) for parts in zip(*window, strict=True))
    optimizer.zero_grad()
    for piece, labels in zip(x.split(5), y.split(5), strict=True):
        (cross_entropy(model(piece), labels) * len(labels) / len(y)).backward()
    optimizer.step()


def sum_first_divide_the_gradient(model, window, optimizer):
    optimizer.zero_grad()
    samples = 0
    for x, y in window:
        cross_entropy(model(x), y, reduction="sum").backward()
        samples += len(y)
    for p in model.parameters():
        p.grad /= samples
    optimizer.step()


def gradients_by_autograd_grad(model, window, optimizer):
    parameters = list(model.parameters())
    sums = [torch.zeros_like(p) for p in parameters]
    for x, y in window:
        for total, part in zip(
            sums, torch.autograd.grad(cross_entropy(model(x), y), parameters), strict=True
        ):
            total.add_(part / len(window))
    for p, total in zip(parameters, sums, strict=True):
        p.grad = total
    optimizer.step()


def through_backward_of_autograd(model, window, optimizer):
    optimizer.zero_grad()
    for x, y in window:
        torch.autograd.backward(cross_entropy(model(x), y) / len(window))
    optimizer.step()


def gradient_argument(model, window, optimizer):
    optimizer.zero_grad()
    for x, y in window:
        loss = cross_entropy(model(x), y)
        loss.backward(gradient=torch.full_like(loss, 1 / len(window)))
    optimizer.step()


def weights_as_tensor(model, window, optimizer):
    sizes = torch.tensor([len(y) for _, y in window], dtype=torch.float64)
    for weight, (x, y) in zip(sizes / sizes.sum(), window, strict=True):
        (weight * cross_entropy(model(x), y)).backward()
    optimizer.step()
    optimizer.zero_grad()


def all_epochs_inside(model, loader, optimizer, epochs):
    for _ in range(epochs):
        for i, (x, y) in enumerate(loader):
            (cross_entropy(model(x), y) / true_length(i, loader)).backward()
            if (i + 1) % K == 0 or i + 1 == len(loader):
                optimizer.step()
                optimizer.zero_grad()


def with_validation_between(model, loader, optimizer):
    for i, (x, y) in enumerate(loader):
        (cross_entropy(model(x), y) / true_length(i, loader)).backward()
        if (i + 1) % K == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()
            model.eval()
            with torch.no_grad():
                model(x)
            model.train()


def with_accuracy_in_between(model, loader, optimizer):
    for i, (x, y) in enumerate(loader):
        (cross_entropy(model(x), y) / true_length(i, loader)).backward()
        hits = (model(x).argmax(dim=1) == y).sum()  # a second pass, to look only
        assert 0 <= hits <= len(y)
        if (i + 1) % K == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()


def with_scheduler(model, loader, optimizer, scheduler):
    for i, (x, y) in enumerate(loader):
        (cross_entropy(model(x), y) / true_length(i, loader)).backward()
        if (i + 1) % K == 0 or i + 1 == len(loader):
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()


def scheduler_once_an_epoch(model, loader, optimizer, scheduler):
    modulo_and_end(model, loader, optimizer, cross_entropy)
    scheduler.step()


def with_clipping(model, loader, optimizer):
    for i, (x, y) in enumerate(loader):
        (cross_entropy(model(x), y) / true_length(i, loader)).backward()
        if (i + 1) % K == 0 or i + 1 == len(loader):
            clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()


def clipping_as_told(model, loader, optimizer, max_norm):
    for i, (x, y) in enumerate(loader):
        (cross_entropy(model(x), y) / true_length(i, loader)).backward()
        if (i + 1) % K == 0 or i + 1 == len(loader):
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            optimizer.step()
            optimizer.zero_grad()


def clipping_by_hand(model, window, optimizer, max_norm):
    optimizer.zero_grad()
    for x, y in window:
        (cross_entropy(model(x), y) / len(window)).backward()
    norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
    for p in model.parameters():
        p.grad *= min(1.0, max_norm / (float(norm) + 1e-6))
    optimizer.step()


def clipping_by_value(model, window, optimizer):
    optimizer.zero_grad()
    for x, y in window:
        (cross_entropy(model(x), y) / len(window)).backward()
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.01)
    optimizer.step()


def with_scaler(model, loader, optimizer, scaler):
    for i, (x, y) in enumerate(loader):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = cross_entropy(model(x), y) / true_length(i, loader)
        scaler.scale(loss).backward()
        if (i + 1) % K == 0 or i + 1 == len(loader):
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


def scheduler_between_step_and_update_of_scaler(model, loader, optimizer, scheduler):
    scaler = torch.amp.GradScaler("cuda")
    for i, (x, y) in enumerate(loader):
        scaler.scale(cross_entropy(model(x), y) / true_length(i, loader)).backward()
        if (i + 1) % K == 0 or i + 1 == len(loader):
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(optimizer)
            scheduler.step()
            scaler.update()
            optimizer.zero_grad()


def clip_limit_multiplied_by_the_scale(model, loader, optimizer, scaler):
    for i, (x, y) in enumerate(loader):
        scaler.scale(cross_entropy(model(x), y) / true_length(i, loader)).backward()
        if (i + 1) % K == 0 or i + 1 == len(loader):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0 * scaler.get_scale())
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


def old_names_of_amp(model, loader, optimizer):
    scaler = torch.cuda.amp.GradScaler()
    for i, (x, y) in enumerate(loader):
        with torch.cuda.amp.autocast():
            loss = cross_entropy(model(x), y) / true_length(i, loader)
        scaler.scale(loss).backward()
        if (i + 1) % K == 0 or i + 1 == len(loader):
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


def tokens_by_sum(model, window, optimizer):
    total = sum(int((y != -100).sum()) for _, y in window)
    optimizer.zero_grad()
    for x, y in window:
        loss = cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum")
        (loss / total).backward()
    optimizer.step()


def tokens_by_mean_and_share(model, window, optimizer, criterion):
    counts = [int((y != -100).sum()) for _, y in window]
    optimizer.zero_grad()
    for count, (x, y) in zip(counts, window, strict=True):
        (criterion(model(x), y) * count / sum(counts)).backward()
    optimizer.step()


def course_windows(model, loader, optimizer):
    for window in windows(loader, K):
        for micro in window:
            with micro.sync(model):
                (cross_entropy(model(micro.inputs), micro.targets) * micro.weight).backward()
        optimizer.step()
        optimizer.zero_grad()


def course_step(model, loader, optimizer, scheduler, scaler):
    inner = TrainingStep(model, optimizer, grad_scaler=scaler, max_grad_norm=0.1)
    step = AccumulatingStep(inner, K, scheduler=scheduler)
    for window in step.windows(loader):
        step(window)


def course_step_of_tokens(model, loader, optimizer, criterion):
    step = AccumulatingStep(TrainingStep(model, optimizer, criterion), K, count=tokens_in)
    for window in step.windows(batch for batch in loader):
        step(window)


def with_dictionaries(model, loader, optimizer):
    for i, batch in enumerate(loader):
        loss = model(**batch).loss / true_length(i, loader)
        loss.backward()
        if (i + 1) % K == 0 or i + 1 == len(loader):
            optimizer.step()
            model.zero_grad()


def inputs_changed_on_the_way(model, loader, optimizer):
    for i, (x, y) in enumerate(loader):
        (cross_entropy(model(x.clone()), y) / true_length(i, loader)).backward()
        if (i + 1) % K == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()


def own_optimizer_wrapper(model, loader, optimizer):
    class Every:
        def __init__(self):
            self.seen = 0

        def maybe_step(self, last):
            self.seen += 1
            if self.seen % K == 0 or last:
                optimizer.step()
                optimizer.zero_grad()

    every = Every()
    for i, (x, y) in enumerate(loader):
        (cross_entropy(model(x), y) / true_length(i, loader)).backward()
        every.maybe_step(i + 1 == len(loader))


def a_context_for_every_pass(model, loader, optimizer):
    for i, (x, y) in enumerate(loader):
        last = (i + 1) % K == 0 or i + 1 == len(loader)
        with contextlib.nullcontext() if last or not hasattr(model, "no_sync") else model.no_sync():
            (cross_entropy(model(x), y) / true_length(i, loader)).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()


class WithLoss(nn.Module):
    """A model that takes a dictionary and returns its own loss, as those of transformers do."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 5))

    def forward(self, values, labels):
        class Output:
            loss = cross_entropy(self.body(values), labels)

        return Output


def dictionaries():
    return [{"values": torch.randn(6, 12), "labels": torch.randint(5, (6,))} for _ in range(11)]


OF_DICTIONARIES = Reference(make_model=WithLoss, make_batches=dictionaries)
ALL_THE_SAME = [
    modulo_and_end, zero_at_the_start_of_a_window, zeros_kept_in_place, model_zero_grad,
    gradients_set_to_none, windows_by_islice, a_window_at_a_time, by_samples, one_backward_for_all,
    one_forward_for_all, smaller_pieces, sum_first_divide_the_gradient, gradients_by_autograd_grad,
    through_backward_of_autograd, gradient_argument, weights_as_tensor, all_epochs_inside,
    with_validation_between, with_accuracy_in_between, with_scheduler, scheduler_once_an_epoch,
    with_clipping, clipping_by_value,
    with_scaler, scheduler_between_step_and_update_of_scaler, clip_limit_multiplied_by_the_scale,
    old_names_of_amp, course_windows, course_step, inputs_changed_on_the_way, own_optimizer_wrapper,
    a_context_for_every_pass,
]  # fmt: skip
STYLES = {step: Reference() for step in ALL_THE_SAME} | {
    clipping_as_told: Reference(max_norm=0.1),
    clipping_by_hand: Reference(max_norm=0.1),
    tokens_by_sum: TOKENS,
    tokens_by_mean_and_share: TOKENS,
    course_step_of_tokens: TOKENS,
    with_dictionaries: OF_DICTIONARIES,
}
