"""Right steps raise nothing, faulty ones hear their fault, and what is equal by nature to nothing is told."""

import json

import pytest
import right_steps
import torch
import wrong_steps
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy

from course_lib.errors import CourseError
from course_lib.train.equivalence import Proof, Reference, prove
from course_lib.train.equivalence.catalogue import CATALOGUE


@pytest.mark.parametrize(
    ("step", "reference"), [pytest.param(*pair, id=pair[0].__name__) for pair in right_steps.STYLES.items()]
)
def test_a_right_step_raises_nothing(step, reference):
    proof = prove(step, reference)
    assert proof.faults == ()
    assert proof.equivalent
    assert proof.gradient_difference <= 1e-10
    assert proof.weight_difference <= 1e-10
    assert proof.updates == proof.expected_updates == 6
    assert proof.natural == ()


@pytest.mark.parametrize(
    ("step", "reference", "kinds"),
    [pytest.param(step, *rest, id=step.__name__) for step, rest in wrong_steps.FAULTY.items()],
)
def test_a_fault_is_named(step, reference, kinds):
    proof = prove(step, reference)
    assert {fault.id for fault in proof.faults} == kinds
    assert not proof.equivalent
    for fault in proof.faults:
        assert fault.evidence
        assert fault.title in str(proof)
        assert fault.title in proof.verdict


def test_there_are_enough_of_both():
    assert len(right_steps.STYLES) >= 30
    assert len(wrong_steps.FAULTY) >= 14
    assert {kind for _, kinds in wrong_steps.FAULTY.values() for kind in kinds} <= CATALOGUE.keys()


def test_the_table_shows_what_each_update_was_made_of():
    proof = prove(right_steps.modulo_and_end)
    assert proof.made_of == proof.expected_made_of
    assert proof.columns[:2] == ("1.1", "1.2")
    wrong = prove(wrong_steps.loss_not_divided)
    assert wrong.made_of[0][:5] == (4.0, 4.0, 4.0, 4.0, 0.0)
    assert wrong.made_of[2][8:11] == (3.0, 3.0, 3.0)
    stale = prove(wrong_steps.zero_grad_forgotten)
    assert stale.made_of[1][:8] == (1.0,) * 8
    lost = prove(wrong_steps.zero_grad_before_the_last_backward, wrong_steps.EVEN)
    assert lost.made_of[0][:4] == (0.0, 0.0, 0.0, 1.0)


def test_the_evidence_tells_a_leak_from_a_loss():
    (lost,), (kept,) = (
        prove(step).faults
        for step in (wrong_steps.last_window_dropped, wrong_steps.last_window_dropped_and_forgotten)
    )
    assert "leaked into the next one" in lost.evidence
    assert "leaked" not in kept.evidence


def with_batch_norm():
    return nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 5))


def with_dropout():
    return nn.Sequential(nn.Linear(12, 16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 5))


@pytest.mark.parametrize(("make_model", "word"), [(with_batch_norm, "BatchNorm"), (with_dropout, "dropout")])
def test_what_is_unequal_by_nature_is_no_fault_and_hides_none(make_model, word):
    reference = Reference(make_model=make_model)
    for step in (right_steps.modulo_and_end, right_steps.smaller_pieces, right_steps.course_step):
        proof = prove(step, reference)
        assert proof.equivalent
        assert proof.gradient_difference <= 1e-10, "beside the same micro-batches it is exact"
        assert word in proof.natural[0]
        assert word in proof.verdict
    for step in (wrong_steps.loss_not_divided, wrong_steps.zero_grad_forgotten):
        assert {f.id for f in prove(step, reference).faults} == wrong_steps.FAULTY[step][1]


class Frozen(nn.Module):
    """A model with a layer that is not trained, and one that is never used."""

    def __init__(self):
        super().__init__()
        self.first, self.last, self.unused = nn.Linear(12, 16), nn.Linear(16, 5), nn.Linear(3, 3)
        self.first.weight.requires_grad_(False)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))


class Tied(nn.Module):
    """A model that uses one layer twice."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(12, 12), nn.Linear(12, 5)

    def forward(self, x):
        return self.last(torch.tanh(self.first(torch.tanh(self.first(x)))))


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-2)


def nesterov(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-2)


@pytest.mark.parametrize("make_model", [Frozen, Tied])
@pytest.mark.parametrize("make_optimizer", [adamw, nesterov])
def test_other_models_and_optimizers_change_no_verdict(make_model, make_optimizer):
    reference = Reference(make_model=make_model, make_optimizer=make_optimizer)
    assert prove(right_steps.course_step, reference).gradient_difference <= 1e-10
    for step in (wrong_steps.loss_not_divided, wrong_steps.zero_grad_forgotten):
        assert {f.id for f in prove(step, reference).faults} == wrong_steps.FAULTY[step][1]


@pytest.mark.parametrize("micro_batches", [1, 3, 4, 5, 9])
def test_a_right_step_is_right_for_any_number_of_batches(micro_batches):
    for step in (right_steps.windows_by_islice, right_steps.clip_limit_multiplied_by_the_scale):
        proof = prove(step, Reference(micro_batches=micro_batches))
        assert proof.equivalent, str(proof)
        assert proof.gradient_difference <= 1e-10


def own_optimizer(model, loader, optimizer):
    own = torch.optim.Adam(model.parameters(), lr=1e-3)
    right_steps.modulo_and_end(model, loader, own, cross_entropy)


def weights_kept_small(model, window, optimizer):
    right_steps.a_window_at_a_time(model, window, optimizer)
    with torch.no_grad():
        for p in model.parameters():
            p.clamp_(-0.2, 0.2)


def test_an_optimizer_of_its_own_is_no_fault_and_is_noted():
    proof = prove(own_optimizer)
    assert proof.faults == ()
    assert "optimizer" in proof.notes[0]
    assert "used in another way" in proof.verdict
    assert proof.weight_difference > 1e-3


def test_a_change_of_weights_between_updates_is_not_called_the_same():
    proof = prove(weights_kept_small)
    assert not proof.equivalent or "another way" in proof.verdict


def test_equal_batches_cannot_be_told_apart_and_raise_nothing():
    def make_batches():
        return [(torch.randn(6, 12), torch.randint(5, (6,)))] * 11

    assert prove(right_steps.modulo_and_end, Reference(make_batches=make_batches)).equivalent


def test_layer_norm_is_equal():
    def make_model():
        return nn.Sequential(nn.Linear(12, 16), nn.LayerNorm(16), nn.Dropout(0.0), nn.Linear(16, 5))

    assert prove(right_steps.modulo_and_end, Reference(make_model=make_model)).natural == ()


@settings(max_examples=15)
@given(
    k=st.integers(1, 5),
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=8),
    seed=st.integers(0, 5),
    weight_by=st.sampled_from(["samples", "tokens"]),
)
def test_the_courses_windows_equal_the_large_batch_for_any_sizes(k, sizes, seed, weight_by):
    from course_lib.train.accumulation import AccumulatingStep, tokens_in
    from course_lib.train.batch import samples_in
    from course_lib.train.step import TrainingStep

    def make_batches():
        if weight_by == "samples":
            return [(torch.randn(n, 12), torch.randint(5, (n,))) for n in sizes]
        made = []
        for number, n in enumerate(sizes):
            targets = torch.randint(13, (2, n)).masked_fill(torch.rand(2, n) < 0.3, -100)
            if number % k == 0:
                targets[0, 0] = 1  # a window must have a token
            elif n == 1:
                targets[:] = -100  # and a batch need not
            made.append((torch.randint(13, (2, n)), targets))
        return made

    def step(model, loader, optimizer, criterion):
        count = samples_in if weight_by == "samples" else tokens_in
        accumulating = AccumulatingStep(TrainingStep(model, optimizer, criterion), k, count=count)
        for window in accumulating.windows(loader):
            accumulating(window)

    reference = Reference(k, epochs=1, make_batches=make_batches, seed=seed, weight_by=weight_by)
    proof = prove(step, reference)
    assert proof.equivalent, str(proof)
    assert proof.gradient_difference <= 1e-10


def test_nothing_is_left_changed():
    def state():
        return (
            torch.optim.Optimizer.zero_grad,
            torch.amp.GradScaler.__init__,
            torch.amp.GradScaler.step,
            torch.nn.utils.clip_grad_norm_,
            right_steps.clip_grad_norm_,
            torch.optim.lr_scheduler.LRScheduler.step,
        )

    before, random = state(), torch.get_rng_state()
    prove(right_steps.course_step)
    prove(right_steps.with_clipping)
    with pytest.raises(CourseError):
        prove(lambda model, loader, optimizer: 1 / 0)
    assert state() == before
    assert torch.equal(torch.get_rng_state(), random)


def test_a_proof_goes_through_json_and_shows_itself_escaped():
    proof = prove(wrong_steps.one_graph_twice)
    assert Proof.from_json(proof.to_json()) == proof
    assert json.loads(proof.to_json())["equivalent"] is False
    assert "<b>Not the same" in proof._repr_html_()
    assert "<lambda>" not in proof._repr_html_()
    with pytest.raises(CourseError, match="no proof"):
        Proof.from_json("{}")


def stops(model, loader, optimizer):
    for x, y in loader:
        cross_entropy(model(x.float()), y)


def wants_a_card(model, loader, optimizer):
    raise RuntimeError("No CUDA GPUs are available")


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (lambda model, loader, optimizer, colour: None, "asks for 'colour'"),
        (lambda loader, optimizer: None, "does not take the model"),
        (lambda model, loader: None, "does not take the optimizer"),
        (lambda model, optimizer: None, "takes no batches"),
        (lambda model, loader, optimizer, max_norm: None, "max_norm=1.0"),
        (stops, "runs in float64"),
        (wants_a_card, "take `device` as a parameter"),
        (lambda model, loader, optimizer: 1 / 0, "ZeroDivisionError: division by zero"),
        (len, "asks for 'obj'"),
    ],
)
def test_a_step_that_cannot_be_called_is_told_why(step, told):
    with pytest.raises(CourseError, match=told):
        prove(step)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"accumulation_steps": 0}, "accumulation_steps cannot be 0: give a whole number from 1"),
        ({"epochs": 1.5}, "epochs cannot be 1.5"),
        ({"ranks": (0, 0)}, "micro-batches of a rank cannot be 0: give a whole number from 1"),
        ({"ranks": (4,)}, "2 to 8 ranks"),
        ({"ranks": (4, 0)}, "micro-batches of a rank cannot be 0"),
        ({"weight_by": "words"}, "samples"),
    ],
)
def test_a_reference_that_makes_no_sense_is_told(settings, told):
    with pytest.raises(CourseError, match=told):
        Reference(**settings)


def test_a_number_in_place_of_a_reference_is_told():
    with pytest.raises(CourseError, match=r"5 is no Reference: write Reference\("):
        prove(right_steps.modulo_and_end, 5)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"make_batches": list}, "0 micro-batches"),
        ({"make_model": nn.Identity}, "0 parameters"),
        ({"make_model": lambda: 3}, "must be a torch.nn.Module"),
        ({"make_model": lambda: nn.Linear(2000, 2000)}, "smaller one"),
        ({"make_batches": lambda: [(torch.rand(0, 12), torch.zeros(0))]}, "without a sample"),
        ({"make_batches": lambda: [torch.rand(3, 12)] * 4, "weight_by": "tokens"}, "pair"),
        (
            {"make_batches": lambda: [(torch.ones(1, 2), torch.full((1, 2), -100))], "weight_by": "tokens"},
            "no token counts",
        ),
    ],
)
def test_a_task_that_cannot_be_trained_on_is_told(settings, told):
    with pytest.raises(CourseError, match=told):
        prove(right_steps.modulo_and_end, Reference(**settings))
