"""How does the backward pass run when the autograd engine cannot? Node by node, in the engine's own order.

The engine refuses fake CUDA tensors on a machine without a card. The graph it would walk is plain to see,
though: ``grad_fn`` and ``next_functions``. This module walks it in the engine's order (latest forward
operation first, gradients into leaves as soon as they are ready), calls each node, shapes and casts each
gradient as the engine does, and lets go of each node after its call, so that what it saved is released
when the engine would release it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

import torch

Key = tuple[int, int]


def _key(node: Any) -> Key:
    if node.name() == "torch::autograd::AccumulateGrad":
        return (1, id(node.variable))  # leaves share one sequence number: the parameter tells them apart
    return (0, node._sequence_nr())


def _dependencies(roots: list[Any]) -> dict[Key, int]:
    """How many gradients each node waits for. Keeps no reference to a node: it would keep what the node
    saved.
    """
    counts: dict[Key, int] = {}
    seen: set[Key] = {_key(node) for node in roots}
    stack = list(roots)
    while stack:
        for following, _ in stack.pop().next_functions:
            if following is None:
                continue
            key = _key(following)
            counts[key] = counts.get(key, 0) + 1
            if key not in seen:
                seen.add(key)
                stack.append(following)
    return counts


def _fit(grad: torch.Tensor, meta: Any) -> torch.Tensor:
    """Reduce to the shape and cast to the dtype that the node's output had (the engine's
    ``validate_outputs``).
    """
    shape = torch.Size(meta.shape)
    if grad.shape != shape:
        grad = grad.sum_to_size(shape)
    if grad.dtype != meta.dtype and not meta.dtype.is_complex:
        grad = grad.to(meta.dtype)
    return grad


def _accumulate(parameter: torch.Tensor, grad: torch.Tensor) -> None:
    """What AccumulateGrad does: keep the gradient itself if its layout is the parameter's, else a copy."""
    if parameter.grad is None:
        same_layout = grad.stride() == parameter.stride()
        parameter.grad = grad.detach() if same_layout else _copy_like(grad, parameter)
    else:
        parameter.grad += grad
    for hook in (getattr(parameter, "_post_accumulate_grad_hooks", None) or {}).values():
        hook(parameter)


def _copy_like(grad: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    copy = torch.empty_strided(parameter.shape, parameter.stride(), dtype=grad.dtype, device=grad.device)
    return copy.copy_(grad)


def backward(
    tensors: list[torch.Tensor],
    grads: list[torch.Tensor],
    on_node: Callable[[int], None] | None = None,
    on_gradient: Callable[[torch.Tensor], None] | None = None,
) -> None:
    """Walk the graph of ``tensors`` from the given output gradients into ``.grad`` of the leaves.

    Both lists are emptied: the caller must hold no other reference to the loss, or what its graph saved
    stays alive. ``on_node`` hears the sequence number of each node before it runs, ``on_gradient`` each
    parameter whose ``.grad`` has just been set or added to.
    """
    walk = _Walk(on_node, on_gradient)
    roots: list[Any] = []
    while tensors:
        tensor, grad = tensors.pop(), grads.pop()
        if tensor.grad_fn is not None:
            walk.give(tensor.grad_fn, tensor.output_nr, grad)
            if all(tensor.grad_fn is not other for other in roots):
                roots.append(tensor.grad_fn)
        del tensor, grad
    walk.counts = _dependencies(roots)
    while roots:
        node = roots.pop()
        if not walk.counts.get(_key(node)):
            walk.make_ready(node)
        del node
    with torch.no_grad():
        while walk.heap:
            walk.step()


class _Walk:
    """The state of one backward pass: gradients on their way, and nodes that have all of theirs."""

    def __init__(
        self, on_node: Callable[[int], None] | None, on_gradient: Callable[[torch.Tensor], None] | None
    ) -> None:
        self.on_node, self.on_gradient = on_node, on_gradient
        self.counts: dict[Key, int] = {}
        self.heap: list[tuple[int, int, int]] = []  # leaves first, then the latest forward operation
        self._nodes: dict[int, Any] = {}
        self._waiting: dict[Key, list[torch.Tensor | None]] = {}
        self._order = 0

    def make_ready(self, node: Any) -> None:
        leaf, number = _key(node)
        self._order += 1
        heapq.heappush(self.heap, (0, 0, self._order) if leaf else (1, -number, self._order))
        self._nodes[self._order] = node

    def give(self, node: Any, number: int, grad: torch.Tensor | None) -> None:
        """Add ``grad`` to output ``number`` of ``node``."""
        slots = self._waiting.setdefault(_key(node), [None] * max(1, len(node._input_metadata)))
        if grad is not None:
            held = slots[number]
            slots[number] = grad if held is None else held + grad

    def step(self) -> None:
        """Run the next node, and let go of it and of its gradients."""
        node = self._nodes.pop(heapq.heappop(self.heap)[2])
        leaf, number = _key(node)
        slots = self._waiting.pop((leaf, number))
        if leaf:
            self._finish(node.variable, slots)
            return
        if self.on_node is not None:
            self.on_node(number)
        outputs = _call(node, slots)
        slots.clear()
        edges = list(node.next_functions)[: len(outputs)]
        del node  # with it goes what it saved, before the next one runs
        outputs.reverse()
        for following, place in edges:
            grad = outputs.pop()
            if following is None:
                continue
            key = _key(following)
            if grad is not None and not key[0]:
                grad = _fit(grad, following._input_metadata[place])
            self.give(following, place, grad)
            del grad
            self.counts[key] -= 1
            if self.counts[key] == 0:
                self.make_ready(following)

    def _finish(self, parameter: torch.Tensor, slots: list[torch.Tensor | None]) -> None:
        grad = slots.pop()
        if grad is None:
            return
        grad = _fit(grad, parameter)
        _accumulate(parameter, grad)
        if self.on_gradient is not None:
            self.on_gradient(parameter)


def _call(node: Any, slots: list[torch.Tensor | None]) -> list[torch.Tensor | None]:
    if all(slot is None for slot in slots):
        return [None] * len(node.next_functions)
    if isinstance(node, torch.autograd.function.BackwardCFunction):
        python_node: Any = node
        # Missing gradients become zeros, the default of a Function. Whether it asked for None instead
        # cannot be read.
        slots = [
            torch.zeros(meta.shape, dtype=meta.dtype, device=meta.device) if slot is None else slot
            for slot, meta in zip(slots, python_node._input_metadata, strict=True)
        ]
        outputs = python_node.apply(*slots)
    else:
        outputs = node(*slots)
    outputs = list(outputs) if isinstance(outputs, tuple) else [outputs]
    # A Function's backward may return more values than it has differentiable inputs.
    return outputs[: len(node.next_functions)]
