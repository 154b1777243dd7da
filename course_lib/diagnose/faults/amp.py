"""What do GradScaler and autocast complain about, and which step of the loop is wrong?"""

import re
from typing import Any

from course_lib.diagnose.faults.surroundings import versions
from course_lib.diagnose.faults.wording import Around, Told, evidence_of, fault, wording

_HALF = re.compile(
    r"^[^\n#]*(?P<line>\b\w+(?:\.\w+)*\.half\(\)|torch_dtype\s*=\s*torch\.(?:float16|half)|\.to\((?:dtype"
    r"\s*=\s*)?torch\.(?:float16|half)\)"
    r"|load_in_8bit\s*=\s*True)",
    re.MULTILINE,
)
_LOSS_SCALE = re.compile(r"loss[_ ]scale\s*[:=]?\s*(\d{1,9}(?:\.\d{1,6})?)", re.IGNORECASE)
_COMMENTED_STEP = re.compile(r"^[ \t]*#[ \t]*\w*scaler\.step\(", re.MULTILINE)


def _prior_to_update(around: Around) -> Told:
    framework = next(
        (name for name in ("accelerator", "fabric", "Trainer") if around.says(f"{name}.", f"{name}(")), None
    )
    figures: dict[str, Any] = {"call": "GradScaler.update", "framework": framework, **versions(around.paste)}
    evidence = evidence_of({"exception": around.exception, **figures})
    if framework:
        return Told(
            fault(
                "amp.manual_scaler_with_framework",
                "The scaler is driven by hand beside a framework that drives it itself",
                "update() ran, and no step() or unscale_() of this scaler came before it. Accelerate, "
                "Fabric and the Trainers scale and step inside.",
                "Remove the manual scaler; use accelerator.backward(loss) and optimizer.step() (or the "
                "framework's own calls).",
                "Adding scaler.step() as well: the framework's own scaler stays beside it.",
                evidence=evidence,
            ),
            figures,
        )
    return Told(
        fault(
            "amp.update_without_step",
            "scaler.update() was called, and no step() or unscale_() came before it",
            "update() adapts the scale by what step() or unscale_() found in the gradients. Without either "
            "there is nothing to adapt by: step() is left out, runs on another scaler, or only in a branch.",
            "Call scaler.step(optimizer) and then scaler.update(), both in the same branch (with "
            "accumulation: both only in the step that updates).",
            ("GradScaler(enabled=False), which only hides it.",),
            evidence=evidence,
        ),
        figures,
    )


def _for_this_optimizer(around: Around) -> Told:
    figures: dict[str, Any] = {"call": "GradScaler.step", **versions(around.paste)}
    return Told(
        fault(
            "amp.no_gradients_for_optimizer",
            "None of this optimizer's parameters has a gradient",
            "step() found nothing to check. The loss does not reach these parameters: they are frozen, the "
            "graph was cut (detach, .item(), a loss wrapped anew by torch.tensor), backward ran for "
            "another optimizer, or the optimizer was made before the model was moved or replaced and holds "
            "the old parameters.",
            (
                "Print which parameters have a gradient after backward: [n for n, p in "
                "model.named_parameters() if p.grad is not None]; make the optimizer after "
                "model.to(device), from parameters that require a gradient, and step only the optimizer "
                "whose loss was backpropagated.",
            ),
            (
                "Commenting the check out, or enabled=False: then nothing is trained, in silence.",
                "A smaller learning rate.",
            ),
            evidence=evidence_of({"exception": around.exception, **figures}),
        ),
        figures,
    )


def _fp16_gradients(around: Around) -> Told:
    half = _HALF.search(around.paste.body)
    figures: dict[str, Any] = {"suspicious_line": half["line"] if half else None, **versions(around.paste)}
    line = figures["suspicious_line"]
    library = around.says("transformers", "peft", "lora", "diffusers", "Trainer(")
    if line and line.endswith(".half()"):
        first = f"Delete {line}: autocast and the scaler want weights in float32."
    elif line:
        first = (
            f"Load the model in float32 (without {line}), or keep it in half precision without a scaler "
            "(bf16=True)."
        )
    elif library:
        first = (
            "Load the model in float32 (no torch_dtype=torch.float16), or cast what is trained: for p in "
            "model.parameters(): p.data = p.data.float() if p.requires_grad else p.data; or use bf16, which "
            "needs no scaler."
        )
    else:
        first = (
            "Keep the weights in float32: no model.half(), no .to(torch.float16); autocast makes the "
            "operations half precision."
        )
    return Told(
        fault(
            "amp.trainable_params_in_fp16",
            "The weights themselves are in half precision, and the scaler cannot work with that",
            "Mixed precision keeps float32 weights and lets autocast choose half precision for the "
            "operations. A model that was converted to float16 has float16 gradients; there is nothing "
            "left to unscale into. These are two different things, and together they break the scaler.",
            first,
            (
                "precision=32 with model.half(): it trains in half precision without any scaling.",
                "Patching allow_fp16 into the scaler: small gradients become zero.",
            ),
            evidence=evidence_of({"exception": around.exception, **figures}),
        ),
        figures,
    )


def _unscaled_twice(around: Around) -> Told:
    scale = _LOSS_SCALE.findall(around.paste.body)
    figures: dict[str, Any] = {
        "call": "GradScaler.unscale_",
        "loss_scale": float(scale[-1]) if scale else None,
        **versions(around.paste),
    }
    evidence = evidence_of({"exception": around.exception, **figures})
    framework = around.says("transformers", "accelerate", "Trainer", "per_device_train_batch_size")
    short = around.search(
        r"gradient_accumulation_steps\s+(?:is\s+)?(?:larger|greater|bigger|more|higher|exceeds)|"
        r"(?:fewer|less)\s+batches"
        r"|gradient_accumulation_steps\s*>"
    )
    if framework and short:
        return Told(
            fault(
                "accum.window_longer_than_epoch",
                "An epoch has fewer batches than gradient_accumulation_steps, and the framework then clips "
                "twice",
                "The window of accumulation does not end within the epoch. Some versions of the Trainer "
                "unscale at the end of the epoch and again at the next step, without an update between.",
                "Lower gradient_accumulation_steps (or use more data), and upgrade transformers and "
                "accelerate.",
                "Rewriting the training loop.",
                certainty="likely",
                evidence=evidence,
            ),
            figures,
        )
    if around.says("accelerator.accumulate(") and not around.says("Trainer"):
        return Told(
            fault(
                "amp.unscale_every_micro_step",
                "Gradients are clipped in every micro-step, and clipping unscales them",
                "Within accelerator.accumulate() the optimizer steps only in a window's last micro-step. "
                "clip_grad_norm_ unscales at each call, so the second call finds the gradients unscaled.",
                "Clip in the step that updates alone: if accelerator.sync_gradients: "
                "accelerator.clip_grad_norm_(model.parameters(), 1.0).",
                ("Calling update() by hand.", "accumulation_steps=1 as the only answer."),
                evidence=evidence,
            ),
            figures,
        )
    if framework and not around.says("scaler.unscale_(optimizer)"):
        return Told(
            fault(
                "amp.unscale_twice_in_framework",
                "The framework unscaled the gradients twice before one update",
                "Known of Trainer versions whose accumulation and clipping did not agree (an epoch shorter "
                "than gradient_accumulation_steps is one way), and of clipping by hand beside the "
                "framework's.",
                "Upgrade transformers and accelerate together; check that an epoch has at least "
                "gradient_accumulation_steps batches, and do not clip by hand as well.",
                "Rewriting the training loop.",
                certainty="possible",
                evidence=evidence,
            ),
            figures,
        )
    return Told(
        fault(
            "amp.unscale_every_micro_step",
            "unscale_() runs more often than update()",
            "With accumulation, unscale_ runs on every micro-batch, and update() only every k-th. Or it is "
            "called twice in one step (by hand and in a helper). unscale_, clip, step, update and "
            "zero_grad belong together.",
            "Move unscale_ and clipping into the accumulation branch, beside step(), update() and "
            "zero_grad(): once for each update.",
            (
                "Calling update() every micro-step: it changes the scale while gradients of different "
                "scale are summed.",
                "accumulation_steps=1 as the only answer.",
            ),
            certainty="likely",
            evidence=evidence,
        ),
        figures,
    )


_ORDER = fault(
    "amp.wrong_order_of_scaler_calls",
    "The scaler's calls are out of order",
    "For each update there is one unscale_ (only if you clip), one step for each optimizer, one update, in "
    "this order. step() twice, or unscale_() after step(), breaks it.",
    "scaler.scale(loss).backward(); scaler.unscale_(optimizer); clip; scaler.step(optimizer); "
    "scaler.update(): each once for an optimizer, update() last and once for all.",
    "A second scaler for the same optimizer.",
)
_NOT_SCALED = fault(
    "amp.loss_never_scaled",
    "The scaler has no scale yet: scaler.scale(loss) was not called",
    "The scale is made at the first scaler.scale(...). Here step(), unscale_() or update() came first: "
    "backward ran on the plain loss.",
    "Use scaler.scale(loss).backward() in place of loss.backward().",
    "Setting init_scale.",
)
_CLOSURE = fault(
    "amp.closure_with_scaler",
    "An optimizer with a closure (LBFGS) does not work with the scaler",
    "The closure runs forward and backward several times; the scaler can check gradients once for a step.",
    "Train with bfloat16, which needs no scaler, or in float32, or choose an optimizer without a closure.",
    "Calling scaler.update() in the closure.",
)
_BCE = fault(
    "amp.bce_unsafe_to_autocast",
    "BCELoss after a sigmoid is not safe in half precision",
    "Near 0 and 1 half precision rounds the sigmoid to exactly 0 or 1, and the logarithm of that is "
    "infinite.",
    "Leave the sigmoid out of the model and use BCEWithLogitsLoss (binary_cross_entropy_with_logits).",
    ("Adding a small number inside the logarithm.", "Switching autocast off for the whole model."),
)
_MINIMUM = fault(
    "amp.loss_scale_at_minimum",
    "The loss scale has fallen to its minimum: the gradients are never finite",
    "A scaler lowers the scale at each overflow. One that keeps falling says that the gradients overflow "
    "or are nan without any scaling: the model has diverged, the data holds nan, or an operation needs "
    "float32.",
    "Find the first nan: look at the loss and the gradient norm before the scale began to fall, lower the "
    "learning rate or clip; then try bfloat16, which has the range of float32.",
    ("Lowering the minimum of the scale.", "A larger initial scale."),
    certainty="likely",
)
_BF16_SCALER = fault(
    "amp.scaler_with_bfloat16",
    "The scaler's check does not exist for bfloat16 here, and bfloat16 needs no scaler",
    "bfloat16 has the range of float32: its gradients do not vanish, so nothing needs to be scaled.",
    "Leave the GradScaler out with bfloat16 (GradScaler(enabled=False)), or use float16 with it.",
    "Casting gradients by hand.",
)
_NO_BF16 = fault(
    "amp.card_without_bfloat16",
    "This card does not compute in bfloat16",
    "bfloat16 needs an NVIDIA card of the Ampere generation (2020) or newer.",
    "Use float16 with a GradScaler: autocast(dtype=torch.float16), precision='16-mixed', fp16=True.",
    "A new driver.",
)
_OVERFLOWING_CONSTANT = fault(
    "amp.constant_too_large_for_half",
    "A constant in the model is too large for half precision",
    "float16 ends at 65,504. A mask of -1e9, common in attention, does not fit.",
    "Use torch.finfo(x.dtype).min in place of -1e9 (or -1e4).",
    "A smaller loss scale.",
)

WORDINGS = (
    wording("No inf checks were recorded prior to update", _prior_to_update),
    wording("No inf checks were recorded for this optimizer", _for_this_optimizer),
    wording("Attempting to unscale FP16 gradients", _fp16_gradients),
    wording("unscale_() has already been called on this optimizer", _unscaled_twice),
    wording(
        ("step() has already been called since the last update", "unscale_() is being called after step()"),
        _ORDER,
    ),
    wording("This may indicate your script did not use scaler.scale", _NOT_SCALED),
    wording("Closure use is not currently supported if GradScaler is enabled", _CLOSURE),
    wording("are unsafe to autocast", _BCE),
    wording(("Current loss scale already at minimum", "Minimum loss scale reached"), _MINIMUM),
    wording("_amp_foreach_non_finite_check_and_unscale_cuda\" not implemented for 'BFloat16'", _BF16_SCALER),
    wording(("does not support bfloat16", "bf16/gpu require", "Your setup doesn't support bf16"), _NO_BF16),
    wording(
        (
            "cannot be converted to type at::Half without overflow",
            "cannot be converted to type c10::Half without overflow",
        ),
        _OVERFLOWING_CONSTANT,
    ),
)
