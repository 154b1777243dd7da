"""Why can a checkpoint file not be read or written: damaged, refused, a full disk, a missing card?"""

import re

from course_lib.diagnose.faults.dataloader import IN_SHARED_MEMORY
from course_lib.diagnose.faults.wording import Around, Told, evidence_of, fault, wording
from course_lib.diagnose.finding import Finding

_DAMAGED = fault(
    "checkpoint.file_damaged",
    "The file is not a whole checkpoint",
    "It is cut off or empty: a save that was interrupted, a full disk, a download or copy that broke off, "
    "two ranks that wrote one file, or a text in its place (a page of the web, a pointer of Git LFS).",
    (
        "Look at it: ls -l, and head -c 200. Download it again (git lfs pull for a pointer) and compare "
        "size or checksum; of your own runs take the checkpoint before.",
        "Save to a temporary name and rename, on rank 0 alone: then a file is whole or not there.",
    ),
    (
        "weights_only=False: a damaged file stays damaged.",
        "Another version of torch, before the size was compared.",
    ),
    certainty="likely",
)
_POINTER = fault(
    "checkpoint.not_a_checkpoint",
    "The file is a text, not a checkpoint",
    "Its first letter says so: 'v' is how a pointer of Git LFS begins (version https://...), '<' a page of "
    "the web, '{' a JSON file.",
    "Look at it with head -c 200; for a pointer run git lfs pull, for a page download the file again from "
    "the right address; .safetensors files are loaded by safetensors.torch.load_file.",
    ("weights_only=False, pickle_module or encoding='latin1'.", "Another version of torch."),
    certainty="likely",
)
_DISK_FULL = fault(
    "checkpoint.disk_full",
    "The disk (or your quota) is full: the checkpoint was not written whole",
    "Writing stopped for lack of room. An optimizer like Adam makes a checkpoint three times as large as "
    "the weights.",
    (
        "df -h and, on shared systems, the quota (quota -s); delete old checkpoints and keep the last few; "
        "then delete the half-written file.",
        "Save to a temporary name and rename, so that the last good one survives.",
    ),
    ("Loading the half-written file.", "GPU memory advice."),
    certainty="likely",
)


def _refused(around: Around) -> Told | None:
    text = around.paste.body
    if re.search(r"WeightsUnpickler\s+error:\s*CUDA\s+error", text):
        return None  # the card failed while the file was read: another wording tells it
    operand = re.search(r"Unsupported\s+operand\s+(\d{1,3})\b", text)
    if operand:  # the number of a byte: the file is no pickle at all
        return _by_first_byte(chr(int(operand[1])))
    name = re.search(
        r"Unsupported\s+(?:global:\s*)?(?:GLOBAL|class)?\s*`?([\w.]{3,120})`?\s+was\s+not\s+an"
        r"\s+allowed|Unsupported\s+(?:class|global)\s*:?\s*`?([\w.]{3,120})",
        text,
    )
    figures = {"refused": (name[1] or name[2]) if name else None}
    what = figures["refused"] or "an object"
    numpy = "numpy" in what
    return Told(
        fault(
            "checkpoint.weights_only_refused",
            f"torch.load refused to unpickle {what}",
            "Since torch 2.6 only tensors and plain data are loaded by default (weights_only=True), "
            "because unpickling other objects can run any program that the file's author put there. This "
            "file holds more than weights.",
            (
                "If it is your own file: with torch.serialization.safe_globals([...the class named...]): "
                "torch.load(path), once, and save it again as a plain state_dict."
                + (" For NumPy numbers, save float(x) in place of x." if numpy else ""),
                "If it is from others: ask for safetensors or a state_dict. weights_only=False only for a "
                "file whose author you trust.",
            ),
            (
                "weights_only=False for a file from the internet: it may run anything.",
                "Going back to an older torch.",
            ),
            evidence=evidence_of(figures),
        ),
        figures,
    )


_NO_CUDA = fault(
    "checkpoint.saved_on_a_card",
    "The checkpoint was saved on a card that this machine, or this process, does not have",
    "Tensors remember their device. Without map_location they go back to it.",
    'torch.load(path, map_location="cpu") (or this rank\'s own card), then load_state_dict.',
    ("Installing CUDA only to load it.", "A newer driver."),
)
_WHOLE_MODEL = fault(
    "checkpoint.whole_model_pickled",
    "The file holds a whole model object, and its class is not found",
    "torch.save(model) keeps the address of the class, not its code. Moved, renamed, or defined in a "
    "notebook, it cannot be found.",
    "Load it once where the class is importable under the same name, and save model.state_dict() instead.",
    (
        "Copying the error's module name into an empty file.",
        "weights_only=False, for a class that is not there.",
    ),
    certainty="likely",
)
_SAFETENSORS = fault(
    "checkpoint.file_damaged",
    "The safetensors file is not whole, or not one",
    "Its header does not agree with its length: a download that broke off, a pointer of Git LFS, or "
    "another kind of file.",
    "ls -l and head -c 200: download it again (git lfs pull for a pointer) and compare the size.",
    "torch.load on it.",
    certainty="likely",
)
_NO_FOLDER = fault(
    "checkpoint.folder_missing",
    "The folder for the checkpoint does not exist",
    "torch.save makes the file, not its folder.",
    "Path(path).parent.mkdir(parents=True, exist_ok=True) before saving, on rank 0; check the path.",
    "Saving from every rank.",
)


_OTHER_FORMAT = fault(
    "checkpoint.not_a_checkpoint",
    "torch.load was given a .safetensors file",
    "Its first bytes are a length, not a pickle: the file may be whole, it is read by another function.",
    "Load it by safetensors.torch.load_file(path), or let the library do it (use_safetensors=True); look "
    "whether the name in the config has the right ending.",
    ("Downloading it again, before its ending was looked at.", "weights_only=False, or encoding='latin1'."),
    certainty="likely",
)


def _pickle_key(around: Around) -> Told:
    key = re.search(r"invalid\s+load\s+key,\s*'(?P<key>[^'\n]{1,6})'", around.following)
    if key and key["key"].startswith("\\x") and around.says(".safetensors"):
        return Told(_OTHER_FORMAT, {"first_byte": key["key"]})
    return _by_first_byte(key["key"] if key else None)


def _by_first_byte(byte: str | None) -> Told:
    return Told(_POINTER if byte in ("v", "<", "{", "#") else _DAMAGED, {"first_byte": byte})


def _from_file(around: Around) -> Told | None:
    """'Ran out of input' where a file was loaded, not in a child process."""
    if around.says("spawn_main", "multiprocessing", "from_parent"):
        return None
    return Told(_DAMAGED) if around.says("torch.load", "serialization", "pickle.load", "load(") else None


def _class_missing(around: Around) -> Told | None:
    return (
        Told(_WHOLE_MODEL)
        if around.says("torch.load", "torch/serialization", "torch\\serialization", "Unpickler")
        else None
    )


_NO_ROOM_FOR = re.compile(r"No\s+space\s+left\s+on\s+device:?\s*['\"](?P<path>[^'\"\n]{1,300})['\"]")
_CHECKPOINT = re.compile(
    r"checkpoint|ckpt|torch\.save|serialization|\.(?:pt|pth|bin|safetensors)\b", re.IGNORECASE
)


def _no_space(around: Around) -> Told | None:
    if around.says(*IN_SHARED_MEMORY, "nccl"):
        return None  # shared memory: read elsewhere
    match = _NO_ROOM_FOR.search(around.paste.body)
    if match is None:
        return Told(_DISK_FULL)
    path = match["path"]
    if "pymp-" in path or "torch-shm" in path:
        return Told(_TEMPORARY_FULL, {"path": path})
    return Told(_DISK_FULL if _CHECKPOINT.search(around.paste.body) else _other_disk(path), {"path": path})


_TEMPORARY_FULL = fault(
    "host.temporary_folder_full",
    "The folder for temporary files is full: processes cannot make their sockets there",
    "multiprocessing (DataLoader workers, too) keeps small files in the temporary folder, most often /tmp. "
    "Its disk has no room, or no inodes, left.",
    (
        "df -h /tmp and df -i /tmp; delete old files of yours there, or set TMPDIR to a folder with room "
        "before the start.",
    ),
    ("--shm-size: it is the disk, not shared memory.", "Fewer checkpoints, if they lie on another disk."),
    certainty="likely",
)


def _other_disk(path: str) -> Finding:
    return fault(
        "host.disk_full",
        f"The disk (or your quota) is full: {path} could not be written",
        "The system had no room left for that file. Logs, caches and data sets fill disks as checkpoints do.",
        "df -h and df -i for that path, on shared systems the quota (quota -s); delete what is not needed, "
        "or write to another disk.",
        ("--shm-size.", "GPU memory advice."),
        evidence=evidence_of({"path": path}),
    )


_NOT_A_DICT = fault(
    "checkpoint.not_a_state_dict",
    "load_state_dict was given something else than a state_dict",
    "The file holds a whole model, or a dict around the weights; or the path was given, not what "
    "torch.load made of it.",
    "Look at type(checkpoint), and at its keys: load_state_dict(checkpoint.state_dict()) for a whole model, "
    "checkpoint['model'] or ['state_dict'] for a dict around it.",
    ("strict=False.",),
)


def _no_folder(around: Around) -> Told | None:
    return None if around.figures["folder"] is None else Told(_NO_FOLDER)


WORDINGS = (
    wording("Expected state_dict to be dict-like", _NOT_A_DICT, r"got\s+<class\s+'(?P<found>[\w.]{1,120})'"),
    wording(("Weights only load failed", "WeightsUnpickler error"), _refused),
    wording(("invalid load key",), _pickle_key),
    wording(
        (
            "PytorchStreamReader failed",
            "failed finding central directory",
            "unexpected EOF, expected",
            "file in archive is not in a subdirectory",
            "file not found: archive/",
            "Invalid magic number; corrupt file",
            "storage has wrong byte size",
            "Unable to load weights from pytorch checkpoint file",
        ),
        _DAMAGED,
    ),
    wording("cloned a repository without having git-lfs installed", _POINTER),
    wording("Ran out of input", _from_file),
    wording(
        (
            "PytorchStreamWriter failed writing",
            "unexpected pos ",
            "basic_ios::clear: iostream error",
            "Disk quota exceeded",
        ),
        _no_space,
    ),
    wording("No space left on device", _no_space),
    wording("could not generate a random directory for manager socket", _TEMPORARY_FULL),
    wording(
        ("deserialize object on a CUDA device but", "deserialize object on CUDA device"),
        _NO_CUDA,
        r"on\s+CUDA\s+device\s+(?P<device>\d{1,3})\s+but\s+torch\.cuda\.device_count\(\)\s+is\s+"
        r"(?P<device_count>\d{1,3})",
    ),
    wording(("on <module '__main__'", "ModuleNotFoundError: No module named"), _class_missing),
    wording(("Error while deserializing header", "SafetensorError"), _SAFETENSORS),
    wording(
        "Parent directory",
        _no_folder,
        r"Parent\s+directory\s+(?P<folder>\S{1,200})\s+does\s+not"
        r"\s+exist",
    ),
)
