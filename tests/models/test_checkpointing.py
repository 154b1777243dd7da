import copy
import io

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.models.checkpointing import BlockSaving, block_names, checkpoint_blocks, ranked
from course_lib.models.zoo import build


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(width, width),
            nn.BatchNorm1d(width),
            nn.Tanh(),
            nn.Dropout(0.4),
            nn.Linear(width, width),
        )

    def forward(self, inputs: Tensor, scale: float = 1.0) -> Tensor:
        return inputs + scale * self.layers(inputs)


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.blocks = nn.ModuleList(Block(8) for _ in range(3))
        self.last = nn.Sequential(nn.BatchNorm1d(8, momentum=None), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs)
        for block in self.blocks:
            hidden = block(hidden, scale=0.5)
        return self.last(hidden)


BLOCKS = ("blocks.0", "blocks.1", "blocks.2")
RANKING = tuple(BlockSaving(name, 100 - index, 1e-3) for index, name in enumerate(BLOCKS))


def tower() -> nn.Module:
    torch.manual_seed(0)
    return Tower().double()


def step(model: nn.Module, seed: int = 1) -> Tensor:
    """One forward and backward; the same seed draws the same dropout."""
    torch.manual_seed(seed)
    model.zero_grad()
    loss = model(torch.linspace(-1, 1, 24, dtype=torch.float64).reshape(4, 6)).square().sum()
    loss.backward()
    return loss.detach()


def same(one: nn.Module, other: nn.Module) -> None:
    for (name, a), (_, b) in zip(one.named_parameters(), other.named_parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=0, atol=0, msg=name)
    for (name, a), (_, b) in zip(one.named_buffers(), other.named_buffers(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, msg=name)


def kept_bytes(model: nn.Module) -> int:
    """What a forward pass leaves for the backward pass."""
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(torch.zeros(64, 6, dtype=torch.float64))
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


def test_gradients_dropout_and_running_statistics_are_the_same_over_steps() -> None:
    plain, checkpointed = tower(), tower()
    checkpoint_blocks(checkpointed, [*RANKING, BlockSaving("last", 1, 1.0)])
    for seed in range(3):
        torch.testing.assert_close(step(plain, seed), step(checkpointed, seed), rtol=0, atol=0)
        same(plain, checkpointed)
    norm = checkpointed.get_submodule("blocks.0.layers.1")
    assert norm.num_batches_tracked == 3


def test_torch_alone_updates_running_statistics_twice() -> None:
    """The trap is real: without the guard the test above would fail."""
    model = tower()
    block = model.get_submodule("blocks.0")
    out = torch.utils.checkpoint.checkpoint(block, torch.rand(4, 8, dtype=torch.float64), use_reentrant=False)
    out.sum().backward()
    assert model.get_submodule("blocks.0.layers.1").num_batches_tracked == 2


def test_a_real_convolutional_network_keeps_its_statistics() -> None:
    torch.manual_seed(0)
    plain = build("resnet18", num_classes=3).double()
    checkpointed = copy.deepcopy(plain)
    names = block_names(checkpointed)
    assert names == tuple(f"layer{i}.{j}" for i in (1, 2, 3, 4) for j in (0, 1))
    checkpoint_blocks(checkpointed, [BlockSaving(name, 1, 1.0) for name in names])
    images = torch.rand(2, 3, 32, 32, dtype=torch.float64)
    for model in (plain, checkpointed):
        model(images).square().sum().backward()
    same(plain, checkpointed)


def test_less_is_kept_and_all_of_it_again_after_removal() -> None:
    model = tower()
    whole = kept_bytes(model)
    blocks = checkpoint_blocks(model, RANKING)
    assert kept_bytes(model) < 0.6 * whole
    blocks.remove()
    blocks.remove()
    assert kept_bytes(model) == whole
    assert all("forward" not in module.__dict__ for module in model.modules())


def test_blocks_are_taken_in_order_until_the_target() -> None:
    model = tower()
    blocks = checkpoint_blocks(model, RANKING, target_bytes=150)
    assert blocks.names == BLOCKS[:2]
    assert (blocks.bytes_saved, blocks.reached) == (199, True)
    assert "forward" not in model.get_submodule("blocks.2").__dict__
    blocks.remove()
    assert checkpoint_blocks(model, RANKING, target_bytes=0).names == ()
    all_of_them = checkpoint_blocks(model, RANKING, target_bytes=10_000)
    assert all_of_them.names == BLOCKS
    assert not all_of_them.reached
    assert "not reached" in str(all_of_them)


@given(st.lists(st.tuples(st.integers(-5, 50), st.floats(0, 10)), max_size=8))
def test_the_ranking_is_by_bytes_for_each_second(pairs: list[tuple[int, float]]) -> None:
    found = ranked(BlockSaving(str(index), *pair) for index, pair in enumerate(pairs))
    worth = [saving.bytes_per_second for saving in found]
    assert worth == sorted(worth, reverse=True)
    assert {saving.name for saving in found} == {str(i) for i, (saved, _) in enumerate(pairs) if saved > 0}


@settings(max_examples=15)
@given(st.permutations(BLOCKS), st.integers(0, 3))
def test_any_choice_of_blocks_changes_no_gradient(order: list[str], count: int) -> None:
    plain, checkpointed = tower(), tower()
    checkpoint_blocks(checkpointed, [BlockSaving(name, 1, 1.0) for name in order], target_bytes=count)
    step(plain)
    step(checkpointed)
    same(plain, checkpointed)


def test_what_lies_inside_a_taken_block_is_left() -> None:
    model = tower()
    ranking = [
        BlockSaving(name, 5, 1.0) for name in ("blocks.0.layers", "blocks.0", "blocks.0.layers.0", "blocks.1")
    ]
    blocks = checkpoint_blocks(model, ranking)
    assert blocks.names == ("blocks.0.layers", "blocks.1")
    assert blocks.skipped == ("blocks.0", "blocks.0.layers.0")
    assert blocks.bytes_saved == 10


def test_weights_are_saved_under_their_own_names() -> None:
    model = tower()
    names = list(model.state_dict())
    checkpoint_blocks(model, RANKING)
    assert list(model.state_dict()) == names
    model.load_state_dict(tower().state_dict())


def test_a_copy_computes_with_its_own_weights() -> None:
    model = tower()
    checkpoint_blocks(model, RANKING)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for twin in (copy.deepcopy(model), torch.load(file, weights_only=False)):
        with torch.no_grad():
            for parameter in twin.parameters():
                parameter.mul_(2)
        model.zero_grad()
        loss = step(twin)
        assert not torch.equal(loss, step(tower()))
        assert all(parameter.grad is None for parameter in model.parameters())


def test_nothing_is_recomputed_without_gradients() -> None:
    model = tower()
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    model.get_submodule("blocks.0.layers.0").register_forward_hook(count)
    checkpoint_blocks(model, RANKING)
    with torch.no_grad():
        model(torch.rand(4, 6, dtype=torch.float64))
    assert calls == 1
    step(model)
    assert calls == 3
    model.eval()
    before = copy.deepcopy(model.state_dict())
    step(model)
    torch.testing.assert_close(before, dict(model.state_dict()), rtol=0, atol=0)


def test_bad_names_change_nothing() -> None:
    model = tower()
    for name in ("blocks.7", "", "module."):
        with pytest.raises(CourseError, match="block_names"):
            checkpoint_blocks(model, [RANKING[0], BlockSaving(name, 1, 1.0)])
    assert "forward" not in model.get_submodule("blocks.0").__dict__
    checkpoint_blocks(model, RANKING[:1])
    with pytest.raises(CourseError, match="already"):
        checkpoint_blocks(model, RANKING)


def test_block_names_by_pattern() -> None:
    assert block_names(tower()) == (*BLOCKS, "last.0", "last.2")
    assert block_names(tower(), "blocks.*") == BLOCKS


def test_a_ddp_model_by_either_name(tmp_path: object) -> None:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        plain, inner = tower(), tower()
        model = nn.parallel.DistributedDataParallel(inner)
        assert block_names(model) == block_names(plain)
        ranking = [BlockSaving("module.blocks.0", 1, 1.0), BlockSaving("blocks.1", 1, 1.0)]
        blocks = checkpoint_blocks(model, ranking)
        assert blocks.names == BLOCKS[:2]
        for seed in range(2):
            step(plain, seed)
            step(model, seed)
            same(plain, inner)
        blocks.remove()
        assert "forward" not in inner.get_submodule("blocks.0").__dict__
    finally:
        dist.destroy_process_group()
