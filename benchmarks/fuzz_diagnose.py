"""Does any damaged paste make the reader crash, hang, or invent a figure?

Run: python benchmarks/fuzz_diagnose.py [--count 100000] [--seed 0] [--samples DIR] [--json]

Each input is one or two samples (tests/diagnose/samples, and any DIR of .txt files), damaged as pastes are
and worse: cut, wrapped, doubled, shuffled, recoded, with bytes of other files in between. For each: it is
answered in time, the answer prints in three ways, and every size that was read stands in the text.
"""

import argparse
import json
import random
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from course_lib.diagnose.paste import Paste
from course_lib.diagnose.recognise import Explanation, explain

SAMPLES = Path(__file__).parent.parent / "tests" / "diagnose" / "samples"
_ODD = [
    "\x00",
    "\x1b[31m",
    "\u202e",
    "\ufeff",
    "é",
    "漢字",
    "\u00a0",
    "|",
    "9" * 40,
    "\r",
    "\t",
    "NaN",
    "-1",
    "1e999",
]
_MESSAGES = (
    "RuntimeError: CUDA out of memory. Tried to allocate 1.95 GiB (GPU 2; 15.78 GiB total capacity; 9.11 "
    "GiB already allocated; 1.02 GiB free; 4.83 GiB cached)",
    "RuntimeError: CUDA out of memory. Tried to allocate 392.00 MiB (GPU 0; 7.80 GiB total capacity; 6.31 "
    "GiB already allocated; 131.44 MiB free; 6.55 GiB reserved in total by PyTorch) If reserved memory is "
    ">> allocated memory try setting max_split_size_mb to avoid fragmentation.",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB. GPU 1 has a total capacity of "
    "47.43 GiB of which 1.61 GiB is free. Process 8123 has 3.02 GiB memory in use. Including non-PyTorch "
    "memory, this process has 42.78 GiB memory in use. 43.00 GiB allowed; Of the allocated memory 40.11 "
    "GiB is allocated by PyTorch, with 64.00 MiB allocated in private pools (e.g., CUDA Graphs), and 1.90 "
    "GiB is reserved by PyTorch but unallocated.",
    "MPS backend out of memory (MPS allocated: 6.77 GB, other allocations: 1.31 GB, max allowed: 9.07 GB). "
    "Tried to allocate 1.50 GB on private pool.",
    "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate "
    "memory: you tried to allocate 6553600000 bytes. Error code 12 (Cannot allocate memory)",
    "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 14.9 GiB for an array with shape (2000, "
    "1000, 1000) and data type float64",
    "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
)


def samples(folders: Sequence[Path]) -> list[str]:
    """The texts to damage."""
    texts = list(_MESSAGES)
    for folder in folders:
        texts += [path.read_text(encoding="utf-8", errors="replace") for path in sorted(folder.glob("*.txt"))]
    return texts


def mutated(rng: random.Random, texts: Sequence[str]) -> str:
    """One damaged text."""
    text = rng.choice(texts)
    if rng.random() < 0.3:
        text += "\n" + rng.choice(texts)
    for _ in range(rng.randint(1, 6)):
        text = rng.choice(_WAYS)(rng, text)
    return text[:200_000]


def _cut(rng: random.Random, text: str) -> str:
    first, last = sorted((rng.randint(0, len(text)), rng.randint(0, len(text))))
    return text[first:] if rng.random() < 0.5 else text[:first] + text[last:]


def _wrap(rng: random.Random, text: str) -> str:
    width = rng.randint(3, 120)
    return "\n".join(
        line[i : i + width] for line in text.split("\n") for i in range(0, max(len(line), 1), width)
    )


def _change_characters(rng: random.Random, text: str) -> str:
    letters = list(text)
    for _ in range(rng.randint(1, 30)):
        if letters:
            letters[rng.randrange(len(letters))] = chr(
                rng.choice((rng.randint(32, 126), rng.randint(0, 0x2FFF)))
            )
    return "".join(letters)


def _change_numbers(rng: random.Random, text: str) -> str:
    def other(match: re.Match[str]) -> str:
        return rng.choice((match.group(), "0", "", "-5", str(rng.randint(0, 10**18)), match.group() * 9))

    return re.sub(r"\d+", lambda m: other(m) if rng.random() < 0.1 else m.group(), text)


def _shuffle_lines(rng: random.Random, text: str) -> str:
    lines = text.split("\n")
    rng.shuffle(lines)
    return "\n".join(lines)


def _double_lines(rng: random.Random, text: str) -> str:
    return "\n".join(line for line in text.split("\n") for _ in range(rng.choice((0, 1, 1, 1, 2, 40))))


def _insert(rng: random.Random, text: str) -> str:
    place = rng.randint(0, len(text))
    return text[:place] + rng.choice(_ODD) * rng.randint(1, 200) + text[place:]


def _prefix_lines(rng: random.Random, text: str) -> str:
    prefix = rng.choice(("> ", "    ", "[rank1]: ", "2024-05-01 10:00:00 | INFO | ", "| ", "\t"))
    return "\n".join(prefix + line for line in text.split("\n"))


def _squeeze(rng: random.Random, text: str) -> str:
    return re.sub(r"[ \t]+", rng.choice((" ", "")), text) if rng.random() < 0.7 else text.replace("\n", " ")


_WAYS = (
    _cut,
    _wrap,
    _change_characters,
    _change_numbers,
    _shuffle_lines,
    _double_lines,
    _insert,
    _prefix_lines,
    _squeeze,
)


def check(text: str) -> Explanation:
    """Explain ``text``, print the answer three ways, look for invented sizes. Raises AssertionError."""
    explanation = explain(text)
    json.dumps(explanation.to_json(), allow_nan=False)
    assert str(explanation)
    assert explanation._repr_html_()
    squeezed = Paste.of(text).squeezed
    for reading in explanation.readings:
        for raw in _raw_sizes(reading.to_json()["figures"]):
            assert raw.replace(" ", "") in squeezed, f"{raw} does not stand in the text"
        assert 1 <= reading.first_line <= reading.last_line <= text.count("\n") + text.count("\r") + 1
    return explanation


def _raw_sizes(figures: Any) -> Iterator[str]:
    if isinstance(figures, dict):
        if "raw" in figures:
            yield str(figures["raw"])
        for value in figures.values():
            yield from _raw_sizes(value)
    elif isinstance(figures, (list, tuple)):
        for value in figures:
            yield from _raw_sizes(value)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--samples", type=Path, action="append", default=[], metavar="DIR")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    texts = samples([SAMPLES, *options.samples])
    rng = random.Random(options.seed)
    failures: list[dict[str, str]] = []
    known = 0
    slowest, slow_text = 0.0, ""
    for _ in range(options.count):
        text = mutated(rng, texts)
        start = time.process_time()  # of this process: a busy computer does not count
        try:
            known += check(text).known
        except Exception as error:  # a crash of any kind is what is looked for
            failures.append({"error": f"{type(error).__name__}: {error}", "text": text[:2000]})
        seconds = time.process_time() - start
        if seconds > slowest:
            slowest, slow_text = seconds, text
    result = {
        "inputs": options.count,
        "failures": len(failures),
        "recognised": known,
        "slowest_s": round(slowest, 3),
        "slowest_characters": len(slow_text),
        "first_failures": failures[:5],
    }
    if options.json:
        print(json.dumps(result, indent=2, ensure_ascii=False))
    else:
        print(", ".join(f"{name} {value}" for name, value in result.items() if name != "first_failures"))
        for failure in failures[:5]:
            print(failure["error"], repr(failure["text"][:400]))
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
