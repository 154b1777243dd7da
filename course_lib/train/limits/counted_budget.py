"""How can a small memory be emulated where the system cannot limit a process?

`CountedBudget` counts the bytes of every tensor that is alive, and refuses the one that goes over the
budget. It counts what operations return, forward and backward, and not what a kernel borrows inside: it is
an emulation, and says so.
"""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_active: list["CountedBudget"] = []


class CountedBudget(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is entered, tensors made by operations may hold `budget` bytes together.

        with CountedBudget(64 * 2**20):
            step(batch)

    Tensors that were made before do not count. An operation that goes over the budget raises
    `torch.OutOfMemoryError`, and what it made is let go. Meant for the CPU, for the thread that enters it.
    """

    def __init__(self, budget: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.budget = budget
        self.in_use = 0
        self.watchers: list[Callable[[int], None]] = []  # each is told the bytes in use when they grow
        self._alive: dict[int, weakref.ref[Any]] = {}

    def __enter__(self) -> "CountedBudget":
        _active.append(self)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *raised: Any) -> None:
        _active.remove(self)
        super().__exit__(*raised)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        before = {
            leaf.untyped_storage()._cdata for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)
        }
        outputs = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(outputs):
            if isinstance(leaf, Tensor):
                storage = leaf.untyped_storage()
                if storage._cdata not in before and storage._cdata not in self._alive:
                    self._count(storage)
        return outputs

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if self.in_use + size > self.budget:
            raise torch.OutOfMemoryError(
                f"out of memory (emulated: a counted budget): tried to allocate {size} bytes; "
                f"{self.in_use} of {self.budget} bytes are in use"
            )
        self.in_use += size
        for watcher in self.watchers:
            watcher(self.in_use)

        def released(_: Any) -> None:
            del self._alive[key]
            self.in_use -= size

        self._alive[key] = weakref.ref(storage, released)


def active_budget() -> CountedBudget | None:
    """The budget that is entered now, the innermost one; None outside."""
    return _active[-1] if _active else None
