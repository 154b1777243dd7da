"""With which settings does a `DataLoader` load, and how is the same loader made with others?"""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler

from course_lib.bounds import whole_in
from course_lib.errors import CourseError

StartMethod = Literal["fork", "forkserver", "spawn"]
DEFAULT_PREFETCH = 2
DEFAULT_BATCH = 32
MOST_IN_A_BATCH = 1_000_000


@dataclass(frozen=True)
class LoaderSettings:
    """How a loader works: nothing here changes which samples come, only when they are ready.

    `threads` are those of the training process (`torch.set_num_threads`), None to leave them; a worker always
    computes with one. `start_method` None is the system's own.
    """

    num_workers: int = 0
    prefetch_factor: int | None = None
    persistent_workers: bool = False
    pin_memory: bool = False
    threads: int | None = None
    start_method: StartMethod | None = None

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments for `DataLoader`."""
        given: dict[str, Any] = {"num_workers": self.num_workers, "pin_memory": self.pin_memory}
        if self.num_workers:
            given["persistent_workers"] = self.persistent_workers
            if self.prefetch_factor is not None:
                given["prefetch_factor"] = self.prefetch_factor
            if self.start_method is not None:
                given["multiprocessing_context"] = self.start_method
        return given

    def code(self) -> str:
        """The arguments as they are typed."""
        return ", ".join(f"{name}={value!r}" for name, value in self.arguments().items())

    def brief(self) -> str:
        """What may differ from one trial to the next, in words."""
        said = f"{self.num_workers} worker{'' if self.num_workers == 1 else 's'}"
        if self.num_workers and self.prefetch_factor is not None:
            said += f", prefetch_factor {self.prefetch_factor}"
        if self.threads is not None:
            said += f", {self.threads} thread{'' if self.threads == 1 else 's'} for the step"
        return said

    def to_json(self) -> dict[str, Any]:
        """All of it as plain data."""
        return asdict(self)

    def __str__(self) -> str:
        threads = f"; torch.set_num_threads({self.threads})" if self.threads is not None else ""
        return f"DataLoader(..., {self.code()}){threads}"


@dataclass(frozen=True)
class Source:
    """What is loaded: a data set and how its samples become batches, apart from any settings.

    `start_method` is the one that a `DataLoader` asked for; None where none did.
    """

    dataset: Dataset[Any]
    batch_size: int | None
    arguments: Mapping[str, Any]  # sampler, collate_fn and the like
    start_method: StartMethod | None = None

    @classmethod
    def of(cls, dataset: Any, batch_size: int | None = None, collate_fn: Any = None) -> "Source":
        """From a data set, or from a `DataLoader`, whose sampler, batches and collating are kept.

        By default batches have 32 samples, or as many as the data set where it has fewer.

        Raises CourseError for something else, for an empty data set, for a batch size that is no whole number
        of 1 or more, and for a `collate_fn` that is no function.
        """
        if batch_size is not None:
            batch_size = whole_in(batch_size, "The batch size", 1, MOST_IN_A_BATCH)
        if collate_fn is not None and not callable(collate_fn):
            raise CourseError(
                f"The collate_fn must be a function of a list of samples, not {collate_fn!r:.60}."
            )
        if isinstance(dataset, DataLoader):
            return cls._of_loader(dataset, batch_size)
        if isinstance(dataset, IterableDataset):
            size = batch_size or DEFAULT_BATCH
            return cls(dataset, size, {"batch_size": size, "collate_fn": collate_fn})
        is_data = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
        if not is_data or isinstance(dataset, str | bytes | dict):
            raise CourseError(
                f"An object of type {type(dataset).__name__} cannot be loaded from: give a data set with "
                "__getitem__ and __len__, an IterableDataset, or a DataLoader."
            )
        if len(dataset) == 0:
            raise CourseError("The data set is empty: give one with at least one sample.")
        size = batch_size or min(DEFAULT_BATCH, len(dataset))
        sampler = RandomSampler(dataset, replacement=len(dataset) < size)
        arguments = {"batch_size": size, "sampler": sampler, "collate_fn": collate_fn}
        return cls(dataset, size, arguments)

    @classmethod
    def _of_loader(cls, loader: DataLoader[Any], batch_size: int | None) -> "Source":
        kept: dict[str, Any] = {
            "collate_fn": loader.collate_fn,
            "worker_init_fn": loader.worker_init_fn,
            "timeout": loader.timeout,
        }
        context = loader.multiprocessing_context
        method = None if context is None else context.get_start_method()
        if batch_size is not None and loader.batch_size is not None:
            kept |= {"batch_size": batch_size, "drop_last": loader.drop_last}
            if not isinstance(loader.dataset, IterableDataset):
                kept["sampler"] = loader.sampler
            return cls(loader.dataset, batch_size, kept, method)
        if isinstance(loader.dataset, IterableDataset):
            kept |= {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
        elif loader.batch_sampler is not None:
            kept["batch_sampler"] = loader.batch_sampler
        else:
            kept |= {"batch_size": None, "sampler": loader.sampler}
        return cls(loader.dataset, loader.batch_size, kept, method)

    @property
    def batched(self) -> bool:
        """Whether what it gives are batches; else a step gets one thing of the data set, as it is."""
        return self.batch_size is not None or "batch_sampler" in self.arguments

    def loader(
        self, settings: LoaderSettings, *, endless: bool = False, timeout_s: float = 0.0
    ) -> DataLoader[Any]:
        """A loader with these settings. With `endless`, its sampler begins anew where an epoch ends.

        Workers that give no batch for `timeout_s` seconds are an error, unless the source has a limit of its
        own; 0 waits for ever.
        """
        given = dict(self.arguments) | settings.arguments()
        asked = given.pop("timeout", 0)
        if settings.num_workers:
            given["timeout"] = asked or timeout_s
        if endless:
            for name in ("batch_sampler", "sampler"):
                if given.get(name) is not None:
                    given[name] = _Endless(given[name])
        with warnings.catch_warnings():
            # More workers than cores are tried on purpose, where they wait for storage.
            warnings.filterwarnings("ignore", "This DataLoader will create")
            return DataLoader(self.dataset, **given)


class _Endless:
    """A sampler over and over."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        while True:
            drawn = False
            for one in self.sampler:
                drawn = True
                yield one
            if not drawn:
                return

    def __len__(self) -> int:
        return 2**40
