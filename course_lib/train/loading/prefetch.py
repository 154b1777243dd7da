"""How does loading go on while the step computes, without any worker process?

`Prefetcher` loads ahead in a thread. That helps where loading lets go of Python's lock: while it waits for
storage, copies large arrays, or decodes in C. It hands nothing over between processes.
"""

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from course_lib.errors import CourseError

_ASK_AGAIN_S = 0.1


class Prefetcher:
    """Gives the batches of a loader, of which up to `ahead` are made in advance by one thread.

        for batch in Prefetcher(loader):
            step(batch)

    The order is the loader's, and so are its errors. Where the loop is left early the thread ends too, after
    the batch that it is making.

    Raises CourseError when `ahead` is below 1.
    """

    def __init__(self, loader: Iterable[Any], ahead: int = 2) -> None:
        if ahead < 1:
            raise CourseError(f"At least one batch must be made ahead, not {ahead}.")
        self.loader = loader
        self.ahead = ahead

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        ready: queue.Queue[tuple[str, Any]] = queue.Queue(self.ahead)
        left = threading.Event()

        def put(kind: str, thing: Any) -> None:
            while not left.is_set():
                try:
                    ready.put((kind, thing), timeout=_ASK_AGAIN_S)
                    return
                except queue.Full:
                    continue

        def work() -> None:
            try:
                for batch in self.loader:
                    put("batch", batch)
                    if left.is_set():
                        return
            except BaseException as error:  # it belongs to whoever loops
                put("error", error)
            else:
                put("end", None)

        thread = threading.Thread(target=work, name="prefetch", daemon=True)
        thread.start()
        try:
            while True:
                kind, thing = ready.get()
                if kind == "batch":
                    yield thing
                elif kind == "error":
                    raise thing
                else:
                    return
        finally:
            left.set()
            thread.join()
