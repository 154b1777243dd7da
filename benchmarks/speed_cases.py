"""How do the public tables of measured speed become cases: what ran, on which card, for how long?

The name of a table tells what it holds: ``train_rtx3090_amp_nhwc_timm.csv`` are training steps under fp16
autocast with channels last on an RTX 3090, ``infer_rtx4090_nchw_amp_timm.csv`` forward passes on an RTX 4090.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections import Counter
from dataclasses import astuple, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import timm
import timm.layers
from truth_tables import Row, family_of, parameter_counts, read_table, same_size, sample

from course_lib.accelerators import find_accelerator
from course_lib.errors import CourseError
from course_lib.plan import convolution_kinds, op_kinds
from course_lib.plan.model_names import named_workload
from course_lib.plan.step_work import StepWork, step_work
from course_lib.plan.tracer import trace
from course_lib.plan.work import Work

NAME = re.compile(
    r"(?P<mode>train|infer)_(?P<card>rtx\d+)_(?:(?P<first>nchw|nhwc)_)?amp_(?:"
    r"(?P<last>nchw|nhwc)_)?timm"
)
INFERENCE_BATCH = 64
# The RTX 5090 table does not name its layout. Its speeds go with the plain-layout table of the RTX 4090:
# half of the ratios lie within 4.6 % of their middle, and 8.7 % for the channels-last table.
UNNAMED_LAYOUT = {"RTX 5090": "nchw"}
STACKS = {"train": "timm-2022", "infer": "current"}

# Architectures that are one idea under many names: the harder question is asked with them left out together.
ONE_IDEA = {
    "residual networks": "resnet resnest res2net byobnet senet hrnet regnet nfnet cspnet vovnet densenet "
    "byoanet "
    "inception_resnet_v2 inception_v3 inception_v4 pnasnet nasnet dla dpn selecsls sknet tresnet xception "
    "xception_aligned resnetv2 vgg gluon_resnet gluon_xception",
    "inverted residuals": "efficientnet mobilenetv3 ghostnet hardcorenas rexnet mnasnet tinynet repvit "
    "fasternet",
    "vision transformers": "vision_transformer deit beit cait xcit volo crossvit tnt twins swin_transformer "
    "swin_transformer_v2 swin_transformer_v2_cr convit visformer levit pit eva vision_transformer_hybrid "
    "hiera "
    "vision_transformer_relpos vision_transformer_sam nest coat efficientvit_msra tiny_vit maxxvit mvitv2 "
    "pvt_v2",
    "mixers": "mlp_mixer metaformer poolformer sequencer convmixer",
}
IDEA_OF = {family: idea for idea, families in ONE_IDEA.items() for family in families.split()}


@dataclass(frozen=True)
class Table:
    """What a table measured."""

    path: Path
    mode: str
    card: str
    channels_last: bool
    stack: str


@dataclass(frozen=True)
class Case:
    """One row: the model, its family, the measured seconds of a step, and the work of it."""

    model: str
    family: str
    table: Table
    seconds: float
    work: StepWork

    @property
    def idea(self) -> str:
        """The family, or the wider group that it belongs to."""
        return IDEA_OF.get(self.family, self.family)


def table_of(path: Path) -> Table:
    """What a table's name says. Raises CourseError for a name that does not say it."""
    found = NAME.search(path.name)
    if found is None:
        raise CourseError(
            f"{path.name} does not tell what was measured; name it like train_rtx3090_amp_nhwc_timm.csv "
            "or infer_rtx4090_nchw_amp_timm.csv."
        )
    card = find_accelerator(found["card"]).name
    layout = found["first"] or found["last"] or UNNAMED_LAYOUT.get(card, "nhwc")
    return Table(path, found["mode"], card, layout == "nhwc", STACKS[found["mode"]])


def cases(
    path: Path, *, limit: int | None = None, cache: Path | None = None
) -> tuple[list[Case], list[str], list[str]]:
    """The cases of a table; and the models that are other ones today or unknown, and those that failed."""
    table = table_of(path)
    rows = sample(read_table(path, f"{table.mode}_batch_size"), limit)
    counts = parameter_counts(path)
    # The training tables are older than fused attention, the inference tables are not.
    timm.layers.set_fused_attn(table.mode == "infer")
    done: list[Case] = []
    unmatched: list[str] = []
    failed: list[str] = []
    for row in rows:
        if not timm.is_model(row.model):
            unmatched.append(row.model)
            continue
        try:
            work, parameters = worked(row, table, cache)
        except CourseError as error:
            failed.append(f"{row.model}: {error}")
            continue
        millions = counts.get(row.model)
        if millions is not None and not same_size(parameters, millions):
            unmatched.append(row.model)
            continue
        speed = float(row.columns[f"{table.mode}_samples_per_sec"])
        done.append(Case(row.model, family_of(row.model), table, row.batch_size / speed, work))
    return done, unmatched, failed


def worked(row: Row, table: Table, cache: Path | None) -> tuple[StepWork, int]:
    """The work of a row and the number of parameters, read from ``cache`` where it was made before.

    A forward pass is traced with INFERENCE_BATCH images once for all tables, and scaled to the row's batch.
    """
    size = int(float(row.columns[f"{table.mode}_img_size"]))
    batch = row.batch_size if table.mode == "train" else INFERENCE_BATCH
    layout = "nhwc" if table.channels_last else "nchw"
    name = f"{table.mode}_{layout}_{row.model}_{size}_{batch}_{taxonomy()}.json.gz"
    path = cache / name if cache else None
    if path is not None and path.exists():
        work, parameters = load_work(path)
    else:
        workload = named_workload(
            f"timm:{row.model}",
            image_size=size,
            precision="fp16",
            channels_last=table.channels_last,
            micro_batch=batch,
        )
        taken = trace(workload, inference=table.mode == "infer")
        work, parameters = step_work(taken), taken.parameter_count
        if path is not None:
            save_work(path, work, parameters)
    return (work if table.mode == "train" else scaled(work, row.batch_size)), parameters


def scaled(work: StepWork, batch_size: int) -> StepWork:
    """A forward pass at another batch: all of its work grows but the casts of weights."""
    ratio = batch_size / work.batch_size
    pieces: Counter[tuple[Work, str, str]] = Counter()
    for (piece, phase, module), count in work.pieces.items():
        grown = piece
        if not piece.kind.startswith("weight_"):
            rows, columns, inner = piece.dims
            grown = replace(
                piece,
                flops=piece.flops * ratio,
                nbytes=piece.nbytes * ratio,
                dims=(rows * ratio, columns, inner),
            )
        pieces[grown, phase, module] += count
    return replace(work, batch_size=batch_size, pieces=dict(pieces), flops=round(work.flops * ratio))


@lru_cache(maxsize=1)
def taxonomy() -> str:
    """A short digest of the code that sorts work into kinds: what it sorted before is not read again
    after.
    """
    code = b"".join(Path(module.__file__).read_bytes() for module in (op_kinds, convolution_kinds))
    return hashlib.sha256(code).hexdigest()[:8]


def save_work(path: Path, work: StepWork, parameters: int) -> None:
    """Keep the work of a step, modules left out."""
    pieces: Counter[tuple[Any, ...]] = Counter()
    for (piece, phase, _), count in work.pieces.items():
        pieces[(*astuple(piece), phase)] += count
    data = {
        "model": work.model, "batch_size": work.batch_size, "precision": work.precision,
        "launches": work.launches, "flops": work.flops, "gradient_bytes": work.gradient_bytes,
        "gradients": len(work.gradients), "parameters": parameters,
        "pieces": [[*piece, count] for piece, count in pieces.items()],
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(data).encode("utf-8"), 6, mtime=0))


def load_work(path: Path) -> tuple[StepWork, int]:
    """What ``save_work`` kept; all gradients alike."""
    data = json.loads(gzip.decompress(path.read_bytes()))
    pieces = {
        (Work(kind, family, flops, nbytes, tuple(dims), half, kernels, groups), phase, ""): count
        for kind, family, flops, nbytes, dims, half, kernels, groups, phase, count in data["pieces"]
    }
    tensors = data["gradients"]
    gradients = ((1.0, data["gradient_bytes"] // tensors),) * tensors if tensors else ()
    work = StepWork(
        data["model"],
        data["batch_size"],
        data["precision"],
        pieces,
        data["launches"],
        data["flops"],
        gradients,
    )
    return work, data["parameters"]
