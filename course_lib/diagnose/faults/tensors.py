"""Which two tensors do not go together: devices, types, shapes, labels?"""

import re
from typing import Any

from course_lib.diagnose.faults.wording import Around, Told, evidence_of, fault, wording

_PAIR = re.compile(
    r"(?:got|expected\s+scalar\s+type|Input\s+type\s+\(|Found\s+dtype|result\s+type)\s*(?P<a>[\w.:]{2,40})\)?"
    r"\s*(?:and(?:\s+(?:weight|bias)\s+type\s+\(?)?|but\s+found|but\s+expected|can't\s+be\s+cast\s+to\s+the"
    r"\s+desired\s+output\s+type)\s*(?P<b>[\w.:]{2,40})"
)
_HALF = {"half", "float16", "c10::half", "halftensor"}


def _devices(around: Around) -> Told:
    text = around.following
    found = re.findall(r"\b((?:cuda|mps|xpu|hpu|xla)(?::\d{1,3})?|cpu)\b", text[:600])
    argument = re.search(r"argument\s+(\w{1,40})", text[:600])
    figures: dict[str, Any] = {
        "devices": sorted(set(found)) or None,
        "argument": argument[1] if argument else None,
    }
    several = len({d for d in found if d.startswith("cuda:")}) > 1
    if several:
        first = (
            "Give every tensor the device of the module it meets (x.to(next(module.parameters()).device)); "
            "under DDP use the rank's own device and no 'cuda:0' in the code; with a model split by "
            "device_map, leave the moving to it."
        )
    else:
        first = (
            "Move model and batch to one device: model.to(device) once, and in the loop batch = "
            "batch.to(device) (the result must be assigned); tensors made in forward get device=x.device; "
            "constants belong in register_buffer."
        )
    return Told(
        fault(
            "tensors.different_devices",
            "One operation got tensors of different devices"
            + (f": {', '.join(figures['devices'])}" if figures["devices"] else ""),
            "Something was left behind when the rest was moved: the batch, the labels, a tensor made in "
            "forward, a constant, the class weights of the loss.",
            first,
            ("torch.set_default_device as the cure: it hides which tensor it is.", "A new driver."),
            evidence=evidence_of({"exception": around.exception, **figures}),
        ),
        figures,
    )


def _types(around: Around) -> Told | None:
    text = around.paste.line_before(around.offset)[-200:] + around.following[:400]
    pairs = _PAIR.search(text)
    a, b = (pairs["a"], pairs["b"]) if pairs else (None, None)
    figures = {"first": a, "second": b}
    if a and b and "." in a and "." in b and ("cuda" in a) != ("cuda" in b):
        devices = _devices(around)
        return Told(devices.finding, {**devices.figures, **figures})
    names = {(n or "").lower().rsplit(".", 1)[-1] for n in (a, b)}
    if names & {"long", "longtensor", "byte", "int", "bool"} or "target dtype" in text:
        return Told(
            fault(
                "tensors.label_type",
                "A label or an index has the wrong type" + (f": {a} and {b}" if a else ""),
                "Class labels and indices are whole numbers (int64); regression targets and the labels of "
                "BCE are float.",
                "labels.long() for CrossEntropyLoss and for indices; labels.float() for MSELoss and "
                "BCEWithLogitsLoss.",
                "Casting the model.",
                evidence=evidence_of({"exception": around.exception, **figures}),
            ),
            figures,
        )
    if names & _HALF or {"bfloat16"} & names:
        return Told(
            fault(
                "tensors.half_and_float",
                "Half and full precision meet in one operation" + (f": {a} and {b}" if a else ""),
                "One side was converted by hand (half(), torch_dtype, .to(float16)), or the operation runs "
                "outside of autocast: an evaluation, a loss, a custom layer.",
                "Leave the weights in float32 and put forward and loss under torch.autocast (also in "
                "evaluation); or convert both: x = x.to(weight.dtype).",
                "Converting back and forth in every layer.",
                evidence=evidence_of({"exception": around.exception, **figures}),
            ),
            figures,
        )
    return Told(
        fault(
            "tensors.different_types",
            "Two tensors of different types meet" + (f": {a} and {b}" if a else ""),
            "NumPy arrays are float64 (Double) by nature, PyTorch weights float32.",
            "Convert the data once: torch.from_numpy(x).float(), or astype(np.float32) in the data set.",
            "Making the model double: it is many times as slow on a card.",
            evidence=evidence_of({"exception": around.exception, **figures}),
        ),
        figures,
    )


_NO_HALF_ON_CPU = fault(
    "tensors.half_on_cpu",
    "This operation does not exist in half precision on the CPU",
    "float16 is made for cards; on the CPU many operations are missing in it (fewer in newer versions of "
    "torch).",
    "Use float32 or bfloat16 on the CPU: model.float(), torch.autocast('cpu', dtype=torch.bfloat16); or "
    "move model and batch to the card.",
    "Reinstalling PyTorch.",
)
_NOT_IMPLEMENTED = re.compile(r"\"(?P<operation>\w{2,80})\"notimplementedfor'(?P<type>\w{2,20})'")


def _not_implemented(around: Around) -> Told | None:
    match = _NOT_IMPLEMENTED.search(around.paste.squeezed)
    if match is None or "_amp_foreach" in match["operation"]:
        return None
    figures = {"operation": match["operation"], "type": match["type"]}
    if match["type"] in ("Half", "BFloat16") and "cuda" not in match["operation"].lower():
        return Told(_NO_HALF_ON_CPU, figures)
    return Told(
        fault(
            "tensors.type_not_supported",
            f"{match['operation']} does not work with {match['type']}",
            "The operation is not made for this type: a mean or a loss of whole numbers, a bool where a "
            "number is needed.",
            "Convert first: x.float() for means and losses, labels.long() for classes.",
            "Another version of torch.",
            evidence=evidence_of(figures),
        ),
        figures,
    )


def _shapes(around: Around) -> Told:
    text = around.following[:400]
    product = re.search(
        r"(?:cannot\s+be\s+multiplied\s*\((\d{1,12}x\d{1,12})\s+and\s+(\d{1,12}x\d{1,12})\)|m1:\s*\[([\dx"
        r"\s]{1,40})\],\s*m2:\s*\[([\dx\s]{1,40})\])",
        text,
    )
    figures: dict[str, Any] = {"first": None, "second": None}
    if product:
        figures = {"first": product[1] or product[3], "second": product[2] or product[4]}
    return Told(
        fault(
            "tensors.shapes_of_linear_layer",
            "The input of a linear layer has another width than the layer expects"
            + (f": {figures['first']} times {figures['second']}" if product else ""),
            "The second number of the first must be the first number of the second. Often the layer's "
            "in_features were computed for another image size, or a flatten or transpose is missing.",
            "Print x.shape just before the layer; set in_features to x.shape[1] (nn.LazyLinear finds it), "
            "or put AdaptiveAvgPool2d(1) before flatten so that the image size no longer matters.",
            "Reshaping until it runs: it may mix the samples of a batch.",
            evidence=evidence_of(figures),
        ),
        figures,
    )


_CHANNELS = fault(
    "tensors.wrong_channels",
    "A convolution got another number of channels than it expects",
    "Grey images for a network made for colour, a channel that stands last (height, width, channels), or a "
    "missing batch dimension.",
    "Print x.shape: it must be (batch, channels, height, width). convert('RGB') for grey images, "
    "permute(0, 3, 1, 2) where channels stand last, unsqueeze(0) for one image.",
    "Changing the network before the data was looked at.",
)
_BROADCAST = fault(
    "tensors.shapes_do_not_match",
    "Two tensors have shapes that do not go together",
    "The sizes differ in a dimension where both are larger than 1: sequences of different length, a last "
    "batch that is smaller than a buffer, input longer than the position table.",
    "Print both shapes just before the line; pad or cut sequences to one length, drop_last=True where a "
    "fixed batch size is built in.",
    "Adding unsqueeze until it runs: broadcasting may compute something else.",
)
_BATCHES = fault(
    "tensors.batch_sizes_differ",
    "Input and target have different batch sizes",
    "A reshape moved part of another dimension into the batch (view(-1, ...) with a wrong size), or only "
    "one of them was repeated.",
    "Print both shapes before the loss; flatten with x.flatten(1), which keeps the batch, in place of "
    "view(-1, n).",
    "drop_last=True.",
)
_VIEW = fault(
    "tensors.view_of_other_size",
    "A view or reshape asks for another number of elements",
    "The numbers in the shape are written for another batch or image size.",
    "Use x.flatten(1), or view(x.shape[0], -1); print x.shape before the line.",
    "Changing the batch size until it fits.",
)
_NOT_CONTIGUOUS = fault(
    "tensors.view_of_non_contiguous",
    "view() cannot look at this tensor in another shape without copying it",
    "After transpose or permute the elements no longer stand in order.",
    "reshape() in place of view().",
    "Restoring the old order of the dimensions.",
)
_TARGET = fault(
    "tensors.label_out_of_range",
    "A label is not below the number of classes",
    "Labels count from 0 to classes - 1; here one counts from 1, is an ignore label (255, -1), or the head "
    "has too few outputs.",
    "Print labels.min(), labels.max() and the number of outputs; shift the labels, set ignore_index, or "
    "widen the last layer.",
    "clamp() on the labels: it teaches wrong classes.",
)
_EMBEDDING = fault(
    "tensors.index_out_of_range_of_embedding",
    "A token or position number is not below the size of the embedding",
    "The tokenizer has more words than the embedding has rows, or the input is longer than the position "
    "table.",
    "Print ids.max() and embedding.num_embeddings; model.resize_token_embeddings(len(tokenizer)) after "
    "adding tokens; cut inputs to the longest position.",
    "clamp() on the numbers.",
)
_ONE_VALUE = fault(
    "tensors.batchnorm_of_one_sample",
    "BatchNorm got one value for each channel, and cannot take a variance of it",
    "The last batch of an epoch has one sample, or the batch is 1 and the picture has become 1 x 1.",
    "drop_last=True in the training loader; model.eval() when a single sample is evaluated; GroupNorm "
    "where batches are that small.",
    "momentum=0.",
)
_MULTI_TARGET = fault(
    "tensors.label_shape",
    "CrossEntropyLoss wants one class number for each sample",
    "The labels have one dimension more: a column (N, 1), or one-hot rows of whole numbers.",
    "labels.squeeze(1) for a column, labels.argmax(1) for one-hot rows (or one-hot as float, as "
    "probabilities).",
    "BCELoss, unless several classes may be true at once.",
)
_TARGET_SHAPE = fault(
    "tensors.target_shape",
    "The loss got a target of another shape than the output",
    "Most often a column (N, 1) meets a row (N). Where it is only a warning, the two are broadcast to N x N, "
    "and the loss is that of every output with every target.",
    "Make them equal before the loss: output.squeeze(1), or target.unsqueeze(1).float(); print both shapes.",
    "Silencing the warning: the network then learns the mean.",
)
_PROBABILITIES = fault(
    "tensors.nan_in_sampling",
    "Probabilities with nan, inf or negative numbers were drawn from",
    "The network's output is broken before: an overflow in half precision, or a model that has diverged.",
    "Check the logits for nan before sampling; load the model in bfloat16 or float32 in place of float16.",
    "A lower temperature.",
)

WORDINGS = (
    wording(
        (
            "Expected all tensors to be on the same device",
            "found at least two devices",
            "Expected object of backend",
            "Expected object of device type",
            "Input and hidden tensors are not at the same device",
            "tensors are on different GPUs",
            "Tensor for argument #",
        ),
        _devices,
    ),
    wording(
        (
            "must have the same dtype",
            "expected scalar type",
            "and weight type (",
            "and bias type (",
            "have the same dtype, but got",
            "expected target dtype",
            "Found dtype",
            "cast to the desired output type",
        ),
        _types,
    ),
    wording("\" not implemented for '", _not_implemented),
    wording(("shapes cannot be multiplied", "size mismatch, m1"), _shapes),
    wording(
        "channels, but got",
        _CHANNELS,
        r"to\s+have\s+(?P<expected>\d{1,6})\s+channels,\s*but\s+got\s+"
        r"(?P<got>\d{1,6})\s+channels",
    ),
    wording(
        ("at non-singleton dimension", "Sizes of tensors must match except in dimension"),
        _BROADCAST,
        r"The\s+size\s+of\s+tensor\s+a\s+\((?P<first>\d{1,12})\)\s+must\s+match\s+the\s+size\s+of"
        r"\s+tensor\s+b\s+\((?P<second>\d{1,12})\)|Expected\s+size\s+(?P<expected>\d{1,12})\s+but"
        r"\s+got\s+size\s+(?P<got>\d{1,12})",
    ),
    wording(
        "to match target batch_size",
        _BATCHES,
        r"batch_size\s+\((?P<input>\d{1,9})\)\s+to\s+match"
        r"\s+target\s+batch_size\s+\((?P<target>\d{1,9})\)",
    ),
    wording("is invalid for input of size", _VIEW, r"input\s+of\s+size\s+(?P<elements>\d{1,15})"),
    wording("view size is not compatible with input tensor", _NOT_CONTIGUOUS),
    wording("IndexError: Target", _TARGET, r"Target\s+(?P<label>-?\d{1,12})\s+is\s+out\s+of\s+bounds"),
    wording("index out of range in self", _EMBEDDING),
    wording("Expected more than 1 value per channel when training", _ONE_VALUE),
    wording("multi-target not supported", _MULTI_TARGET),
    wording(("that is different to the input size", "must be the same as input size"), _TARGET_SHAPE),
    wording("probability tensor contains either", _PROBABILITIES),
)
