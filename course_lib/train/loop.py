"""How does a whole training run go?

`train` repeats the training step over epochs, tests the model after each, and can be watched, timed,
interrupted and resumed. `evaluate` tests. `measure_split` times a few steps and leaves the model as it was.
"""

import copy
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LRScheduler
from tqdm.auto import tqdm

from course_lib.errors import CourseError
from course_lib.train.batch import samples_in, to_device
from course_lib.train.history import Callback, EpochResult, Evaluation, History, Progress
from course_lib.train.loss_meter import LossMeter, numbers_of
from course_lib.train.number_formats.float_formats import Format
from course_lib.train.precision import Precision, precision_for
from course_lib.train.resume import Resumption
from course_lib.train.split import StepSplit
from course_lib.train.step import LossFn, TrainingStep, as_pair, device_of
from course_lib.train.timing import StepTimer


def train(
    model: nn.Module,
    train_loader: Iterable[Any],
    optimizer: Optimizer,
    *,
    epochs: int,
    loss_fn: LossFn = cross_entropy,
    test_loader: Iterable[Any] | None = None,
    scheduler: LRScheduler | None = None,
    timer: StepTimer | None = None,
    precision: Precision | Format | None = None,
    max_grad_norm: float | None = None,
    callback: Callback | None = None,
    callback_every: int | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
    progress: bool = True,
) -> History:
    """Train on the device that the model is on.

    Loaders yield pairs (inputs, targets). With a `test_loader` the model is tested after each epoch. A
    `scheduler` is stepped after each training step that changed the weights. `precision` and `max_grad_norm`
    are those of TrainingStep; the model is tested in the same precision. The `callback` hears a
    Progress every `callback_every` steps and at the end of each epoch. A sampler or data set with a method
    `set_epoch` is told the epoch.

    With a `checkpoint` (a path), the run is saved after each epoch and every `checkpoint_every` steps; it
    needs a ResumableSampler. With `resume` it goes on from there, or starts when there is none yet.

    Ctrl-C ends the run and returns the complete epochs; the weights stay as they are at that moment.
    Raises CourseError when the loss is no longer a finite number, and when a setting cannot be used.
    """
    for name, number in (("epochs", epochs), ("callback_every", callback_every)):
        if number is not None and number < 1:
            raise CourseError(f"{name} must be 1 or more, not {number}.")
    step = TrainingStep(
        model, optimizer, loss_fn, timer=timer, precision=precision, max_grad_norm=max_grad_norm
    )
    run = Resumption(
        checkpoint,
        checkpoint_every,
        loader=train_loader,
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        grad_scaler=step.grad_scaler,
    )
    if resume:
        run.resume()
    steps = _steps_in(train_loader)
    was_training = model.training
    with tqdm(
        desc="training",
        unit="step",
        total=None if steps is None else epochs * steps,
        initial=run.step if steps is None else run.epoch * steps + run.step,
        disable=not progress,
    ) as bar:
        try:
            while run.epoch < epochs:
                begin = time.perf_counter() - run.seconds
                meter = LossMeter(step, run)
                model.train()
                source = _Pass(train_loader, run.begin_epoch())
                for batch in timer.batches(source) if timer is not None else source:
                    meter.add(step(batch), samples_in(batch))
                    if scheduler is not None and not step.skipped:
                        scheduler.step()
                    run.step += 1
                    bar.update()
                    if callback is not None and callback_every and run.step % callback_every == 0:
                        loss = meter.read()
                        callback(Progress(run.epoch + 1, run.step, steps, loss, tuple(run.epochs)))
                    if run.due():
                        meter.read()
                        run.save(seconds=time.perf_counter() - begin)
                if not run.step:
                    raise CourseError("The loader gave no batch: check the data set's length and drop_last.")
                meter.read()
                test = (
                    None
                    if test_loader is None
                    else evaluate(model, test_loader, loss_fn, precision=precision)
                )
                run.close_epoch(test, time.perf_counter() - begin)
                bar.set_postfix_str(_postfix(run.epochs[-1]))
                if callback is not None:
                    callback(Progress(run.epoch, meter.steps, steps, meter.last, tuple(run.epochs)))
                run.save()
        except KeyboardInterrupt:
            return History(tuple(run.epochs), f"interrupted in epoch {run.epoch + 1} after step {run.step}")
        finally:
            model.train(was_training)
    return History(tuple(run.epochs))


def evaluate(
    model: nn.Module,
    loader: Iterable[Any],
    loss_fn: LossFn = cross_entropy,
    *,
    precision: Precision | Format | None = None,
) -> Evaluation:
    """Test a classifier: the mean loss and the accuracy over all samples, each counted once.

    `loss_fn` returns the mean over a batch; batches count by their size, so a short last one is right.
    The model is put into evaluation mode meanwhile, and nothing waits for the device until the end. With a
    `precision`, model and loss run under its autocast.
    Raises CourseError when the loader gives no batch.
    """
    device = device_of(model)
    chosen = precision_for(precision, device)
    autocast: AbstractContextManager[Any] = nullcontext() if chosen is None else chosen.autocast()
    losses: list[Tensor] = []
    hits: list[Tensor] = []
    sizes: list[int] = []
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            for batch in _Pass(loader):
                inputs, targets = to_device(as_pair(batch), device)
                with autocast:
                    outputs = model(inputs)
                    losses.append(loss_fn(outputs, targets))
                hits.append((outputs.argmax(dim=1) == targets).sum())
                sizes.append(len(targets))
    finally:
        model.train(was_training)
    samples = sum(sizes)
    if not samples:
        raise CourseError("The loader gave no sample to test on: check the data set's length.")
    loss = math.fsum(mean * size for mean, size in zip(numbers_of(losses), sizes, strict=True)) / samples
    return Evaluation(loss, sum(numbers_of(hits)) / samples, samples)


def measure_split(
    loader: Iterable[Any],
    model: nn.Module,
    *,
    steps: int = 20,
    warmup: int = 3,
    budget_s: float | None = None,
    device: str | torch.device | None = None,
    precision: Precision | Format | None = None,
    loss_fn: LossFn = cross_entropy,
    make_optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] = AdamW,
    progress: Callable[[int, int], None] | None = None,
) -> StepSplit:
    """Train a copy of the model for a few steps and tell where their time went; the model is not changed.

    Takes `warmup` steps that are not counted, then `steps`, or as many as fit into `budget_s` seconds, but
    at least one. A loader that is shorter is started again, which takes its workers' start each time.
    `progress(done, of)` is called after each step. `device` is by default where the model is; `precision` is
    that of TrainingStep.
    """
    if steps < 1:
        raise CourseError(f"At least one step must be measured, not {steps}.")
    _examine(model, loader)
    trained = copy.deepcopy(model).to(device_of(model) if device is None else device).train()
    timer = StepTimer(device_of(trained), warmup=warmup)
    step = TrainingStep(
        trained, make_optimizer(trained.parameters()), loss_fn, timer=timer, precision=precision
    )
    deadline = None if budget_s is None else time.perf_counter() + budget_s
    many = warmup + steps
    for done, batch in enumerate(timer.batches(_repeated(loader, many, warmup, deadline)), start=1):
        try:
            step(batch)
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
            if isinstance(error, (CourseError, torch.OutOfMemoryError)):
                raise
            raise CourseError(_misfit(batch, error)) from error
        if progress is not None:
            progress(done, many)
    return timer.split()


def _repeated(loader: Iterable[Any], many: int, warmup: int, deadline: float | None) -> Iterator[Any]:
    """`many` batches from as many passes as it takes; once the deadline is over, one after the warm-up."""
    given = 0
    while given < many:
        before = given
        for batch in _Pass(loader):
            yield batch
            given += 1
            late = deadline is not None and time.perf_counter() > deadline
            if given == many or (late and given > warmup):
                return
        if given == before:
            raise CourseError(
                f"The loader gave {given} batches and cannot be started again: give a DataLoader, or measure "
                "fewer steps."
                if given
                else "The loader gave no batch: check the data set's length and drop_last."
            )


def _examine(model: object, loader: object) -> None:
    """Raises CourseError for what cannot be measured, before anything is tried."""
    if not isinstance(model, nn.Module):
        raise CourseError(
            f"The model must be a torch.nn.Module, such as DigitsCNN(); {model!r} is none."
            + (" Build it first: add parentheses." if isinstance(model, type) else "")
        )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise CourseError("The model has no parameter that can be trained, so there is no step to measure.")
    if not isinstance(loader, Iterable):
        raise CourseError(f"The loader must give batches, as a DataLoader does; {loader!r} gives none.")


def _misfit(batch: Any, error: Exception) -> str:
    """The sentence for a first step that model, loss and batch cannot do together."""
    inputs, targets = (tuple(getattr(part, "shape", ())) for part in as_pair(batch))
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return (
        f"Model, loss and batch do not fit together ({type(error).__name__}: {first}). The loader's batches "
        f"have inputs of shape {inputs} and targets of shape {targets}; the first number is the batch size."
    )


class _Pass:
    """One pass over a loader that takes one draw from torch's random numbers, with any number of workers.

    Starting a loader draws seeds for its workers, but not every loader does and not every time. Without
    this, dropout would fall differently when a run is resumed. `restore` is called before the first batch.
    """

    def __init__(self, loader: Iterable[Any], restore: Callable[[], None] | None = None) -> None:
        self._loader = loader
        self._restore = restore

    def __iter__(self) -> Iterator[Any]:
        torch.empty((), dtype=torch.int64).random_()
        state = torch.get_rng_state()
        iterator = iter(self._loader)
        torch.set_rng_state(state)
        if self._restore is not None:
            self._restore()
        try:
            yield from iterator
        except CourseError as error:
            # A worker sends its exception with the traceback as text; the sentence is at the end.
            raise CourseError(str(error).rpartition("CourseError: ")[2].strip()) from error


def _steps_in(loader: Iterable[Any]) -> int | None:
    try:
        return len(loader)  # type: ignore[arg-type]
    except TypeError:
        return None


def _postfix(result: EpochResult) -> str:
    accuracy = "" if result.test is None else f", accuracy {result.test.accuracy:.1%}"
    return f"epoch {result.epoch}: loss {result.train_loss:.3f}{accuracy}"
