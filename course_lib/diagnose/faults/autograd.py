"""What does autograd refuse: a second backward pass, a tensor changed in place, a loss without a graph?"""

import re

from course_lib.diagnose.faults.wording import Around, Told, evidence_of, fault, wording

_BACKWARD = re.compile(
    r"^[^#\n]*?\b(?:\w*scaler\.scale\(\s*(?P<scaled>\w{1,40})\s*\)\.backward\("
    r"|(?:accelerator|fabric)\.backward\(\s*(?P<passed>\w{1,40})"
    r"|(?P<own>\w{1,40})\.backward\()(?P<options>[^)\n]{0,80})",
    re.MULTILINE,
)
_OF_THE_LIBRARY = {"autograd", "self", "tensor", "accelerator", "fabric", "engine", "precision", "strategy"}


def _losses(text: str) -> list[str]:
    """The losses on which code in the text calls backward, each once; none where one keeps its graph."""
    calls = list(_BACKWARD.finditer(text))
    if any("retain_graph" in call["options"] for call in calls):
        return []
    names = (call["scaled"] or call["passed"] or call["own"] for call in calls)
    return [name for name in dict.fromkeys(names) if name not in _OF_THE_LIBRARY]


def _second_backward(around: Around) -> Told:
    losses = _losses(around.paste.body)
    if len(losses) > 1:
        figures = {"losses": losses[:10]}
        return Told(
            fault(
                "graph.shared_by_two_losses",
                f"Two losses go back through one graph: {' and '.join(losses[:2])}",
                "The code calls backward on more than one loss. What they have in common is freed by the "
                "first call, and missing for the second.",
                (
                    "Let the second loss not go through what the first has used: detach() it (in a GAN: "
                    "discriminator(fake.detach()) for the discriminator's loss).",
                    "Where both are to train the same part: add them, and call backward once.",
                ),
                (
                    "retain_graph=True, as the message suggests: the second pass then also trains what it "
                    "should not, and memory is held longer.",
                ),
                certainty="likely",
                evidence=evidence_of({"exception": around.exception, **figures}),
            ),
            figures,
        )
    return Told(
        fault(
            "graph.reused_across_iterations",
            "The graph of an earlier backward pass is used again",
            "The first iteration works and the second fails: a tensor with a graph was made outside the "
            "loop (a layer applied to the data before training, a hidden state that is carried on, a loss "
            "that is kept) and is used in every step. A backward pass frees the graph behind it.",
            (
                "Move that computation into the loop, or detach() it if it needs no gradient (a hidden "
                "state: h = h.detach() after each step).",
                "Two losses over one graph: add them, and call backward once.",
            ),
            (
                "retain_graph=True, as the message suggests: memory grows with each step, and gradients go "
                "through old weights.",
            ),
            certainty="likely",
            evidence=evidence_of({"exception": around.exception}),
        ),
        # The message says "a second time", so the first pass through that graph went well.
        derived={"iteration_of_failure": 2},
    )


def _in_place(around: Around) -> Told:
    text = around.following
    output = re.search(r"output\s+(\d{1,4})\s+of\s+(\w{1,60})", text)
    version = re.search(r"is\s+at\s+version\s+(\d{1,9});\s*expected\s+version\s+(\d{1,9})", text)
    shape = re.search(r"\[torch\.([\w.]{1,40}Tensor)\s*\[([\d,\s]{0,80})\]\]", text)
    figures = {
        "tensor": f"{shape[1]} [{' '.join(shape[2].split())}]" if shape else None,
        "output_of": output[2] if output else None,
        "version": int(version[1]) if version else None,
        "expected_version": int(version[2]) if version else None,
    }
    distributed = around.says("DistributedDataParallel", "BatchNorm", "torch/nn/parallel")
    weights = output is None or figures["output_of"] in ("TBackward", "TBackward0", "AsStridedBackward0")
    more = ""
    if weights:
        more = (
            " A tensor that is no output of an operation is a weight or a buffer: then optimizer.step() "
            "ran between forward and backward (two networks, as in a GAN), or DDP renewed BatchNorm's "
            "buffers between two forward passes."
        )
    first = (
        "Find the operation on the named tensor that writes in place (x += ..., relu_(), inplace=True, "
        "x[i] = ...) and write it out of place (x = x + ...); torch.autograd.set_detect_anomaly(True) shows "
        "the forward line."
    )
    if weights:
        first = (
            "Do all backward passes before any optimizer.step(), or run the forward pass anew after a "
            "step; under DDP with two forward passes in one step, broadcast_buffers=False. Then look for "
            "in-place operations with torch.autograd.set_detect_anomaly(True)."
        )
    return Told(
        fault(
            "graph.modified_in_place",
            "A tensor that backward needs was changed after it was used",
            "Autograd keeps tensors from the forward pass and counts their changes; this one has changed "
            "since." + more + (" The text speaks of DDP or BatchNorm." if distributed and weights else ""),
            first,
            (
                "retain_graph=True.",
                ".clone() everywhere: it costs memory, and may hide the wrong order of steps.",
            ),
            certainty="likely",
            evidence=evidence_of({"exception": around.exception, **figures}),
        ),
        figures,
    )


_LEAF = fault(
    "graph.leaf_changed_in_place",
    "A weight is changed in place while autograd watches it",
    "Tensors that require a gradient themselves may not be changed in place outside of torch.no_grad().",
    "Wrap the change in `with torch.no_grad():` (initialisation, clipping of weights), or write it out of "
    "place.",
    "Setting requires_grad=False for good.",
)
_NO_GRAPH = fault(
    "graph.loss_has_no_graph",
    "The loss does not depend on anything that requires a gradient",
    "The graph was cut or never made: all parameters frozen, torch.no_grad() or inference_mode around the "
    "forward pass, detach(), .item(), numpy, argmax, a loss wrapped anew by torch.tensor(...); or gradient "
    "checkpointing of the old kind with inputs that need no gradient.",
    "Print requires_grad along the way: of a parameter, of the model's output, of the loss; the first "
    "False shows the place. With checkpointing and frozen embeddings: model.enable_input_require_grads(), "
    "or use_reentrant=False.",
    ("loss.requires_grad_(True): backward runs then, and trains nothing.",),
)
_NOT_SCALAR = fault(
    "graph.loss_is_not_one_number",
    "backward() was called on more than one number",
    "The loss was not reduced: reduction='none', a sum that is missing, or DataParallel, which returns one "
    "loss for each card.",
    "loss.mean().backward() (with DataParallel too).",
    "backward(torch.ones_like(loss)) without meaning the sum.",
)
_NUMPY = fault(
    "graph.numpy_of_a_tensor_with_graph",
    "A tensor with a graph, or on a card, cannot become a NumPy array",
    "NumPy knows neither gradients nor cards.",
    "tensor.detach().cpu().numpy().",
    "Switching gradients off for the whole run.",
)
_CHECKPOINT = fault(
    "graph.checkpoint_recomputes_differently",
    "Gradient checkpointing computed something else the second time",
    "The block is run again in the backward pass and must give the same tensors: randomness, a changed "
    "buffer, a branch by time or mode, or autocast that differs make it differ.",
    "Make the block the same both times: no state that changes in forward (caches, counters), "
    "preserve_rng_state=True, the same autocast; checkpoint smaller blocks to find which one differs.",
    "determinism_check='none': it hides a wrong gradient.",
    certainty="likely",
)
_ANOMALY = fault(
    "graph.nan_in_backward",
    "A gradient became nan in the named operation",
    "Anomaly detection names the operation of the backward pass: a logarithm or a root of 0, a division by "
    "0, an overflow in half precision.",
    "Print the input of that operation's forward line (the traceback above the error shows it) and keep it "
    "away from the edge: clamp(min=1e-6), log_softmax in place of log(softmax).",
    ("Replacing nan by 0 in the gradients.",),
)

_INPUT_NOT_USED = fault(
    "graph.input_not_used",
    "A gradient is asked for with respect to a tensor that the result does not depend on",
    "torch.autograd.grad was given an input that is not in the graph of the output: a copy (x.to, x.clone, "
    "a view made later), a layer that the forward pass left out, or a graph that was cut.",
    "Take the tensor that went into the forward pass, with requires_grad_() before it; where a missing "
    "gradient is meant, allow_unused=True and treat None as zero.",
    ("retain_graph=True.",),
)
_RNN_IN_EVAL = fault(
    "graph.rnn_backward_in_eval",
    "The backward pass of a recurrent layer needs training mode, and the model is in evaluation mode",
    "cuDNN keeps what backward needs only in training mode. model.eval() was called and not taken back, or "
    "gradients are wanted in evaluation.",
    "Call model.train() before the training steps (after each validation); for gradients in evaluation "
    "mode only, set the recurrent layer alone to train(), or torch.backends.cudnn.enabled = False around "
    "it.",
    ("A new version of cuDNN.",),
)
_INFERENCE = fault(
    "graph.inference_tensor",
    "A tensor made under inference_mode is used in training",
    "Tensors made under torch.inference_mode() can never be part of a graph.",
    "Use torch.no_grad() in its place where the result goes into training later, or clone() the tensor "
    "outside of inference_mode.",
    ("requires_grad_(True) on it.",),
)

WORDINGS = (
    wording("differentiated Tensors appears to not have been used in the graph", _INPUT_NOT_USED),
    wording("RNN backward can only be called in training mode", _RNN_IN_EVAL),
    wording(
        ("Inference tensors cannot be saved for backward", "Inplace update to inference tensor outside"),
        _INFERENCE,
    ),
    wording(
        ("Trying to backward through the graph a second time", "buffers have already been freed"),
        _second_backward,
    ),
    wording("has been modified by an inplace operation", _in_place),
    wording(
        ("a leaf Variable that requires grad", "leaf variable has been moved into the graph interior"), _LEAF
    ),
    wording("does not require grad and does not have a grad_fn", _NO_GRAPH),
    wording("grad can be implicitly created only for scalar outputs", _NOT_SCALAR),
    wording(("Can't call numpy() on Tensor that requires grad", "device type tensor to numpy"), _NUMPY),
    wording(
        (
            "A different number of tensors was saved during the original forward",
            "Recomputed values for the following tensors have different metadata",
        ),
        _CHECKPOINT,
    ),
    wording(
        "returned nan values in its",
        _ANOMALY,
        r"Function\s+'(?P<operation>\w{1,80})'|(?P<named>"
        r"\w{3,60}Backward\d)'?\s+returned",
    ),
)
