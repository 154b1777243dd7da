"""What does ``PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`` change? One growing segment for each pool.

Address space is set aside once and for all; memory is put behind it page by page (2 MiB in the small
pool, 20 MiB in the large one) where it is needed, and taken away again from whole free pages. Blocks of
different sizes share the one segment, so that a larger batch can use the memory of a smaller one: little
is lost to fragmentation.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass

from course_lib.plan.allocator import LARGE_BUFFER, MIN_BLOCK, SMALL_BUFFER, Block, CachingAllocator

_SPACE = LARGE_BUFFER * 2**30  # bytes of addresses for each pool: more than any card has


def _page(small: bool) -> int:
    return SMALL_BUFFER if small else LARGE_BUFFER


@dataclass(eq=False)
class ExpandableAllocator(CachingAllocator):
    """The caching allocator with expandable segments."""

    def __post_init__(self) -> None:
        for small, base in ((True, 0), (False, 2 * _SPACE)):
            self._at[base] = Block(base, _SPACE, small, mapped=False, segment=base)
            self._segments[base] = _SPACE

    def _worth_splitting(self, rest: int, small: bool) -> bool:
        return rest >= MIN_BLOCK

    def _grow(self, size: int, small: bool) -> Block:
        start = self._room(size, small)
        missing = self._missing(start, size)
        before = self.retries
        self._reserve(missing, size)
        if self.retries != before:  # the cache was emptied: the free pages counted on may be gone
            self.reserved -= missing
            start = self._room(size, small)
            self._reserve(self._missing(start, size), size)
        if start.mapped:
            self._unlist(self._free[small], start)
        else:
            self._map(start, size)
        while start.size < size:
            following = start.following
            assert following is not None
            if following.mapped:
                self._unlist(self._free[small], following)
            else:
                self._map(following, size - start.size)
            start.size += following.size
            self._unlink(start, following)
        following = start.following
        if following is not None and following.free and following.mapped:
            self._unlist(self._free[small], following)
            start.size += following.size
            self._unlink(start, following)
        return start

    def empty_cache(self) -> int:
        """Take the memory away from every whole free page. Returns the bytes."""
        before = self.reserved
        for small in (True, False):
            page = _page(small)
            entries, self._free[small] = self._free[small], []
            for _, address in entries:
                block = self._at[address]
                offset = block.address - block.segment
                first = -(-offset // page) * page + block.segment
                last = (offset + block.size) // page * page + block.segment
                if first >= last:
                    insort(self._free[small], (block.size, block.address))
                    continue
                if last < block.address + block.size:
                    self._split(block, last - block.address)
                if first > block.address:
                    self._split(block, first - block.address)
                    insort(self._free[small], (block.size, block.address))
                    assert block.following is not None
                    block = block.following
                    self._unlist(self._free[small], block)
                self.reserved -= block.size
                block.mapped = False
                self._join_unmapped(block)
        return before - self.reserved

    # -- inside --------------------------------------------------------------------------------------

    def _room(self, size: int, small: bool) -> Block:
        """The lowest free block from which ``size`` bytes of addresses are free."""
        block: Block | None = self._at[0 if small else 2 * _SPACE]
        start, length = None, 0
        while block is not None:
            if block.free:
                start = start or block
                length += block.size
                if length >= size:
                    return start
            else:
                start, length = None, 0
            block = block.following
        raise AssertionError("the address space is larger than any request")

    def _missing(self, start: Block, size: int) -> int:
        """Bytes to put behind addresses so that ``size`` bytes from ``start`` have memory."""
        page, missing, block = _page(start.small), 0, start
        while size > 0:
            if block.mapped:
                size -= block.size
            else:
                pages = min(block.size, -(-size // page) * page)
                missing += pages
                size -= pages
            if size > 0:
                assert block.following is not None
                block = block.following
        return missing

    def _map(self, block: Block, size: int) -> None:
        """Put memory behind the first pages of an unmapped block, enough for ``size`` bytes or the whole
        block.
        """
        page = _page(block.small)
        length = min(block.size, -(-size // page) * page)
        if length < block.size:
            self._cut(block, length, mapped=False)
        block.mapped = True

    def _join_unmapped(self, block: Block) -> None:
        following, previous = block.following, block.previous
        if following is not None and not following.mapped:
            block.size += following.size
            self._unlink(block, following)
        if previous is not None and not previous.mapped:
            previous.size += block.size
            self._unlink(previous, block)
