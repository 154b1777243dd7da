"""How do the public tables of measured speed become cases: what ran, on which card, for how long?

The name of a table tells what it holds: ``train_rtx3090_amp_nhwc_timm.csv`` are training steps under fp16
autocast with channels last on an RTX 3090, ``infer_rtx4090_nchw_amp_timm.csv`` forward passes on an RTX 4090.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import timm
import timm.layers
from truth_tables import Row, family_of, parameter_counts, read_table, same_size, sample

from course_lib.accelerators import find_accelerator
from course_lib.errors import CourseError
from course_lib.plan.model_names import named_workload
from course_lib.plan.step_trace import StepTrace, interpolate, load_trace
from course_lib.plan.step_work import StepWork, step_work
from course_lib.plan.tracer import trace

NAME = re.compile(
    r"(?P<mode>train|infer)_(?P<card>rtx\d+)_(?:(?P<first>nchw|nhwc)_)?amp_(?:"
    r"(?P<last>nchw|nhwc)_)?timm"
)
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
    layout = found["first"] or found["last"] or "nhwc"
    card = find_accelerator(found["card"]).name
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
            taken = traced(row, table, cache)
        except CourseError as error:
            failed.append(f"{row.model}: {error}")
            continue
        millions = counts.get(row.model)
        if millions is not None and not same_size(taken.parameter_count, millions):
            unmatched.append(row.model)
            continue
        work = step_work(taken)
        speed = float(row.columns[f"{table.mode}_samples_per_sec"])
        done.append(Case(row.model, family_of(row.model), table, row.batch_size / speed, work))
    return done, unmatched, failed


def traced(row: Row, table: Table, cache: Path | None) -> StepTrace:
    """The trace of a row, kept in ``cache``.

    Forward passes at other batch sizes are drawn from two traces.
    """
    size = int(float(row.columns[f"{table.mode}_img_size"]))
    if table.mode == "train":
        return _trace(row.model, size, row.batch_size, table, cache)
    low, high = (_trace(row.model, size, batch, table, cache) for batch in (8, 16))
    between = interpolate(low, high, row.batch_size)
    return between or _trace(row.model, size, row.batch_size, table, cache)


def _trace(model: str, size: int, batch: int, table: Table, cache: Path | None) -> StepTrace:
    layout = "nhwc" if table.channels_last else "nchw"
    path = cache / f"{table.mode}_{layout}_{model}_{size}_{batch}.json.gz" if cache else None
    if path is not None and path.exists():
        return load_trace(path)
    workload = named_workload(
        f"timm:{model}",
        image_size=size,
        precision="fp16",
        channels_last=table.channels_last,
        micro_batch=batch,
    )
    made = trace(workload, inference=table.mode == "infer")
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        made.save(path)
    return made
