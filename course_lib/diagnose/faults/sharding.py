"""What do FSDP and DeepSpeed refuse: mixed types, batch sizes that do not multiply, absent weights?"""

from course_lib.diagnose.faults.wording import Around, Told, evidence_of, fault, wording

_MIXED = fault(
    "fsdp.mixed_dtypes",
    "FSDP was given parameters of different types in one unit",
    "FSDP sends the parameters of a unit together, in one tensor, and that has one type. LoRA weights in "
    "float32 beside a half-precision model, a norm that was kept in float32, or a quantised layer give "
    "this.",
    "Make the types equal before wrapping: model.to(torch.bfloat16) for all of it, or load in float32 and "
    "let MixedPrecision cast; where types must differ, wrap those modules as units of their own.",
    ("find_unused_parameters=True.", "GPU memory advice."),
)
_BATCH_FIGURES = (
    r"world_size\s+(?P<train_batch>\d{1,9})\s*!=\s*(?P<micro_batch>\d{1,9})\s*\*\s*(?P<accumulation>\d{1,9})\s*\*\s*"
    r"(?P<world_size>\d{1,9})"
)
_ELSEWHERE = fault(
    "sharding.parameter_is_elsewhere",
    "A weight is used outside of the forward pass that gathers it: here it is an empty or flat piece",
    "ZeRO-3 and FSDP keep a part of each weight on each rank and put it together only in the module's own "
    "forward. A weight that is used by hand (tied embeddings, generate(), a second path, evaluation "
    "outside of the wrapper) has another shape.",
    "Call the module, not its weight; else gather it first: with deepspeed.zero.GatheredParameters(...), or "
    "FSDP.summon_full_params(model). With PEFT, wrap after get_peft_model.",
    ("Reshaping the weight.",),
    certainty="likely",
)
_META = fault(
    "checkpoint.weights_not_loaded",
    "A part of the model has no data yet: it was made on the meta device",
    "low_cpu_mem_usage, device_map or init_empty_weights make a model without memory, and loading fills "
    "it. What the checkpoint lacks, or what was offloaded, stays empty, and cannot be moved by .to().",
    "Look which parameters are still empty: [n for n, p in model.named_parameters() if p.is_meta]; load "
    "without device_map (and low_cpu_mem_usage=False) when you train or move the model; a new module is "
    "made by to_empty() and then initialised.",
    ("model.to(device) again.", "A larger card."),
    certainty="likely",
)


def _batch_sizes(around: Around) -> Told:
    f = around.figures
    known = None not in (f["micro_batch"], f["accumulation"], f["world_size"])
    right = f["micro_batch"] * f["accumulation"] * f["world_size"] if known else None
    figures = {name: f[name] for name in ("train_batch", "micro_batch", "accumulation", "world_size")}
    product = (
        "" if right is None else f" Here they give {right}, and train_batch_size says {f['train_batch']}."
    )
    return Told(
        fault(
            "deepspeed.batch_sizes_do_not_multiply",
            "DeepSpeed's batch sizes contradict each other",
            "train_batch_size must be micro batch x accumulation steps x number of ranks, in the config "
            f"and in the Trainer's arguments alike.{product}",
            (
                'Write "auto" for train_batch_size, train_micro_batch_size_per_gpu and '
                "gradient_accumulation_steps in the config, and set them once, in the Trainer"
                + ("." if right is None else f"; or train_batch_size={right}."),
                "Check the number of ranks: fewer cards than the config was written for change the product.",
            ),
            ("Changing the batch size by trial.",),
            evidence=evidence_of(figures),
        ),
        figures,
    )


WORDINGS = (
    wording(
        (
            "Must flatten tensors with uniform dtype",
            "requires uniform dtype",
            "expects uniform original parameter dtype",
        ),
        _MIXED,
        r"but\s+got\s+\{?(?P<first>torch\.\w{3,12})(?:\s+and|,)\s+(?P<second>torch\.\w{3,12})",
    ),
    wording(
        "Check batch related parameters. train_batch_size is not equal",
        _batch_sizes,
        _BATCH_FIGURES,
    ),
    wording("'weight' must be 2-D", _ELSEWHERE),
    wording("Cannot copy out of meta tensor", _META),
)
