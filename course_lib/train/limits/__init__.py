"""What happens when memory is short? A child process, or a card, that really has no more.

- ``limited_run``: a function in a limited child; ``limited_child``: the child's side
- ``limited_training``: training steps to run there
- ``counted_budget``, ``windows_job``: the means where there is no RLIMIT_DATA
- ``small_card``: a large NVIDIA card that behaves as a small one
"""

from course_lib.train.limits.limited_run import LimitedRun, run_limited

__all__ = ["LimitedRun", "run_limited"]
