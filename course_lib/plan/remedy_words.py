"""What does each remedy change in the training, and how is it written? The words, by the remedy's name."""

from __future__ import annotations

from dataclasses import dataclass

from course_lib.plan.remedy_list import Effect, Remedy

CARDS = 4  # how many cards are assumed where memory is shared between several
LORA_RANK = 8  # the default r of PEFT's LoraConfig


@dataclass(frozen=True)
class Words:
    """``effect`` and ``changes``: what becomes of the mathematics. ``how``: the line to write. ``reckoned``:
    whether another library does it, so that the course only reckons.
    """

    effect: Effect
    changes: str
    how: str
    reckoned: bool = False


WORDS: dict[str, Words] = {
    "expandable segments": Words(
        "none", "the same numbers", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, before the start"
    ),
    "foreach off": Words(
        "none", "the same numbers; a slower step of the optimizer", "optimizer(..., foreach=False)"
    ),
    "channels_last": Words(
        "none", "the same up to rounding", "model and images .to(memory_format=torch.channels_last)"
    ),
    "checkpointing": Words(
        "none", "the same gradients", "course_lib.models.checkpointing, or the model's own switch"
    ),
    "bf16": Words(
        "rounding",
        "products are rounded to 16 bits",
        "torch.autocast(..., dtype=torch.bfloat16) around forward and loss",
    ),
    "fp16": Words(
        "rounding",
        "products are rounded to 16 bits",
        "torch.autocast(..., dtype=torch.float16) around forward and loss, and a GradScaler",
    ),
    "sgd": Words(
        "training", "another optimizer: find its learning rate anew", "torch.optim.SGD(..., momentum=0.9)"
    ),
    "sgd-plain": Words(
        "training", "no momentum: find the learning rate anew", "torch.optim.SGD(...) without momentum"
    ),
    "8-bit states": Words(
        "rounding", "optimizer states are rounded to 8 bits", "bitsandbytes: AdamW8bit and the like", True
    ),
    "pooled head": Words(
        "model", "another model: train and test it anew", "course_lib.models.slim.pooled_head(model)"
    ),
    "separable convolutions": Words(
        "model", "another model: train and test it anew", "course_lib.models.slim.separable(model)"
    ),
    f"ZeRO-1 on {CARDS} cards": Words(
        "cards",
        f"{CARDS} such cards share the optimizer states",
        "ZeroRedundancyOptimizer, or DeepSpeed stage 1",
        True,
    ),
    f"FSDP on {CARDS} cards": Words(
        "cards",
        f"{CARDS} such cards share parameters, gradients and states, and send them in each step",
        "torch.distributed.fsdp.fully_shard, or DeepSpeed stage 3",
        True,
    ),
    f"LoRA, rank {LORA_RANK}": Words(
        "model",
        "only adapters are trained, beside a trained model: no training from scratch",
        f"peft.LoraConfig(r={LORA_RANK})",
        True,
    ),
}


def accumulating(times: int, batch_size: int, instead_of: int, batch_norm: bool) -> Words:
    """For gradient accumulation: ``times`` micro-batches of ``batch_size`` in place of one larger one."""
    how = f"batches of {batch_size}, loss / {times}, one optimizer step for every {times}"
    if batch_norm:
        over = f"BatchNorm computes its statistics over {batch_size} samples, not {instead_of}"
        return Words("statistics", over, how)
    return Words("none", "the same up to rounding", how)


def smaller(batch_size: int, instead_of: int) -> Words:
    """For a smaller batch, and nothing beside it."""
    changes = f"a batch of {batch_size}, not {instead_of}: find the learning rate anew"
    return Words("training", changes, f"DataLoader(..., batch_size={batch_size})")


def together(words: list[Words]) -> Words:
    """Several remedies at once: the strongest effect, and all that is said."""
    effect = max((one.effect for one in words), key=Remedy.EFFECTS.index)
    changed = [one.changes for one in words if one.effect != "none"] or [words[0].changes]
    return Words(
        effect,
        "; ".join(dict.fromkeys(changed)),
        "; ".join(one.how for one in words),
        any(one.reckoned for one in words),
    )
