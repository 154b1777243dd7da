"""How many workers do others suggest, without measuring anything?

Each function takes what its rule looks at. The guide's own formula is `course_lib.claims.best_num_workers`.
"""

from course_lib.errors import CourseError


def pytorch_default() -> int:
    """`DataLoader(num_workers=0)`, what is used where nothing is said."""
    return 0


def pytorch_limit(cores: int) -> int:
    """The number above which `DataLoader` warns ("Our suggested max number of worker"): the usable cores.

    Source: `DataLoader.check_worker_number_rationality` in torch/utils/data/dataloader.py.
    """
    return _count(cores, "cores")


def lightning_suggestion(cores: int, devices: int = 1) -> int:
    """What Lightning's warning suggests: the cores of each device, less one for its training process.

    Source: `lightning.fabric.utilities.data.suggested_max_num_workers`.
    """
    return max(1, _count(cores, "cores") // _count(devices, "devices") - 1)


def _count(number: int, what: str) -> int:
    if number < 1:
        raise CourseError(f"The number of {what} is 1 or more, not {number}.")
    return number
