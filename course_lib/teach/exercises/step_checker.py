"""Does the learner's own training step in fp16 do what a right one does? It is run, and compared.

The step trains a small model for some steps, with real autocast and a real GradScaler, and one batch is so
large that its gradients overflow. Weights and scale after each step must be those of the right order of
lines; where they are those of a known wrong one, the learner hears which.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from course_lib.teach.exercises.cases import STILL_DOTS, holds_dots, sentence
from course_lib.teach.exercises.exercise import Assessment, WrongAnswer
from course_lib.teach.exercises.first_step import import_what_a_first_step_imports
from course_lib.teach.exercises.guard import run_guarded, why_not_callable
from course_lib.teach.exercises.result import Outcome

Step = Callable[[Any, Any, Any, Any, Any, float], object]
_INIT_SCALE, _GROWTH_INTERVAL, _MAX_NORM, _STEPS = 1024.0, 3, 0.05, 7
_SPOILED = 4  # the step whose inputs are so large that its scaled gradients overflow


@dataclass(frozen=True)
class _Trace:
    """What a step function did over some steps: weights and scale after each, and whether the model ran."""

    weights: tuple[tuple[float, ...], ...]
    scales: tuple[float, ...]
    ran: bool

    def like(self, other: _Trace) -> bool:
        same_scales = self.scales == other.scales
        pairs = zip(self.weights, other.weights, strict=True)
        return same_scales and all(
            math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-7) or (math.isnan(a) and math.isnan(b))
            for mine, its in pairs
            for a, b in zip(mine, its, strict=True)
        )


def _run(step: Step) -> _Trace:
    """Train a small model with real fp16 autocast and a real GradScaler, one batch of them too large."""
    import torch
    from torch import nn

    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=_INIT_SCALE, growth_interval=_GROWTH_INTERVAL)
    weights, scales, calls = [], [], []
    model.register_forward_hook(lambda module, inputs, output: calls.append(1))
    for number in range(1, _STEPS + 1):
        inputs = torch.rand(8, 4, generator=generator) * (4_000.0 if number == _SPOILED else 1.0)
        targets = torch.randint(0, 3, (8,), generator=generator)
        step(model, optimizer, scaler, inputs, targets, _MAX_NORM)
        weights.append(tuple(torch.cat([p.detach().flatten() for p in model.parameters()]).tolist()))
        scales.append(float(scaler.get_scale()))
    return _Trace(tuple(weights), tuple(scales), bool(calls))


def _step(
    order: str, *, zero: bool = True, autocast: bool = True, scaled: bool = True
) -> Callable[[Any, Any, Any, Any, Any, float], None]:
    """A training step whose last lines come in an order: u unscale_, c clip, s scaler.step, o optimizer.step,
    p update.
    """

    def mended_step(  # noqa: PLR0917
        model: Any, optimizer: Any, scaler: Any, inputs: Any, targets: Any, max_norm: float
    ) -> None:
        import torch
        from torch.nn.functional import cross_entropy
        from torch.nn.utils import clip_grad_norm_

        if zero:
            optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16, enabled=autocast):
            loss = cross_entropy(model(inputs), targets)
        (scaler.scale(loss) if scaled else loss).backward()
        for line in order:
            if line == "u":
                scaler.unscale_(optimizer)
            elif line == "c":
                clip_grad_norm_(model.parameters(), max_norm)
            elif line == "s":
                scaler.step(optimizer)
            elif line == "o":
                optimizer.step()
            else:
                scaler.update()

    return mended_step


mended_step = _step("ucsp")


def _right_with_names(  # noqa: PLR0917
    model: Any, opt: Any, grad_scaler: Any, x: Any, y: Any, bound: float
) -> Any:
    import torch

    with torch.autocast(device_type="cpu", dtype=torch.half):
        loss = torch.nn.CrossEntropyLoss()(model(x), y)
    model.zero_grad(set_to_none=True)
    grad_scaler.scale(loss).backward()
    grad_scaler.unscale_(opt)
    torch.nn.utils.clip_grad_norm_([p for group in opt.param_groups for p in group["params"]], bound)
    grad_scaler.step(opt)
    grad_scaler.update()
    return loss


KNOWN_WRONG: tuple[tuple[Step, str], ...] = (
    (
        _step("csp"),
        "You clip the gradients while they are still multiplied by the scale: then the bound is hundreds of "
        "times too strict.",
    ),
    (_step("ucop"), "The weights change even when the gradients have overflowed. Who should take the step?"),
    (_step("sp"), "The gradients are not clipped."),
    (_step("ucsp", zero=False), "The gradients of all steps add up. Who clears those of the step before?"),
    (_step("ucsp", autocast=False), "The forward pass runs in float32: there is no autocast around it."),
    (_step("co"), "The gradients are still multiplied by the scale when the weights change."),
    (
        _step("co", zero=False),
        "These are the three faults of the step that was found. Ask of the update: which gradients does it "
        "see, how large are they, and who decides whether it is made?",
    ),
    (
        _step("csp", zero=False),
        "Two faults are left. One of them: the gradients of all steps add up.",
    ),
)
"""Steps that learners write, and what they hear."""


FAULTS = {
    "unscale_() has already been called": (
        "The gradients are unscaled twice, and nobody told the scaler in between that a step is over."
    ),
    "unscale_() is being called after step()": (
        "The second step fails: nobody told the scaler that the first one is over."
    ),
    "No inf checks were recorded": (
        "The scaler is to adapt its scale before it has looked at any gradient. What comes first?"
    ),
    "_scale is None": "The gradients are divided by a scale that they were never multiplied with.",
}
"""What PyTorch says of such a step, and what the learner hears."""


class StepChecker:
    """The learner's step must do to weights and scale what the right one does, step by step."""

    def __call__(self, answer: object) -> Assessment:
        """What to say of this answer."""
        if holds_dots(answer):
            return Assessment(Outcome.NOT_ATTEMPTED, STILL_DOTS)
        parameters = ("model", "optimizer", "scaler", "inputs", "targets", "max_norm")
        why_not = why_not_callable(answer, "mended_step", parameters)
        if why_not or not callable(answer):
            return Assessment(Outcome.NOT_YET, why_not)
        import_what_a_first_step_imports()
        run = run_guarded(lambda: _run(answer), {}, limit_s=10.0)
        if run.fault is not None:
            outcome = Outcome.NOT_ATTEMPTED if run.fault.kind == "dots" else Outcome.NOT_YET
            return Assessment(outcome, self._fault(run.fault.text), run.printed)
        done = run.value
        assert isinstance(done, _Trace)
        if done.like(_run(mended_step)):
            return Assessment(Outcome.CORRECT, printed=run.printed)
        for step, says in KNOWN_WRONG:
            if done.like(_run(step)):
                return Assessment(Outcome.NOT_YET, says, run.printed)
        if not done.ran and not run.printed:
            says = "Your function does not call the model yet: put a training step in place of the dots."
            return Assessment(Outcome.NOT_ATTEMPTED, says, run.printed)
        if len(set(done.weights)) == 1:
            return Assessment(
                Outcome.NOT_YET,
                "After some steps the weights are still the same: nothing is trained.",
                run.printed,
            )
        return Assessment(
            Outcome.NOT_YET,
            "The weights after some steps are not those of a right step. Go through your lines: is each "
            "thing done, once, and after what it needs?",
            run.printed,
        )

    def _fault(self, text: str) -> str:
        for part, says in FAULTS.items():
            if part in text:
                return says
        return sentence(f"Your function {text}")


STEP_RIGHT: tuple[object, ...] = (mended_step, _right_with_names)
STEP_WRONG: tuple[WrongAnswer, ...] = (
    WrongAnswer(_step("csp"), "still multiplied"),
    WrongAnswer(_step("cusp"), "still multiplied"),
    WrongAnswer(_step("ucs"), "is over"),
    WrongAnswer(_step("ucop"), "overflowed"),
    WrongAnswer(_step("ucsp", scaled=False), "never multiplied"),
    WrongAnswer(_step("sp"), "not clipped"),
    WrongAnswer(_step("usp"), "not clipped"),
    WrongAnswer(_step("ucsp", zero=False), "add up"),
    WrongAnswer(_step("ucsp", autocast=False), "no autocast"),
    WrongAnswer(_step("uucsp"), "unscaled twice"),
    WrongAnswer(_step("uco"), "that a step is over"),
    WrongAnswer(_step("p"), "before it has looked"),
    WrongAnswer(_step("co"), "when the weights change"),
    WrongAnswer(_step("co", zero=False), "three faults"),
    WrongAnswer(_step("csp", zero=False), "add up"),
    WrongAnswer(_step("ucosp"), "not those of a right step"),
    WrongAnswer(
        lambda model, optimizer, scaler, inputs, targets, max_norm: model(inputs), "nothing is trained"
    ),
    WrongAnswer(lambda model, optimizer, scaler, inputs, targets, max_norm: model.nonsense, "nonsense"),
    WrongAnswer(lambda model: None, "it must take"),
)
