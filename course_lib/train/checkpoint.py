"""How does a run survive being killed?

`save` writes all that the next step depends on: model, optimizer, scheduler, gradient scaler, the state of
every random number generator, and the position in the data. `load` puts it back, and training goes on as if
nothing had happened, to the last bit.

A file is written under a temporary name, forced to the disk and renamed, so a checkpoint is either whole
or not there. The one before it is kept as NAME.previous and is used when the newest is damaged. On the
disk that takes twice the checkpoint's size, and three times while a new one is being written.
"""

import os
import pickle
import random
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from course_lib.errors import CourseError

FORMAT = 2  # 1 had no gradient scaler
KEYS = {"format", "model", "optimizer", "scheduler", "grad_scaler", "position", "random"}


@dataclass(frozen=True)
class Loaded:
    """What `load` found: the position that was saved with it, and the file that was read.

    The random state is set by `load` already. A loop that draws random numbers before its first step (to
    start a loader, say) calls `restore_random_state` again, right before that step.
    """

    position: dict[str, Any]
    source: Path
    random_state: dict[str, Any]

    def restore_random_state(self) -> None:
        """Set every random number generator to where it was when the checkpoint was saved."""
        set_random_state(self.random_state)


def save(
    path: str | Path,
    *,
    model: nn.Module,
    optimizer: Optimizer,
    scheduler: LRScheduler | None = None,
    grad_scaler: GradScaler | None = None,
    position: Mapping[str, Any],
) -> None:
    """Write a checkpoint to `path`, keeping the one before as NAME.previous.

    `position` says where in the data the run is: plain numbers, texts and lists. Raises CourseError when
    the folder cannot be written, or when a state holds something that could not be read back safely.
    """
    path = Path(path)
    state = {
        "format": FORMAT,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict() if scheduler is not None else None,
        "grad_scaler": grad_scaler.state_dict() if grad_scaler is not None else None,
        "position": dict(position),
        "random": random_state(),
    }
    _require_plain(state, "the state")
    temporary = path.with_name(path.name + ".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            path.replace(previous(path))
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise CourseError(
            f"The checkpoint {path} cannot be written ({error.strerror or error}): free some disk space or "
            "choose a folder you may write to."
        ) from error


def load(
    path: str | Path,
    *,
    model: nn.Module,
    optimizer: Optimizer,
    scheduler: LRScheduler | None = None,
    grad_scaler: GradScaler | None = None,
) -> Loaded:
    """Put a checkpoint back into the model, optimizer, scheduler and scaler, and set the random state.

    Warns when the newest file is damaged or missing and the one before it was used. Raises CourseError
    when there is none, when both are damaged, or when it was saved from a different model or optimizer.
    Nothing in the file is executed.
    """
    state, source = _newest_whole(Path(path))
    for key, part, name in (
        ("scheduler", scheduler, "learning-rate scheduler"),
        ("grad_scaler", grad_scaler, "gradient scaler, as fp16 needs one"),
    ):
        if (state[key] is None) != (part is None):
            has = "has no" if state[key] is None else "has a"
            raise CourseError(
                f"The checkpoint {source} {has} {name}, and this run is the other way round: set the run up "
                "as it was."
            )
    try:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        if scheduler is not None:
            scheduler.load_state_dict(state["scheduler"])
        if grad_scaler is not None:
            grad_scaler.load_state_dict(state["grad_scaler"])
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CourseError(
            f"The checkpoint {source} was saved from a different model or optimizer: build the same ones, "
            "or start without resuming."
        ) from error
    loaded = Loaded(state["position"], source, state["random"])
    loaded.restore_random_state()
    return loaded


def previous(path: Path) -> Path:
    """The name under which the checkpoint before this one is kept."""
    return path.with_name(path.name + ".previous")


def exists(path: str | Path) -> bool:
    """Whether there is a checkpoint to resume from, be it only the one before."""
    return Path(path).exists() or previous(Path(path)).exists()


def random_state() -> dict[str, Any]:
    """The state of Python's, NumPy's and torch's random number generators, on every device in use."""
    name, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    state: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": (name, torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, gauss),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = torch.cuda.get_rng_state_all()
    if torch.backends.mps.is_available():
        state["mps"] = torch.mps.get_rng_state()
    return state


def set_random_state(state: Mapping[str, Any]) -> None:
    """Set the random number generators to a `random_state`; those of a device that is absent are left."""
    random.setstate(state["python"])
    name, keys, position, has_gauss, gauss = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), position, has_gauss, gauss))
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.device_count() == len(state["cuda"]):
        torch.cuda.set_rng_state_all(state["cuda"])
    if "mps" in state and torch.backends.mps.is_available():
        torch.mps.set_rng_state(state["mps"])


def _require_plain(value: Any, place: str) -> None:
    """Refuse now what `load` would refuse later, when it is too late."""
    if value is None or isinstance(value, Tensor) or type(value) in (bool, int, float, str):
        return
    if isinstance(value, Mapping):
        for key, part in value.items():
            _require_plain(key, f"a key of {place}")
            _require_plain(part, str(key))
    elif type(value) in (list, tuple):
        for part in value:
            _require_plain(part, place)
    else:
        raise CourseError(
            f"A checkpoint holds plain data only, and {place} holds a {type(value).__name__}: turn it into "
            "numbers, texts, lists or tensors."
        )


class _DamagedError(Exception):
    """This file is not a whole checkpoint."""


def _newest_whole(path: Path) -> tuple[dict[str, Any], Path]:
    if not exists(path):
        raise CourseError(f"There is no checkpoint {path}: start the run without resuming first.")
    faults = []
    for source in (path, previous(path)):
        try:
            state = _read(source)
        except _DamagedError as error:
            faults.append(str(error))
            continue
        if faults:
            warnings.warn(
                f"The checkpoint {path} {faults[0]}; the one before it was used: some steps are done again.",
                stacklevel=3,
            )
        return state, source
    raise CourseError(
        f"The checkpoint {path} {faults[0]}, and the one before it {faults[1]}: start again without resuming."
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        # torch does not compare the checksums that it writes; a flipped bit would pass for a weight.
        with zipfile.ZipFile(path) as archive:
            if archive.testzip() is not None:
                raise _DamagedError("is damaged")
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise _DamagedError("is missing") from None
    except pickle.UnpicklingError:
        raise _DamagedError("holds objects that are not plain data, so it is not read") from None
    except OSError as error:
        raise _DamagedError(f"cannot be read ({error.strerror or error})") from error
    except (zipfile.BadZipFile, RuntimeError, EOFError, ValueError, KeyError, NotImplementedError) as error:
        raise _DamagedError("is damaged") from error
    if not isinstance(state, dict) or set(state) != KEYS or state["format"] != FORMAT:
        raise _DamagedError("was not written by this version of the course")
    return state


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut, where the system lets a folder be synchronised."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
