"""What else stands in the paste and bears on an error: settings, limits, versions, how far the run had come?

Each function answers from the text alone; None, or an empty mapping, means that it does not say.
"""

import re

from course_lib.diagnose.paste import Paste

_SETTING = re.compile(
    r"\b(?P<name>(?:TORCH_)?NCCL_\w{1,60}|CUDA_LAUNCH_BLOCKING|MASTER_ADDR|MASTER_PORT|GLOO_\w{1,60})["
    r"\"']?\]?"
    r"\s*(?:=\s*|set\s+by\s+environment\s+to\s+)[\"']?(?P<value>[^\s\"';&,]{1,80})"
)
_VISIBLE = re.compile(r"\bCUDA_VISIBLE_DEVICES[\"']?\]?\s*=\s*[\"']?(?P<list>\d{1,3}(?:\s?,\s?\d{1,3})*)")
_PROCESSES = re.compile(
    r"(?:--?(?:nproc[_-]per[_-]node|num_processes|ngpus?)(?:\s+|\s*=\s*)|\bnprocs\s*=\s*)(?P<count>\d{1,4})\b"
)
_VERSION = re.compile(
    r"[`'\"]?\b(?P<name>pytorch|torch|transformers|accelerate|lightning|pytorch[-_]lightning|deepspeed)"
    r"\b[`'\"]?"
    r"(?:\s+version)?(?:\s*\([^)\n]{0,20}\))?\s*(?:==|[:=]|\sv?(?=\d))\s*v?(?P<version>\d{1,2}\.\d{1,3}["
    r"\w.+]{0,20})",
    re.IGNORECASE,
)
_EPOCH = re.compile(
    # "epochs" and "--epoch" say how many there are to be
    r"(?<![\w-])epoch\s{0,4}[:=#\[(]{0,3}\s{0,4}[\[(]?\s{0,4}(?P<number>\d{1,6})|\b(?P<nth>\d{1,3})(?:st|nd|rd|th)\s+epoch\b"
    r"|\b(?P<ordinal>[a-z]{3,12})\s+epoch\b",
    re.IGNORECASE,
)
_ORDINALS = [
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "twelfth",
    "thirteenth",
    "fourteenth",
    "fifteenth",
    "sixteenth",
    "seventeenth",
    "eighteenth",
    "nineteenth",
    "twentieth",
]
_STEP = re.compile(
    r"\b(?:step|iter(?:ation)?|it)\s*[:=#\[(]*\s*(?P<named>\d{1,9})\b|\[\s*(?P<of>\d{1,9})\s*/\s*\d{1,9}"
    r"\s*\]",
    re.IGNORECASE,
)
_BATCH = re.compile(
    r"\bbatch(?:es)?\s*[:=#\[(]*\s*(?P<number>\d{1,9})\b|\|\s*(?P<bar>\d{1,9})/\d{1,9}\s*\[", re.IGNORECASE
)
_EXCEPTION = re.compile(r"^[ \t|>]*(?:\S{1,40}:\s)?(?P<name>[A-Z]\w*(?:Error|Exception))\s*:", re.MULTILINE)
_WINDOWS = re.compile(r"(?<![A-Za-z])[A-Z]:\\|\bWinError\b|\bAppData\b|\bWindows\b")
_MACOS = re.compile(r"/Users/|\bmacOS\b|\bdarwin\b|\bMac\b", re.IGNORECASE)


def settings(paste: Paste) -> dict[str, str]:
    """Environment variables of NCCL, gloo and the rendezvous that the text sets, by name."""
    return {match["name"]: match["value"] for match in _SETTING.finditer(paste.text)}


def visible_devices(paste: Paste) -> list[int] | None:
    """The numbers that CUDA_VISIBLE_DEVICES is set to."""
    match = _VISIBLE.search(paste.text)
    return [int(number) for number in match["list"].split(",")] if match else None


def processes_per_node(paste: Paste) -> int | None:
    """How many processes a machine the launcher was told to start."""
    match = _PROCESSES.search(paste.text)
    return int(match["count"]) if match else None


def versions(paste: Paste) -> dict[str, str]:
    """The versions of torch, transformers, accelerate and Lightning that the text names."""
    found: dict[str, str] = {}
    for match in _VERSION.finditer(paste.text):
        name = match["name"].lower().replace("-", "_")
        name = {"pytorch": "torch", "pytorch_lightning": "lightning"}.get(name, name)
        found.setdefault(name, match["version"].rstrip("."))
    return found


def slurm_memory_gib(paste: Paste) -> float | None:
    """The memory that a SLURM script asks for, in GiB: ``--mem``, or ``--mem-per-cpu`` times the CPUs."""
    whole = re.search(r"--mem[=\s]\s?(\d{1,6})([KMGT]?)", paste.text, re.IGNORECASE)
    if whole:
        return _gib(whole[1], whole[2])
    each = re.search(r"--mem-per-cpu[=\s]\s?(\d{1,6})([KMGT]?)", paste.text, re.IGNORECASE)
    cpus = re.search(r"(?:--cpus-per-task|\s-c)[=\s]\s?(\d{1,4})\b", paste.text)
    return _gib(each[1], each[2]) * int(cpus[1]) if each and cpus else None


def _gib(number: str, unit: str) -> float:
    # SLURM counts in MiB where no unit is given.
    return int(number) * {"K": 2.0**-20, "M": 2.0**-10, "": 2.0**-10, "G": 1.0, "T": 2.0**10}[unit.upper()]


def last_epoch(paste: Paste) -> int | None:
    """The last epoch that the text names, as a number, or as an ordinal up to the twentieth in words."""
    epoch = None
    for match in _EPOCH.finditer(paste.text):
        if match["number"] or match["nth"]:
            epoch = int(match["number"] or match["nth"])
        elif match["ordinal"].lower() in _ORDINALS:
            epoch = _ORDINALS.index(match["ordinal"].lower()) + 1
    return epoch


def last_step(paste: Paste, before: int) -> int | None:
    """The last step that is named before that place of the text."""
    step = None
    for match in _STEP.finditer(paste.text, max(before - 20_000, 0), before):
        step = int(match["named"] or match["of"])
    return step


def last_batch(paste: Paste, before: int) -> int | None:
    """The last batch that is named, or counted by a progress bar, before that place of the text."""
    batch = None
    for match in _BATCH.finditer(paste.text, max(before - 20_000, 0), before):
        batch = int(match["number"] or match["bar"])
    return batch


def exceptions(paste: Paste) -> list[str]:
    """The classes of the exceptions that stand at the beginning of lines, in order, each once."""
    return list(dict.fromkeys(match["name"] for match in _EXCEPTION.finditer(paste.text)))


def operating_system(paste: Paste) -> str | None:
    """ "windows" or "macos", where paths or words of it stand in the text."""
    if _WINDOWS.search(paste.text):
        return "windows"
    return "macos" if _MACOS.search(paste.text) else None
