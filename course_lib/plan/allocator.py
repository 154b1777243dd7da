"""How much memory does PyTorch's CUDA caching allocator reserve for a sequence of allocations and releases?

A replay of the rules in ``c10/cuda/CUDACachingAllocator.cpp``, for one stream:

- sizes are rounded up to 512 bytes; at most 1 MiB is small, served from 2 MiB segments; up to 10 MiB
  comes from 20 MiB segments; more from a segment of its own, rounded up to 2 MiB;
- best fit: the smallest free block that is large enough, at the lowest address among equals; it is split
  if at least 512 bytes (small) or more than 1 MiB (large) remain;
- a released block joins its free neighbours in the same segment, and stays reserved;
- at the card's limit, wholly free segments are given back, and the segment is asked for once more; then
  it is "out of memory";

Addresses are counted up in the order of the segments; on a card they are the driver's choice, which
matters only between equals.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

KIB, MIB = 2**10, 2**20
MIN_BLOCK = 512
SMALL_SIZE = 1 * MIB
SMALL_BUFFER = 2 * MIB
MIN_LARGE = 10 * MIB
LARGE_BUFFER = 20 * MIB
ROUND_LARGE = 2 * MIB


class OutOfMemoryError(MemoryError):
    """The card's memory is spent, also after everything in the cache was given back."""

    def __init__(self, requested: int, allocated: int, reserved: int, capacity: int) -> None:
        super().__init__(
            f"{requested} bytes asked for, {allocated} allocated, {reserved} reserved, capacity {capacity}"
        )
        self.requested, self.allocated, self.reserved, self.capacity = (
            requested,
            allocated,
            reserved,
            capacity,
        )


@dataclass(eq=False, slots=True)
class Block:
    """A stretch of addresses in one segment, with its neighbours there."""

    address: int
    size: int
    small: bool
    free: bool = True
    mapped: bool = True  # False: an address range of an expandable segment with no memory behind it
    segment: int = 0
    previous: Block | None = None
    following: Block | None = None


@dataclass(frozen=True)
class AllocatorStats:
    """Bytes, as ``torch.cuda.memory_stats`` counts them."""

    allocated: int
    allocated_peak: int
    reserved: int
    reserved_peak: int
    segments: int
    retries: int

    @property
    def fragmentation(self) -> float:
        """Share of the reserved bytes that no tensor uses, now."""
        return 1 - self.allocated / self.reserved if self.reserved else 0.0


def round_size(size: int) -> int:
    """The bytes that a block of ``size`` bytes takes: a multiple of 512, at least 512."""
    return max(MIN_BLOCK, -(-size // MIN_BLOCK) * MIN_BLOCK)


def segment_size(size: int) -> int:
    """The bytes that a new segment for a block of ``size`` (rounded) bytes takes."""
    if size <= SMALL_SIZE:
        return SMALL_BUFFER
    if size < MIN_LARGE:
        return LARGE_BUFFER
    return -(-size // ROUND_LARGE) * ROUND_LARGE


@dataclass(eq=False)
class CachingAllocator:
    """The allocator's state. ``capacity``: bytes that may be reserved; None: no limit."""

    capacity: int | None = None
    allocated: int = 0
    allocated_peak: int = 0
    reserved: int = 0
    reserved_peak: int = 0
    retries: int = 0
    _free: dict[bool, list[tuple[int, int]]] = field(default_factory=lambda: {True: [], False: []})
    _at: dict[int, Block] = field(default_factory=dict)
    _segments: dict[int, int] = field(default_factory=dict)
    _next_address: int = 0

    def allocate(self, size: int) -> int:
        """Take a block of at least ``size`` bytes. Returns its address. Raises OutOfMemoryError at the
        limit.
        """
        if size < 0:
            raise ValueError(f"a block cannot have {size} bytes")
        size = round_size(size)
        small = size <= SMALL_SIZE
        pool = self._free[small]
        index = bisect_left(pool, (size, -1))
        block = self._at[pool.pop(index)[1]] if index < len(pool) else self._grow(size, small)
        if self._worth_splitting(block.size - size, small):
            self._split(block, size)
        block.free = False
        self.allocated += block.size
        self.allocated_peak = max(self.allocated_peak, self.allocated)
        return block.address

    def release(self, address: int) -> None:
        """Give a block back to the cache; it joins its free neighbours."""
        block = self._at.get(address)
        if block is None or block.free:
            raise ValueError(f"no allocated block at address {address}")
        self.allocated -= block.size
        block.free = True
        pool = self._free[block.small]
        following = block.following
        if following is not None and following.free and following.mapped:
            self._unlist(pool, following)
            block.size += following.size
            self._unlink(block, following)
        previous = block.previous
        if previous is not None and previous.free and previous.mapped:
            self._unlist(pool, previous)
            previous.size += block.size
            self._unlink(previous, block)
            block = previous
        insort(pool, (block.size, block.address))

    def empty_cache(self) -> int:
        """Give back every wholly free segment. Returns the bytes."""
        before = self.reserved
        for small in (True, False):
            kept = []
            for entry in self._free[small]:
                block = self._at[entry[1]]
                if block.previous is None and block.following is None:
                    self.reserved -= block.size
                    del self._at[block.address]
                    del self._segments[block.segment]
                else:
                    kept.append(entry)
            self._free[small] = kept
        return before - self.reserved

    def largest_free(self) -> int:
        """The size in bytes of the largest block in the cache."""
        return max((pool[-1][0] for pool in self._free.values() if pool), default=0)

    def stats(self) -> AllocatorStats:
        """The counters now."""
        return AllocatorStats(
            self.allocated,
            self.allocated_peak,
            self.reserved,
            self.reserved_peak,
            len(self._segments),
            self.retries,
        )

    def check(self) -> None:
        """Raise AssertionError if the state contradicts itself. For tests."""
        mapped = [block for block in self._at.values() if block.mapped]
        assert sum(block.size for block in mapped) == self.reserved
        assert sum(block.size for block in mapped if not block.free) == self.allocated
        for small, pool in self._free.items():
            assert pool == sorted(pool)
            assert all(
                self._at[a].free and self._at[a].small is small and self._at[a].size == s for s, a in pool
            )
        for block in self._at.values():
            if block.following is not None:
                assert block.address + block.size == block.following.address
                assert not (block.free and block.following.free and block.mapped == block.following.mapped)
        assert sum(len(pool) for pool in self._free.values()) == sum(block.free for block in mapped)

    # -- inside --------------------------------------------------------------------------------------

    def _reserve(self, size: int, wanted: int) -> None:
        if self.capacity is not None and self.reserved + size > self.capacity:
            self.retries += 1
            self.empty_cache()
            if self.reserved + size > self.capacity:
                raise OutOfMemoryError(wanted, self.allocated, self.reserved, self.capacity)
        self.reserved += size
        self.reserved_peak = max(self.reserved_peak, self.reserved)

    def _worth_splitting(self, rest: int, small: bool) -> bool:
        return rest >= MIN_BLOCK if small else rest > SMALL_SIZE

    def _grow(self, size: int, small: bool) -> Block:
        """A free block of at least ``size`` bytes in a new segment, not listed as free."""
        length = segment_size(size)
        self._reserve(length, size)
        block = Block(self._next_address, length, small, segment=self._next_address)
        self._next_address += length + ROUND_LARGE  # a gap: two segments are never neighbours
        self._at[block.address] = block
        self._segments[block.segment] = length
        return block

    def _split(self, block: Block, size: int) -> None:
        rest = self._cut(block, size, mapped=True)
        insort(self._free[block.small], (rest.size, rest.address))

    def _cut(self, block: Block, size: int, *, mapped: bool) -> Block:
        """Shorten ``block`` to ``size`` bytes. Returns the free block that is left over, not yet listed."""
        rest = Block(
            block.address + size,
            block.size - size,
            block.small,
            True,
            mapped,
            block.segment,
            block,
            block.following,
        )
        if block.following is not None:
            block.following.previous = rest
        block.following = rest
        block.size = size
        self._at[rest.address] = rest
        return rest

    def _unlist(self, pool: list[tuple[int, int]], block: Block) -> None:
        del pool[bisect_left(pool, (block.size, block.address))]

    def _unlink(self, kept: Block, gone: Block) -> None:
        kept.following = gone.following
        if gone.following is not None:
            gone.following.previous = kept
        del self._at[gone.address]
