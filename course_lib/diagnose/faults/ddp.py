"""What does DistributedDataParallel complain about: parameters, devices, models that differ?"""

import re
from dataclasses import replace
from typing import Any

from course_lib.diagnose.faults.tracebacks import raised
from course_lib.diagnose.faults.wording import Around, Told, evidence_of, fault, wording


def _unused(around: Around) -> Told:
    text = around.paste.body
    indices = re.search(
        r"Parameter\s+indices\s+which\s+did\s+not\s+receive\s+grad\s+for\s+rank\s+(\d{1,6}):\s*([\d"
        r"\s]{1,2000})",
        text,
    )
    names = re.search(
        r"Parameters\s+which\s+did\s+not\s+receive\s+grad\s+for\s+rank\s+(\d{1,6}):\s*([\w.,\s]{1,2000}?)"
        r"(?:\n|$)",
        text,
    )
    numbers = [int(n) for n in indices[2].split()][:200] if indices else None
    figures: dict[str, Any] = {
        "parameter_indices": numbers,
        "parameters": [n.strip() for n in names[2].split(",") if n.strip()][:200] if names else None,
        "rank": int((indices or names)[1]) if indices or names else around.rank,  # type: ignore[index]
    }
    already = around.search(r"find_unused_parameters\s*=\s*True")
    first = (
        "Find the parameters that took no part in the loss (set TORCH_DISTRIBUTED_DEBUG=DETAIL for their "
        "names): remove or freeze them, or use their output in the loss; where a branch skips them on "
        "purpose, pass find_unused_parameters=True to DDP."
    )
    if already and around.says("you have already passed"):
        first = (
            "find_unused_parameters=True is set already: then the outputs of forward hold tensors that the "
            "loss does not use, or that DDP cannot see (a custom class). Return only what the loss uses, as "
            "tensors, tuples or dicts."
        )
    if around.says("your training graph has changed in this iteration"):
        first = (
            "static_graph=True was set, and this step used other layers than the first: leave it out, or "
            "make every step use the same ones."
        )
    return Told(
        fault(
            "ddp.unused_parameters",
            "Some parameters got no gradient, and DDP waits for all of them",
            "DDP averages the gradient of every parameter. Those of a layer that the forward pass skipped, "
            "or whose output is not in the loss, never come.",
            (
                first,
                "Call the model itself, not model.module or a method of it: DDP only sees its own forward.",
            ),
            (
                "find_unused_parameters=True without knowing which: it walks the whole graph in each step, "
                "and hides a layer that was forgotten.",
                "A longer timeout.",
            ),
            evidence=evidence_of(figures),
        ),
        figures,
    )


def _ready_twice(around: Around) -> Told:
    match = re.search(
        r"Parameter\s+at\s+index\s+(\d{1,6})(?:\s+with\s+name\s+([\w.]{1,200}?))?\s+has\s+been\s+marked",
        around.paste.body,
    )
    figures = {"parameter_index": int(match[1]) if match else None, "parameter": match[2] if match else None}
    return Told(
        fault(
            "ddp.parameter_ready_twice",
            "The gradient of one parameter was finished twice in one backward pass",
            "Usual causes: gradient checkpointing of the old kind (use_reentrant=True) together with "
            "find_unused_parameters=True or with layers that are used twice; two forward passes before one "
            "backward; parameters shared outside of forward.",
            (
                "With gradient checkpointing: use_reentrant=False, and find_unused_parameters=False; if "
                "the graph is the same in each step, static_graph=True.",
                "Several losses: add them and call backward once.",
            ),
            ("find_unused_parameters=True: with checkpointing it is often the cause.",),
            certainty="likely",
            evidence=evidence_of(figures),
        ),
        figures,
    )


def _differs(around: Around) -> Told:
    match = around.search(r"params?\[(\d{1,6})\]")
    figures = {"parameter_index": int(match[1]) if match else None}
    return Told(
        fault(
            "ddp.models_differ_between_ranks",
            "The ranks have built different models",
            "DDP compares shapes at the start. A model that depends on the rank, on its part of the data "
            "(number of classes, size of the vocabulary), or on a checkpoint that only one rank loaded, "
            "differs.",
            "Build the model from the same settings on every rank: take class count and vocabulary from "
            "the whole data set, not from the rank's part; print the shape of the named parameter on each "
            "rank.",
            ("find_unused_parameters=True.", "A longer timeout."),
            evidence=evidence_of(figures),
        ),
        figures,
    )


_DEVICE_IDS = fault(
    "ddp.model_not_on_its_device",
    "DDP got device_ids, and the model is not on that card",
    "The model must be moved to the rank's card before it is wrapped. On the CPU device_ids must be left "
    "out.",
    "model.to(local_rank) before DistributedDataParallel(model, device_ids=[local_rank]); with gloo on the "
    "CPU, no device_ids.",
    "Moving the model after it was wrapped.",
)
_NO_GRADIENT = fault(
    "ddp.nothing_to_train",
    "DDP was given a module without parameters that need a gradient",
    "All are frozen, or the module has none (a loss, an activation).",
    "Wrap only the module that is trained, after requires_grad was set; leave frozen parts outside of DDP.",
    "find_unused_parameters=True.",
)
_WRAPPED = fault(
    "ddp.attribute_of_the_wrapper",
    "The wrapper does not have the attribute: the model is inside it",
    "DistributedDataParallel and DataParallel hold the model as .module.",
    "Use model.module.NAME for attributes and methods (but call the forward pass on the wrapper), and "
    "model.module.state_dict() for saving.",
    "Copying the attribute onto the wrapper.",
)
_REPLICA = fault(
    "dp.error_in_a_replica",
    "The error arose in one of DataParallel's copies of the model",
    "DataParallel passes it on with its own traceback around it. The original traceback below names the "
    "line.",
    "Read the part after 'Original Traceback'; run the same batch on one card, without DataParallel, to "
    "see it plainly; then change to DistributedDataParallel.",
    "Debugging DataParallel itself.",
    certainty="likely",
)
_DP_DEVICE = fault(
    "dp.model_not_on_the_first_card",
    "DataParallel wants the model on its first card",
    "Parameters must be on device_ids[0] when forward is called. Moving it elsewhere, or a first card that "
    "is not cuda:0, gives this.",
    'model.to(f"cuda:{device_ids[0]}") before the first call; or CUDA_VISIBLE_DEVICES to choose cards; '
    "better, DistributedDataParallel.",
    "Moving only the input.",
)
_SYNC_BN = fault(
    "ddp.sync_batchnorm_needs_gpu",
    "SyncBatchNorm works on cards alone",
    "The layer has no CPU version.",
    "Convert to SyncBatchNorm only where the model runs on cards; on the CPU keep BatchNorm.",
    "Another backend.",
)
_UNEVEN = fault(
    "ddp.uneven_inputs",
    "The ranks had different numbers of batches",
    "One rank ran out of data while the others wait for its gradients.",
    "Give all ranks the same number of batches (DistributedSampler pads or drops), or train inside `with "
    "model.join():`.",
    "A longer timeout.",
)
_LAUNCHER_KEYS = fault(
    "ddp.launcher_argument",
    "The launcher passes --local-rank, and the script does not know it",
    "torch.distributed.launch adds the argument (with a hyphen since 2.0, with an underscore before); "
    "torchrun sets LOCAL_RANK in the environment in its place.",
    'Start with torchrun and read int(os.environ["LOCAL_RANK"]); or accept both: '
    'parser.add_argument("--local-rank", "--local_rank", '
    "type=int).",
    "Deleting the argument from the command line: the launcher adds it.",
)


def _replica(around: Around) -> Told | None:
    if around.figures["replica"] is None:
        return None
    inner = next((error for error in raised(around.paste) if not error.secondary), None)
    if inner is None or not inner.where:
        return Told(_REPLICA)
    figures = {"raised": str(inner), "where": inner.where}
    return Told(
        replace(
            _REPLICA,
            summary=f"{_REPLICA.summary}, at {inner.where}: {str(inner)[:120]}",
            remedies=(f"Look at {inner.where} first. {_REPLICA.remedies[0]}",),
            evidence=evidence_of(figures),
        ),
        figures,
    )


_OTHER_BACKEND = fault(
    "ddp.tensor_not_on_the_backends_device",
    "The backend cannot work with tensors on this device",
    "NCCL exchanges tensors on cards alone; gloo those of the CPU. A number or a list that is gathered is "
    "most often still on the CPU.",
    "Move the tensor to the rank's card before the collective; or "
    "init_process_group('cpu:gloo,cuda:nccl'), which serves both.",
    "Another port, or a longer timeout.",
)

WORDINGS = (
    wording(
        ("No backend type associated with device type", "Tensors must be CUDA and dense"),
        _OTHER_BACKEND,
        r"device\s+type\s+(?P<device>\w{2,10})",
    ),
    wording(
        (
            "Expected to have finished reduction in the prior iteration",
            "has parameters that were not used in producing the loss",
            "your training graph has changed in this iteration",
        ),
        _unused,
    ),
    wording("Expected to mark a variable ready only once", _ready_twice),
    wording(
        (
            "appears not to match",
            "DDP expects same model across all ranks",
            "Model replicas must have an equal number of parameters",
            "Model parameters shape mismatch",
        ),
        _differs,
    ),
    wording(
        (
            "device_ids and output_device arguments only work with",
            "input module must be on the same type of devices",
        ),
        _DEVICE_IDS,
    ),
    wording("is not needed when a module doesn't have any parameter", _NO_GRADIENT),
    wording(
        ("'DistributedDataParallel' object has no attribute", "'DataParallel' object has no attribute"),
        _WRAPPED,
        r"has\s+no\s+attribute\s+'(?P<attribute>\w{1,80})'",
    ),
    wording(
        "in replica",
        _replica,
        r"in\s+replica\s+(?P<replica>\d{1,4})\s+on\s+device\s+(?P<device>"
        r"\d{1,4})",
    ),
    wording("module must have its parameters and buffers on device", _DP_DEVICE),
    wording(
        ("SyncBatchNorm expected input tensor to be on", "SyncBatchNorm layers only work with"), _SYNC_BN
    ),
    wording("Detected at least one rank that exhausted inputs", _UNEVEN),
    wording(("unrecognized arguments: --local-rank", "unrecognized arguments: --local_rank"), _LAUNCHER_KEYS),
)
