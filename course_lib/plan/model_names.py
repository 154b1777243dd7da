"""Which model does a name mean? torchvision, timm, transformers, the course's own, or the learner's
``module:factory``.
"""

from __future__ import annotations

import contextlib
import difflib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from course_lib.errors import CourseError
from course_lib.plan.optimizers import optimizer_rule
from course_lib.plan.own_model import own_workload
from course_lib.plan.workload import Batch, Workload, default_loss

NAMES = "a torchvision model (resnet50), timm:NAME, transformers:TYPE, config.json, gpt, cnn, module:factory"
SEQUENCE = 512  # tokens a text model gets where the caller gives none


def named_workload(
    name: str,
    *,
    image_size: int | None = None,
    sequence: int | None = None,
    optimizer: str = "sgd",
    **settings: Any,
) -> Workload:
    """The workload of a model given by name, with random weights and no network.

    ``name``: a torchvision model (``resnet50``), ``timm:NAME``, ``transformers:TYPE``
    (``transformers:bert``), the path of a ``config.json``, ``gpt``, ``cnn``, or ``module:factory`` where
    the factory returns a module (with ``example_input`` as an attribute, or taking images) or a Workload.
    ``image_size`` is for image models, ``sequence`` for text models. ``settings`` are fields of Workload.
    Raises CourseError for an unknown name, with near matches, and for a size that the model has no use for.
    """
    settings["optimizer"] = optimizer_rule(optimizer)
    kind, colon, rest = name.partition(":")
    if not kind or (colon and not rest):
        raise CourseError(f"{name!r} names no model. The names are {NAMES}.")
    is_text = kind in ("transformers", "gpt") or name.endswith(".json")
    if is_text and image_size is not None:
        raise CourseError(f"An image size means nothing to {name}: leave it out.")
    if not is_text and sequence is not None:
        raise CourseError(f"A sequence length means nothing to {name}: leave it out.")
    if kind == "transformers" and rest:
        return _transformers(rest, sequence, settings)
    if is_text:
        return _gpt(sequence, settings) if name == "gpt" else _transformers(name, sequence, settings)
    if name == "cnn":
        if image_size is not None:
            raise CourseError("The images of cnn have 28 pixels a side: leave the image size out.")
        return _cnn(settings)
    if kind == "timm" and rest:
        return _timm(rest, image_size, settings)
    if rest:
        return own_workload(kind, rest, image_size, settings)
    return _torchvision(name, image_size, settings)


def _images(channels: int, height: int, width: int, classes: int) -> Callable[[int], Batch]:
    def batch(batch_size: int) -> Batch:
        images = torch.empty(batch_size, channels, height, width)
        return Batch((images,), target=torch.empty(batch_size, dtype=torch.long))

    return batch


def _near(name: str, known: list[str], kind: str) -> CourseError:
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(close)}?" if close else "look at the list of that library."
    return CourseError(f"There is no {kind} model {name!r}; {hint}")


def _timm(name: str, image_size: int | None, settings: dict[str, Any]) -> Workload:
    try:
        import timm
    except ImportError:
        raise CourseError(
            f"timm:{name} needs the package timm, which is not installed: pip install timm."
        ) from None
    if not timm.is_model(name):
        raise _near(name, timm.list_models(), "timm")
    cfg = timm.get_pretrained_cfg(name)
    channels, height, width = cfg.input_size if cfg else (3, 224, 224)
    classes = (cfg.num_classes if cfg else 1000) or 1000

    def model() -> nn.Module:
        if image_size:
            # Transformers need to know the size, and say so by taking it.
            with contextlib.suppress(TypeError):
                sized: nn.Module = timm.create_model(name, num_classes=classes, img_size=image_size)
                return sized
        built: nn.Module = timm.create_model(name, num_classes=classes)
        return built

    if image_size:
        height = width = image_size
    return Workload(
        f"timm:{name}", model, _images(channels, height, width, classes), default_loss, **settings
    )


def _torchvision(name: str, image_size: int | None, settings: dict[str, Any]) -> Workload:
    from torchvision import models

    known = models.list_models()
    if name not in known:
        error = _near(name, known, "torchvision")
        raise CourseError(f"{error} All names: {NAMES}.")
    builder = models.get_model_builder(name)
    family = builder.__module__.removeprefix("torchvision.models.").split(".")[0]
    if family in ("detection", "quantization"):
        raise CourseError(
            f"{name} cannot be planned: {family} models choose their work by the values of the data, "
            "which a prediction does not have; plan its backbone instead."
        )
    crop: Any = 224
    weights = models.get_model_weights(name)
    if len(weights):
        keywords = getattr(next(iter(weights)).transforms, "keywords", {})
        crop = keywords.get("crop_size", keywords.get("resize_size", crop))
    size = image_size or (crop[0] if isinstance(crop, tuple | list) else crop)

    def model() -> nn.Module:
        extra = {"init_weights": False} if name in ("inception_v3", "googlenet") else {}
        if family == "segmentation":
            extra["weights_backbone"] = None  # type: ignore[assignment]
        if name.startswith("vit_"):  # its positions are made for one size
            extra["image_size"] = size  # type: ignore[assignment]
        return builder(weights=None, **extra)  # type: ignore[no-any-return]

    batch = _images(3, size, size, 1000)
    if family == "segmentation":

        def batch(batch_size: int) -> Batch:
            mask = torch.empty(batch_size, size, size, dtype=torch.long)
            return Batch((torch.empty(batch_size, 3, size, size),), target=mask)

    elif family == "video":

        def batch(batch_size: int) -> Batch:
            clip = torch.empty(batch_size, 3, 16, size, size)
            return Batch((clip,), target=torch.empty(batch_size, dtype=torch.long))

    elif family == "optical_flow":

        def batch(batch_size: int) -> Batch:
            frames = tuple(torch.empty(batch_size, 3, 360, 480) for _ in range(2))
            return Batch(frames, target=torch.empty(batch_size, 2, 360, 480))

    return Workload(name, model, batch, default_loss, **settings)


def _read_config(path: Path) -> tuple[str, dict[str, Any]]:
    """The model type of a transformers ``config.json``, and its other values."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return values["model_type"], {name: value for name, value in values.items() if name != "model_type"}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CourseError(f"{path} is not a transformers config.json with a model_type ({error}).") from None


def _transformers(kind: str, sequence: int | None, settings: dict[str, Any]) -> Workload:
    config_file = _read_config(Path(kind)) if kind.endswith(".json") else None
    try:
        import transformers
    except ImportError:
        raise CourseError(
            f"{kind} needs the package transformers, which is not installed: pip install transformers."
        ) from None
    if config_file is not None:
        model_type, values = config_file
    else:
        model_type, values = kind, {}
    known = list(transformers.CONFIG_MAPPING.keys())
    if model_type not in known:
        raise _near(model_type, known, "transformers")
    config = transformers.AutoConfig.for_model(model_type, **values)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    vocabulary = getattr(text, "vocab_size", None)
    heads = [
        head
        for head in ("AutoModelForCausalLM", "AutoModelForMaskedLM", "AutoModelForSeq2SeqLM")
        if type(config) in getattr(transformers, head)._model_mapping
    ]
    named = " ".join(getattr(config, "architectures", None) or [])
    if getattr(config, "is_encoder_decoder", False) and "AutoModelForSeq2SeqLM" in heads:
        heads = ["AutoModelForSeq2SeqLM"]
    elif (
        "AutoModelForMaskedLM" in heads
        and "ForCausalLM" not in named
        and not getattr(config, "is_decoder", False)
    ):
        heads = ["AutoModelForMaskedLM"]
    if vocabulary and heads:
        tokens = min(sequence or SEQUENCE, getattr(text, "max_position_embeddings", None) or SEQUENCE)
        if sequence and tokens < sequence:
            raise CourseError(f"{kind} takes at most {tokens} tokens, not {sequence}.")

        def batch(batch_size: int) -> Batch:
            ids = torch.empty(batch_size, tokens, dtype=torch.long)
            given = {"input_ids": ids, "labels": torch.empty_like(ids)}
            if heads[0] == "AutoModelForSeq2SeqLM":
                given["decoder_input_ids"] = torch.empty_like(ids)
            if heads[0] != "AutoModelForMaskedLM":
                given["use_cache"] = False  # type: ignore[assignment]
            return Batch((), given)

        head = heads[0]
    elif type(config) in transformers.AutoModelForImageClassification._model_mapping:
        size = getattr(config, "image_size", 224) or 224
        size = size[0] if isinstance(size, tuple | list) else size

        def batch(batch_size: int) -> Batch:
            images = torch.empty(batch_size, getattr(config, "num_channels", 3), size, size)
            return Batch((), {"pixel_values": images, "labels": torch.empty(batch_size, dtype=torch.long)})

        head = "AutoModelForImageClassification"
    else:
        raise CourseError(
            f"transformers:{model_type} is neither a language model nor an image classifier; "
            "give your own module:factory that returns a Workload."
        )

    def model() -> nn.Module:
        return getattr(transformers, head).from_config(config)  # type: ignore[no-any-return]

    return Workload(f"transformers:{model_type}", model, batch, default_loss, **settings)


def _gpt(sequence: int | None, settings: dict[str, Any]) -> Workload:
    from course_lib.models.gpt import GPT, GPTConfig

    config = GPTConfig() if sequence is None else replace(GPTConfig(), context=sequence)

    def batch(batch_size: int) -> Batch:
        tokens = torch.empty(batch_size, config.context, dtype=torch.long)
        return Batch((tokens,), target=torch.empty(batch_size, config.context, dtype=torch.long))

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return default_loss(output.flatten(0, 1), target.flatten())

    return Workload("gpt", lambda: GPT(config), batch, loss, **settings)


def _cnn(settings: dict[str, Any]) -> Workload:
    from course_lib.models import zoo

    return Workload("cnn", zoo.DigitsCNN, _images(1, 28, 28, 10), default_loss, **settings)
