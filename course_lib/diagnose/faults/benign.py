"""Which warnings look like errors and are none, and when do they become one?"""

import re
from typing import Any

from course_lib.diagnose.faults.wording import Around, Told, evidence_of, fault, wording

# Lines of code; in the warning itself, which may be broken into lines anywhere, the calls stand in backticks.
_OPTIMIZER_STEP = re.compile(r"^[^#\n`]*\b(?:\w*scaler\.step\(|\w*optim\w*\.step\()[^\n`]*$", re.MULTILINE)
_SCHEDULER_STEP = re.compile(r"^[^#\n`]*\b\w*sched\w*\.step\w*\([^\n`]*$", re.MULTILINE)


# "amp" alone is also in "sample" and "example": only as a word of its own, not as a folder.
_MIXED_PRECISION = re.compile(
    r"scaler\.step|GradScaler|autocast|fp16\s*=\s*True|--fp16|precision\s*=\s*['\"]?16|16-mixed|mixed_precision"
    r"|(?<![\w/.])amp\b(?!/)|\bapex\b|\bultralytics\b",
    re.IGNORECASE,
)


def _scheduler_order(around: Around) -> Told:
    code = "\n".join(
        line for line in around.paste.lines if "Detected call" not in line and "should call them" not in line
    )
    optimizer, scheduler = _OPTIMIZER_STEP.search(code), _SCHEDULER_STEP.search(code)
    ordered = optimizer.start() < scheduler.start() if optimizer and scheduler else None
    scaler = _MIXED_PRECISION.search(code) is not None
    figures: dict[str, Any] = {
        "warning": "lr_scheduler_before_optimizer",
        "scaler_used": scaler or None,
        "order_in_code_correct": ordered,
    }
    evidence = evidence_of(figures)
    if ordered is False:
        return Told(
            fault(
                "train.scheduler_before_optimizer",
                "The scheduler is stepped before the optimizer",
                "In the code of the text the scheduler's step stands first. The first value of the "
                "schedule is skipped.",
                "Call optimizer.step() first, then scheduler.step().",
                "Silencing the warning.",
                severity="warning",
                evidence=evidence,
            ),
            figures,
        )
    if scaler:
        return Told(
            fault(
                "amp.first_step_skipped_benign",
                "Harmless under mixed precision: the scaler skipped the first optimizer step",
                ("The order in the code is right. " if ordered else "")
                + "The first scaled step overflowed (the scale begins at 65536), the scaler left "
                "optimizer.step() out, and the scheduler noticed. One value of the schedule is lost.",
                "Ignore it, or step the scheduler only if the scale did not drop: scale_before <= "
                "scaler.get_scale() after update().",
                ("Swapping the two calls.", "Looking for a forgotten optimizer.step()."),
                severity="note",
                certainty="certain" if ordered else "likely",
                evidence=evidence,
            ),
            figures,
        )
    return Told(
        fault(
            "train.scheduler_before_optimizer",
            "The scheduler was stepped before the optimizer had made a step",
            "Either the two calls are in the wrong order, or the first optimizer step did not happen: a "
            "GradScaler skips it when the first scaled gradients overflow, and that is harmless. The text "
            "does not show which.",
            "With mixed precision ignore it; else call optimizer.step() first, then scheduler.step(), and "
            "check that no branch skips the first step.",
            "Swapping calls that stand in the right order.",
            severity="warning",
            certainty="possible",
            evidence=evidence,
        ),
        figures,
    )


_UNUSED_NONE = fault(
    "ddp.find_unused_without_need_benign",
    "Harmless, and costs a little time: DDP looked for unused parameters and found none",
    "find_unused_parameters=True walks the graph in every step. In this step all parameters had a gradient.",
    "Turn it off (find_unused_parameters=False) if no branch ever skips a layer; else ignore the warning.",
    "Looking for a fault in the model.",
    severity="note",
)
_STRIDES = fault(
    "ddp.grad_strides_benign",
    "Harmless: gradients are laid out otherwise than DDP's buckets, which costs one copy",
    "It comes from 1 x 1 convolutions and from channels_last. Results are the same.",
    "Ignore it, or make the layout the same: model.to(memory_format=torch.channels_last) before DDP, "
    ".contiguous() after a permute in the model.",
    "Looking for a fault in the training.",
    severity="note",
)
_OMP = fault(
    "torchrun.omp_threads_benign",
    "Harmless: torchrun gives each process one CPU thread unless told otherwise",
    "So that several processes do not fight for the cores. Work on the CPU (transforms outside of workers, "
    "gloo training) may be slow with one.",
    "Ignore it, or set OMP_NUM_THREADS to cores divided by processes before torchrun.",
    "Setting it to all cores in each process.",
    severity="note",
)
_DEPRECATED = fault(
    "deprecated_name_benign",
    "Harmless: an old name is used that still works",
    "torch.cuda.amp and torch.distributed.launch are kept for now under their old names.",
    "Use torch.amp.GradScaler('cuda') and torch.autocast('cuda'), torchrun in place of python -m "
    "torch.distributed.launch, when you next edit the code.",
    "Going back to an older torch.",
    severity="note",
)
_CPU_AMP = fault(
    "amp.disabled_without_cuda",
    "Mixed precision for CUDA is switched off, because no card is there",
    "On the CPU the program goes on in full precision. If a card should be there, that is the fault to "
    "look for.",
    "Ignore it on a machine without a card; else look at nvidia-smi and torch.cuda.is_available().",
    "Changing the scaler.",
    severity="note",
)
_BARRIER = fault(
    "ddp.device_not_named_warning",
    "A barrier guessed which card this rank uses",
    "The process group was not told its device. As long as the rank's number is its card's number that is "
    "right; else the job may hang.",
    "init_process_group(..., device_id=torch.device('cuda', local_rank)), after "
    "torch.cuda.set_device(local_rank).",
    "A longer timeout.",
    severity="warning",
)
_NOT_DESTROYED = fault(
    "ddp.group_not_destroyed_benign",
    "Harmless at the end of a run: the process group was not destroyed",
    "It was still open when the program ended. When another error ended the program, that one is the "
    "cause, and this only follows.",
    "Call dist.destroy_process_group() at the end, in a finally block.",
    "Looking for a fault in NCCL.",
    severity="note",
)
_NO_INPUT_GRADIENT = fault(
    "checkpointing.no_gradient_through_block",
    "A checkpointed block gets inputs that need no gradient: with the old kind of checkpointing its "
    "weights are not trained",
    "use_reentrant=True only trains the block if one of its inputs requires a gradient. With "
    "use_reentrant=False the warning is harmless.",
    "checkpoint(..., use_reentrant=False); in transformers gradient_checkpointing_kwargs={'use_reentrant': "
    "False}, or model.enable_input_require_grads().",
    "Ignoring it with use_reentrant=True.",
    severity="warning",
    certainty="likely",
)
_REENTRANT = fault(
    "checkpointing.use_reentrant_not_named_benign",
    "Harmless: the kind of checkpointing is not named",
    "The default is to change, so torch asks for it to be written.",
    "Pass use_reentrant=False.",
    "Going back to an older torch.",
    severity="note",
)
_NOTHING_TO_PIN_FOR = fault(
    "dataloader.pin_memory_without_card_benign",
    "Harmless: pin_memory is set, and there is no card to copy to",
    "Pinned memory only speeds up copies to a card. If a card should be there, that is the fault to look "
    "for.",
    "pin_memory=torch.cuda.is_available(); else look at nvidia-smi.",
    "Changing the number of workers.",
    severity="note",
)
_NO_HOST_NAME = fault(
    "ddp.hostname_not_found_benign",
    "Harmless: the name of the other machine could not be looked up, for a message",
    "Only the text of messages needs it; the connection goes by the address.",
    "Ignore it, or write the address and name into /etc/hosts.",
    "Another port.",
    severity="note",
)
_NO_REDIRECTS = fault(
    "torchrun.no_redirects_benign",
    "Harmless: on Windows and macOS torchrun does not write each rank's output to a file of its own",
    "What the ranks print comes to the terminal all the same.",
    "Ignore it.",
    "Reinstalling PyTorch.",
    severity="note",
)
_TOKENIZERS = fault(
    "dataloader.tokenizers_parallelism_benign",
    "Harmless: the tokenizer stopped using threads, since the process was forked after it had used them",
    "So that the workers do not hang. Each worker tokenizes with one thread.",
    "Set TOKENIZERS_PARALLELISM=false before the start.",
    "num_workers=0.",
    severity="note",
)
_SCHEDULER_STARTED_LATE = fault(
    "train.scheduler_wrapped_optimizer_benign",
    "Harmless: the optimizer was wrapped again after the scheduler was made",
    "Frameworks (apex, Lightning, accelerate) replace optimizer.step; the scheduler can no longer count "
    "its calls.",
    "Ignore it, or make the scheduler after the optimizer was prepared.",
    "Swapping optimizer.step() and scheduler.step().",
    severity="note",
)
_BATCH_SIZE_GUESSED = fault(
    "lightning.batch_size_guessed_benign",
    "Harmless for training: Lightning guessed the batch size to weight what it logs",
    "It took the first number it found in the batch. Only means over an epoch may be a little off.",
    "Pass batch_size= to self.log.",
    "Changing the loader.",
    severity="note",
)
_FEW_BATCHES_LOGGED = fault(
    "lightning.logging_interval_benign",
    "Harmless: an epoch has fewer batches than log_every_n_steps",
    "So nothing is logged within an epoch.",
    "Trainer(log_every_n_steps=...) at or below the number of batches.",
    "More data.",
    severity="note",
)
_NOT_SYNCED = fault(
    "lightning.metric_of_one_rank",
    "A logged metric is that of one rank, not of all",
    "Without sync_dist=True each rank logs its own part of the data, and rank 0's is shown.",
    "self.log(..., sync_dist=True) for what is logged on epoch level; torchmetrics gather by themselves.",
    "Changing the sampler.",
    severity="warning",
)
_GATHERED_SCALARS = fault(
    "dp.gathered_scalars_benign",
    "Harmless: DataParallel gathered one loss from each card into a list",
    "The forward pass returns a single number on each card; together they make a vector.",
    "loss = loss.mean(); better, DistributedDataParallel.",
    "Changing the loss.",
    severity="note",
)
_NO_CACHE = fault(
    "checkpointing.use_cache_switched_off_benign",
    "Harmless: the cache for generating is switched off while gradient checkpointing trains",
    "The cache is of use only when text is generated.",
    "Set model.config.use_cache = False for training.",
    "Switching gradient checkpointing off.",
    severity="note",
)

_SEGMENTS = fault(
    "memory.expandable_segments_unsupported_benign",
    "Harmless: expandable segments do not exist on this system, and the setting is left out",
    "They need Linux, and a build of PyTorch that has them; on Windows there are none.",
    "Ignore it, or take the setting out; against gaps in memory max_split_size_mb works everywhere.",
    "Reinstalling PyTorch.",
    severity="note",
)

WORDINGS = (
    wording("expandable_segments not supported on this platform", _SEGMENTS),
    wording("Detected call of `lr_scheduler.step()` before `optimizer.step()`", _scheduler_order),
    wording("but did not find any unused parameters", _UNUSED_NONE),
    wording("Grad strides do not match bucket view strides", _STRIDES),
    wording("Setting OMP_NUM_THREADS environment variable for each process", _OMP),
    wording(
        (
            "torch.cuda.amp.GradScaler(args...)` is deprecated",
            "torch.cuda.amp.autocast(args...)` is deprecated",
            "torch.distributed.launch is deprecated",
        ),
        _DEPRECATED,
    ),
    wording(("is enabled, but CUDA is not available", "but CUDA is not available. Disabling"), _CPU_AMP),
    wording(
        ("devices used by this process are currently unknown", "using the device under current context"),
        _BARRIER,
    ),
    wording(
        ("destroy_process_group() was not called", "process group has NOT been destroyed"), _NOT_DESTROYED
    ),
    wording("hostname of the client socket cannot be retrieved", _NO_HOST_NAME),
    wording("Redirects are currently not supported in Windows or MacOs", _NO_REDIRECTS),
    wording("None of the inputs have requires_grad=True", _NO_INPUT_GRADIENT),
    wording(
        (
            "the use_reentrant parameter should be passed explicitly",
            "please pass in use_reentrant=True or use_reentrant=False",
        ),
        _REENTRANT,
    ),
    wording("argument is set as true but no accelerator is found", _NOTHING_TO_PIN_FOR),
    wording("has been overridden after learning rate scheduler initialization", _SCHEDULER_STARTED_LATE),
    wording("Trying to infer the `batch_size` from an ambiguous collection", _BATCH_SIZE_GUESSED),
    wording("is smaller than the logging interval", _FEW_BATCHES_LOGGED),
    wording("when logging on epoch level in distributed setting", _NOT_SYNCED),
    wording("all input tensors were scalars; will instead unsqueeze", _GATHERED_SCALARS),
    wording("is incompatible with gradient checkpointing", _NO_CACHE),
    wording("huggingface/tokenizers: The current process just got forked", _TOKENIZERS),
)
