"""Which is the largest batch that fits into memory? A search by a few real training steps.

- ``search``: the trials, run and restored; ``batch_search``: which batch size comes next
- ``memory_meter``: the memory that is read; ``agreement``: the same decision on all ranks
- ``batch_size_result``: what was found
"""

from course_lib.train.rescue.search import find_batch_size, longest_batch

__all__ = ["find_batch_size", "longest_batch"]
