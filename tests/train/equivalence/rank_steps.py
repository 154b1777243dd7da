"""Steps for two ranks, right and wrong. They are imported by the ranks' own processes."""

from contextlib import ExitStack, nullcontext

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

from course_lib.train.accumulation import AccumulatingStep, tokens_in, windows
from course_lib.train.step import TrainingStep

K = 4


def by_course(model, loader, optimizer, criterion):
    step = AccumulatingStep(TrainingStep(model, optimizer, criterion), K)
    for window in step.windows(loader):
        step(window)


def tokens_by_course(model, loader, optimizer, criterion):
    step = AccumulatingStep(TrainingStep(model, optimizer, criterion), K, count=tokens_in)
    for window in step.windows(loader):
        step(window)


def windows_of_the_course(model, loader, optimizer):
    for window in windows(loader, K, distributed=True):
        for micro in window:
            with micro.sync(model):
                (cross_entropy(model(micro.inputs), micro.targets) * micro.weight).backward()
        optimizer.step()
        optimizer.zero_grad()


def no_sync_by_hand(model, loader, optimizer):
    """Right while all ranks have the same number of batches in a window."""
    for i, (x, y) in enumerate(loader):
        last = (i + 1) % K == 0 or i + 1 == len(loader)
        with nullcontext() if last else model.no_sync():
            (cross_entropy(model(x), y) / min(K, len(loader) - i // K * K)).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()


def with_an_exit_stack(model, window, optimizer):
    optimizer.zero_grad()
    with ExitStack() as stack:
        stack.enter_context(model.no_sync())
        for x, y in window[:-1]:
            (cross_entropy(model(x), y) / len(window)).backward()
    x, y = window[-1]
    (cross_entropy(model(x), y) / len(window)).backward()
    optimizer.step()


def without_no_sync(model, loader, optimizer):
    for i, (x, y) in enumerate(loader):
        (cross_entropy(model(x), y) / min(K, len(loader) - i // K * K)).backward()
        if (i + 1) % K == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()


def gradients_sent_by_hand(model, window, optimizer):
    optimizer.zero_grad()
    with model.no_sync():
        for x, y in window:
            (cross_entropy(model(x), y) / len(window)).backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
    optimizer.step()


def inverted(model, loader, optimizer):
    for i, (x, y) in enumerate(loader):
        last = (i + 1) % K == 0 or i + 1 == len(loader)
        with model.no_sync() if last else nullcontext():
            (cross_entropy(model(x), y) / min(K, len(loader) - i // K * K)).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()


def forward_outside(model, loader, optimizer):
    for i, (x, y) in enumerate(loader):
        last = (i + 1) % K == 0 or i + 1 == len(loader)
        loss = cross_entropy(model(x), y) / min(K, len(loader) - i // K * K)
        with nullcontext() if last else model.no_sync():
            loss.backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()


def never_sent(model, window, optimizer):
    optimizer.zero_grad()
    with model.no_sync():
        for x, y in window:
            (cross_entropy(model(x), y) / len(window)).backward()
    optimizer.step()


def divided_by_ranks_too(model, window, optimizer, world_size):
    optimizer.zero_grad()
    for number, (x, y) in enumerate(window, start=1):
        with nullcontext() if number == len(window) else model.no_sync():
            (cross_entropy(model(x), y) / len(window) / world_size).backward()
    optimizer.step()


def stops_on_one_rank(model, window, optimizer, rank):
    if rank == 1:
        raise ValueError("no such file")
    a_window = torch.zeros(1)
    dist.all_reduce(a_window)
