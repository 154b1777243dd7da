"""How is a step watched without being changed? Hooks on the model and on all optimizers, and observed calls.

Nothing that the step does is altered: each observed function calls the original. Two things are arranged so
that code for a card runs on the CPU: a GradScaler is made for the CPU, and keeps its scale constant.
"""

import functools
import hashlib
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import FunctionType
from typing import Any

import torch
import torch.nn.utils.clip_grad as clipping
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from course_lib.train.equivalence.record import Forward, Record, Update
from course_lib.train.equivalence.reference import Task, tensors_in

FIRST_SCALE = 1024.0
"""The loss scale of the proof: any scale will do in float64, and a power of two costs no digit."""

_CLIPPING = ("clip_grad_norm_", "clip_grad_value_")


class Recorder:
    """Watches one model in one run."""

    def __init__(self, task: Task, model: nn.Module, rank: int = 0) -> None:
        self.record = Record(rank)
        self.task = task
        self.model = model
        self.epoch = 0
        self.latest_batch: int | None = None
        self._trained = [p for p in model.parameters() if p.requires_grad]
        self._ids = {id(p) for p in self._trained}
        self._keys = [_keys(next(tensors_in(batch))) for batch in task.batches]
        self._places = self._index()
        self._unclipped: Tensor | None = None
        self._scaler_busy = 0
        self._idle: set[int] = set()  # forward passes that no backward pass has reached yet
        self.record.weights.append(self._weights())

    def call(self, name: str, value: float = 1.0) -> None:
        """Note that something was called."""
        self.record.calls.append((name, value))

    def begin_epoch(self, epoch: int) -> None:
        """Note that an epoch begins."""
        self.epoch = epoch
        self.call("epoch", epoch)

    @contextmanager
    def watching(self, step: Callable[..., Any]) -> Iterator[Record]:
        """Within it, all is noted."""
        with ExitStack() as stack:
            handles = [
                self.model.register_forward_pre_hook(self._on_forward, with_kwargs=True),
                self.model.register_forward_hook(self._after_forward),
                register_optimizer_step_pre_hook(self._before_update),
                register_optimizer_step_post_hook(self._after_update),
            ]
            for handle in handles:
                stack.callback(handle.remove)
            self._observe_scaler(stack)
            self._observe_clipping(stack, step)
            for owner, name, note in (
                (Optimizer, "zero_grad", "zero_grad"),
                (nn.Module, "zero_grad", "zero_grad"),
                (LRScheduler, "step", "schedule"),
            ):
                self._observe(stack, owner, name, note)
            yield self.record
            self._forget_idle()

    def watch_exchange(self, model: DistributedDataParallel, stack: ExitStack) -> None:
        """Note each all-reduce of gradients with its bytes, and where `no_sync` is entered."""
        from torch.distributed import GradBucket  # type: ignore[attr-defined]  # not in every build
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

        def exchange(group: Any, bucket: GradBucket) -> torch.futures.Future[Tensor]:
            self.call("sync", float(bucket.buffer().nbytes))
            return allreduce_hook(group, bucket)

        model.register_comm_hook(None, exchange)
        original = model.no_sync

        @contextmanager
        def no_sync() -> Iterator[None]:
            self.call("no_sync")
            with original():
                yield
            self.call("end of no_sync")

        model.no_sync = no_sync  # type: ignore[method-assign]

    def _on_forward(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not torch.is_grad_enabled():
            return
        self.record.forwards.append(
            Forward(
                tuple(self._samples((args, kwargs))),
                self.epoch,
                len(self.record.updates),
                module.training,
                torch.get_rng_state(),
            )
        )
        self.call("forward")

    def _after_forward(self, module: nn.Module, args: Any, output: Any) -> None:
        """Wait for the backward pass through this output: a pass without one only looks at something."""
        if not torch.is_grad_enabled():
            return
        number = len(self.record.forwards) - 1
        for tensor in tensors_in(output):
            if tensor.requires_grad:
                self._idle.add(number)
                tensor.register_hook(lambda gradient: self._idle.discard(number))  # type: ignore[no-untyped-call]

    def _forget_idle(self) -> None:
        """Take the passes without a backward pass out of the record."""
        record, idle = self.record, self._idle
        record.updates = [
            replace(update, forwards=update.forwards - sum(number < update.forwards for number in idle))
            for update in record.updates
        ]
        record.forwards = [forward for number, forward in enumerate(record.forwards) if number not in idle]
        number = -1
        calls = []
        for name, value in record.calls:
            number += name == "forward"
            if name != "forward" or number not in idle:
                calls.append((name, value))
        record.calls = calls

    def _samples(self, inputs: Any) -> list[tuple[int, int]]:
        """Which samples go in: found by their content, else the batch that was handed out last."""
        first = next(tensors_in(inputs), None)
        keys = [] if first is None else _keys(first)
        whole = [number for number, of_batch in enumerate(self._keys) if of_batch == keys]
        if whole:
            passed = {f.samples[0][0] for f in self.record.forwards if f.epoch == self.epoch}
            fresh = [number for number in whole if number not in passed]
            number = self.latest_batch if self.latest_batch in whole and not fresh else (fresh or whole)[0]
            return [(number, row) for row in range(len(keys))]
        places = [self._places.get(key, []) for key in keys]
        if keys and all(places):
            found: list[tuple[int, int]] = []
            for options in places:  # equal samples count one after the other
                found.append(next((place for place in options if place not in found), options[0]))
            return found
        self.record.unknown_inputs += 1
        number = self.latest_batch or 0
        return [(number, row) for row in range(len(self.task.units[number]))]

    def _index(self) -> dict[bytes, list[tuple[int, int]]]:
        places: dict[bytes, list[tuple[int, int]]] = defaultdict(list)
        for number, keys in enumerate(self._keys):
            for row, key in enumerate(keys):
                places[key].append((number, row))
        return dict(places)

    def _gradient(self) -> Tensor:
        return torch.cat(
            [(torch.zeros_like(p) if p.grad is None else p.grad).detach().flatten() for p in self._trained]
        )

    def _weights(self) -> Tensor:
        return torch.cat([p.detach().flatten() for p in self._trained])

    def _is_ours(self, optimizer: Optimizer) -> bool:
        return any(id(p) in self._ids for group in optimizer.param_groups for p in group["params"])

    def _before_update(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if not self._is_ours(optimizer):
            return
        self.record.updates.append(
            Update(
                self._gradient(),
                self._unclipped,
                float(optimizer.param_groups[0]["lr"]),
                len(self.record.forwards),
                self.epoch,
            )
        )
        self._unclipped = None
        self.call("update")

    def _after_update(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._is_ours(optimizer):
            self.record.weights.append(self._weights())

    def _is_scaled(self) -> bool:
        """Whether the gradients now carry the loss scale: scaled losses, not yet unscaled."""
        for name, _ in reversed(self.record.calls):
            if name in ("unscale", "update"):
                return False
            if name == "scale":
                return True
        return False

    def _observe_clipping(self, stack: ExitStack, step: Callable[..., Any]) -> None:
        names = getattr(step, "__globals__", {})
        for name in _CLIPPING:
            original = getattr(clipping, name)
            observed = functools.wraps(original)(functools.partial(self._clip, original))
            for alias in [alias for alias, value in names.items() if value is original]:
                _replace(stack, names, alias, observed)
            for module in list(sys.modules.values()):  # who imported it by name has it in its own names
                if getattr(module, "__dict__", {}).get(name) is original:
                    _replace(stack, module.__dict__, name, observed)

    def _clip(self, original: FunctionType, parameters: Any, *args: Any, **kwargs: Any) -> Any:
        many = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        limit = float(args[0] if args else kwargs.get("max_norm", kwargs.get("clip_value", 0.0)))
        if any(id(p) in self._ids for p in many):
            scale = self._scale() if self._is_scaled() else 1.0
            self._unclipped = self._gradient() / scale
            kind = "clip" if original.__name__ == "clip_grad_norm_" else "clip value"
            self.call("clip scaled" if scale != 1.0 else kind, limit)
        return original(many, *args, **kwargs)

    def _scale(self) -> float:
        return next((value for name, value in reversed(self.record.calls) if name == "scale"), 1.0)

    def _observe_scaler(self, stack: ExitStack) -> None:
        """GradScaler's methods, whoever made it; those that it calls itself are not noted a second time."""
        begin = GradScaler.__init__

        def init(scaler: GradScaler, device: str = "cpu", *args: Any, **settings: Any) -> None:
            begin(scaler, "cpu", FIRST_SCALE, growth_interval=2**30, enabled=settings.get("enabled", True))

        _set(stack, GradScaler, "__init__", init)
        for name, note in (("unscale_", "unscale"), ("step", "scaler.step"), ("update", "scaler.update")):
            self._observe(stack, GradScaler, name, note, scaler=True)
        original = GradScaler.scale

        def scale(scaler: GradScaler, outputs: Any) -> Any:
            self.call("scale", scaler.get_scale())
            return original(scaler, outputs)

        _set(stack, GradScaler, "scale", scale)

    def _observe(self, stack: ExitStack, owner: type, name: str, note: str, *, scaler: bool = False) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def observed(own: Any, *args: Any, **kwargs: Any) -> Any:
            if self._scaler_busy and scaler:
                return original(own, *args, **kwargs)
            self.call(note)
            self._scaler_busy += scaler
            try:
                return original(own, *args, **kwargs)
            finally:
                self._scaler_busy -= scaler

        _set(stack, owner, name, observed)


def _keys(rows: Tensor) -> list[bytes]:
    """A short name for each row of a tensor, from its content; floating-point rows count as float64."""
    if rows.ndim == 0:
        return []
    plain = rows.detach().cpu()
    plain = plain.double() if plain.is_floating_point() else plain
    return [hashlib.blake2b(row.contiguous().numpy().tobytes(), digest_size=16).digest() for row in plain]


def _set(stack: ExitStack, owner: Any, name: str, value: object) -> None:
    """Put something in place of an attribute, until the stack closes."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    stack.callback(setattr, owner, name, before)


def _replace(stack: ExitStack, names: dict[str, Any], name: str, value: object) -> None:
    before = names[name]
    names[name] = value
    stack.callback(names.__setitem__, name, before)
