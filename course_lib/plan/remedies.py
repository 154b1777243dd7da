"""What would make a training step fit a card, what does it cost, and what does it change in the training?

    print(remedies(named_workload("gpt", micro_batch=32, optimizer="adamw"), find_accelerator("T4")))

Each remedy is traced and replayed as the step itself is (``plan_memory``); what needs other libraries or
more cards is reckoned on the trace (``trace_changes.py``). The list is ranked (``remedy_list.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from torch import nn

from course_lib.accelerators import Accelerator
from course_lib.errors import CourseError
from course_lib.models import slim
from course_lib.plan.batch_size import BatchTraces, traces_of
from course_lib.plan.memory import MemoryPlan, largest_batch_that, plan_memory
from course_lib.plan.optimizers import OptimizerRule, optimizer_rule
from course_lib.plan.remedy_list import Remedies, Remedy
from course_lib.plan.remedy_words import (
    CARDS,
    LORA_RANK,
    WORDS,
    Words,
    accumulating,
    smaller,
    together,
)
from course_lib.plan.stacks import Stack
from course_lib.plan.step_trace import StepTrace
from course_lib.plan.trace_changes import (
    adapters_only,
    eight_bit,
    fully_sharded,
    sharded_states,
    share_in_matrices,
)
from course_lib.plan.tracer import build
from course_lib.plan.workload import Precision, Workload

_LEANER = {"adam": "sgd", "adamw": "sgd", "rmsprop": "sgd-plain", "adagrad": "sgd-plain", "sgd": "sgd-plain"}
_MOSTLY_MATRICES = 0.5  # from this share of the parameters on, adapters are offered
_SAVES_NOTHING = 0.98  # if more than this share is left

Variants = dict[tuple[str, ...], Workload]


def remedies(
    workload: Workload,
    card: Accelerator,
    *,
    stack: Stack | None = None,
    progress: Callable[[str], None] | None = None,
) -> Remedies:
    """Every remedy and sensible combination for one training step of ``workload`` on ``card``, ranked.

    The global batch (micro-batch times accumulation) is kept, but for the remedy that lowers it. What saves
    less than a fiftieth is left out. About ten traces are made, of a second each for a usual network;
    ``progress`` is told what is being traced.
    Raises CourseError for a workload that cannot be traced.
    """
    search = _Search(workload, card, stack, progress or (lambda _: None))
    now = search.plan(search.trace, workload)
    found = sorted((remedy for kind in search.kinds() for remedy in kind()), key=Remedy.order)
    least = (_SAVES_NOTHING * now.allocated, _SAVES_NOTHING * now.total)
    useless = [r.name for r in found if r.allocated > least[0] and r.total > least[1]]
    left_out = search.left_out + ([f"{', '.join(useless)}: saves nothing here"] if useless else [])
    return Remedies(now, tuple(r for r in found if r.name not in useless), tuple(left_out))


@dataclass
class _Search:
    """What all remedies share: the step as it is, the card, and the traces that were made."""

    work: Workload
    card: Accelerator
    stack: Stack | None
    say: Callable[[str], None]
    left_out: list[str] = field(default_factory=list)
    _made: dict[tuple[object, ...], BatchTraces] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.trace = self.at(self.work, self.work.micro_batch)
        self.variants = self._variants()

    def kinds(self) -> Iterator[Callable[[], Iterator[Remedy]]]:
        """The kinds of remedies."""
        yield from (self.settings, self.optimizers, self.steps, self.batches, self.slimmer, self.elsewhere)

    def at(self, workload: Workload, batch_size: int) -> StepTrace:
        """The trace of a variant of the workload at a batch size."""
        key = (workload.name, workload.precision, workload.checkpointing, workload.channels_last)
        if key not in self._made:
            self.say(f"{workload.name}, {workload.precision}{', checkpointing' * workload.checkpointing}")
            self._made[key] = traces_of(workload)
        made = self._made[key]
        return made.exact(batch_size) if batch_size == self.work.micro_batch else made.at(batch_size)

    def plan(
        self,
        trace: StepTrace,
        workload: Workload,
        optimizer: OptimizerRule | None = None,
        *,
        expandable: bool = False,
    ) -> MemoryPlan:
        """The memory plan of a trace."""
        return plan_memory(
            trace,
            self.card,
            optimizer=optimizer or workload.optimizer,
            accumulate=workload.accumulate,
            stack=self.stack,
            expandable_segments=expandable,
        )

    def settings(self) -> Iterator[Remedy]:
        """What is only set: the way in which the allocator, the optimizer or the convolutions work."""
        work, own = self.work, self.work.optimizer
        yield self.remedy("expandable segments", self.plan(self.trace, work, expandable=True), self.trace)
        if own.foreach and own.temporaries:
            one_by_one = replace(own, foreach=False)
            yield self.remedy("foreach off", self.plan(self.trace, work, one_by_one), self.trace)
        if any(len(block.shape) == 4 for block in self.trace.parameters) and not work.channels_last:
            other = replace(work, channels_last=True)
            trace = self.at(other, work.micro_batch)
            yield self.remedy("channels_last", self.plan(trace, other), trace)

    def optimizers(self) -> Iterator[Remedy]:
        """Optimizers with fewer or smaller states."""
        own = self.work.optimizer
        leaner = _LEANER.get(own.name)
        if leaner:
            plan = self.plan(self.trace, self.work, optimizer_rule(leaner))
            yield self.remedy(leaner, plan, self.trace)
        if own.states and not own.factored:
            plan = self.plan(self.trace, self.work, eight_bit(own))
            yield self.remedy("8-bit states", plan, self.trace)

    def steps(self) -> Iterator[Remedy]:
        """Mixed precision, checkpointing, and both."""
        for parts, variant in self.variants.items():
            if parts:
                trace = self.at(variant, self.work.micro_batch)
                words = together([WORDS[part] for part in parts])
                yield self.remedy(parts, self.plan(trace, variant), trace, words)

    def batches(self) -> Iterator[Remedy]:
        """The largest micro-batch that fits, with gradient accumulation for the rest, for each variant; and
        a smaller batch with nothing else.
        """
        work, size = self.work, self.work.micro_batch
        batch_norm = _has_batch_norm(work)
        for parts, variant in self.variants.items():
            most = self._largest(variant)
            if most >= size or size == 1:
                continue
            part = max((n for n in range(1, max(1, most) + 1) if size % n == 0), default=1)
            other = replace(variant, micro_batch=part, accumulate=work.accumulate * size // part)
            trace = self.at(other, part)
            words = [accumulating(other.accumulate, part, size, batch_norm), *(WORDS[name] for name in parts)]
            name = f"accumulate {other.accumulate} x {part}"
            plan = self.plan(trace, other)
            yield self.remedy((name, *parts), plan, trace, together(words), batches=size / part)
            if most and not parts:
                trace = self.at(replace(work, micro_batch=most), most)
                plan = self.plan(trace, work)
                yield self.remedy(f"batch {most}", plan, trace, smaller(most, size), batches=size / most)

    def slimmer(self) -> Iterator[Remedy]:
        """Another model: a pooled head, depthwise separable convolutions."""
        for name, change in (("pooled head", slim.pooled_head), ("separable convolutions", slim.separable)):
            try:
                model = change(build(self.work))
            except CourseError:  # a model without such parts
                continue
            other = replace(self.work, name=f"{self.work.name}, {name}", model=partial(_itself, model))
            trace = self.at(other, other.micro_batch)
            yield self.remedy(name, self.plan(trace, other), trace)

    def elsewhere(self) -> Iterator[Remedy]:
        """What several cards, or adapters only, would leave: by arithmetic."""
        states = self.plan(self.trace, self.work, sharded_states(self.work.optimizer, CARDS))
        yield self.remedy(f"ZeRO-1 on {CARDS} cards", states, self.trace)
        sharded = fully_sharded(self.trace, CARDS)
        yield self.remedy(f"FSDP on {CARDS} cards", self.plan(sharded, self.work), sharded)
        if share_in_matrices(self.trace) > _MOSTLY_MATRICES:
            thin = adapters_only(self.trace, LORA_RANK)
            yield self.remedy(f"LoRA, rank {LORA_RANK}", self.plan(thin, self.work), thin)

    def remedy(
        self,
        name: str | tuple[str, ...],
        plan: MemoryPlan,
        trace: StepTrace,
        words: Words | None = None,
        *,
        batches: float = 1,
    ) -> Remedy:
        """One remedy; its extra work is counted in FLOPs of the same number of samples."""
        parts = (name,) if isinstance(name, str) else name
        words = words or WORDS[parts[0]]
        extra = batches * trace.flops / max(1, self.trace.flops) - 1
        return Remedy(
            parts,
            plan.allocated,
            plan.total,
            plan.safe,
            plan.capacity,
            round(extra, 4),
            words.effect,
            words.changes,
            words.how,
            "reckoned" if words.reckoned else "predicted",
        )

    def _largest(self, variant: Workload) -> int:
        """The largest micro-batch that fits, up to the one that is wanted."""
        size = self.work.micro_batch
        return largest_batch_that(
            lambda batch: batch <= size and self.plan(self.at(variant, batch), variant).fits
        )

    def _variants(self) -> Variants:
        """The step as it is, with mixed precision, with checkpointing, with both, as far as it can have
        them.
        """
        work, size = self.work, self.work.micro_batch
        found: Variants = {(): work}
        if work.precision in ("fp32", "tf32"):
            half = _half(self.card)
            found[half,] = replace(work, precision=half)
        if work.checkpointing:
            return found
        for parts, variant in list(found.items()):
            checkpointed = replace(variant, checkpointing=True)
            try:
                peak = self.at(checkpointed, size).live_peak()
            except CourseError as error:
                self.left_out.append(f"checkpointing: {error}")
                return found
            if peak > _SAVES_NOTHING * self.at(variant, size).live_peak():
                self.left_out.append("checkpointing: its blocks keep little inside, so it saves nothing here")
                return found
            found[*parts, "checkpointing"] = checkpointed
        return found


def _itself(model: nn.Module) -> nn.Module:
    return model


def _half(card: Accelerator) -> Precision:
    """bf16 where the card multiplies it (compute capability 8.0 on), else fp16."""
    major = card.compute_capability.split(".", 1)[0]
    return "fp16" if major.isdigit() and int(major) < 8 else "bf16"


def _has_batch_norm(workload: Workload) -> bool:
    from torch.nn.modules.batchnorm import _BatchNorm

    return any(isinstance(module, _BatchNorm) for module in build(workload).modules())
