"""What does CUDA report, and is it the program, the installation or the card?

Kernels run on their own: an error is often reported by a later, innocent line. So the first remedy is the one
that finds the true place.
"""

import re

from course_lib.diagnose.faults.wording import Around, Told, evidence_of, fault, wording

_ASSERT = re.compile(r"Assertion\s+`(?P<condition>[^`\n]{1,200})`\s+failed")
LATE = (
    "CUDA reports errors late: the line in the traceback may be innocent. CUDA_LAUNCH_BLOCKING=1 shows the "
    "true one."
)
"""A sentence for all errors of kernels."""


def _assertion(around: Around) -> Told:
    text = around.paste.body
    match = _ASSERT.search(text)
    condition = match["condition"] if match else None
    figures = {"assertion": condition}
    squeezed = "".join((condition or "").split())
    words = f"{squeezed} {text if match is None else text[max(match.start() - 400, 0) : match.end()]}".lower()
    if "n_classes" in squeezed or "cur_target" in squeezed or "nll_loss" in words or "target_val" in squeezed:
        name, summary, why, first = (
            "cuda.label_out_of_range",
            "A label is not below the number of classes (or is negative)",
            "The loss looks up the class of each label on the card: labels that count from 1, an ignore "
            "label such as 255 or -1, or a head with too few outputs.",
            "Print labels.min() and labels.max() and compare with the number of outputs; let labels count "
            "from 0, set ignore_index, or widen the last layer.",
        )
    elif "srcindex" in squeezed.lower() or "embedding" in words or "indexselect" in words:
        name, summary, why, first = (
            "cuda.index_out_of_range_of_embedding",
            "An index is outside of an embedding or of an index_select",
            "A token number at or above the size of the vocabulary, a position beyond the longest one, or "
            "a negative number.",
            "Print ids.max() and embedding.num_embeddings; after adding tokens call "
            "model.resize_token_embeddings(len(tokenizer)); cut inputs to the longest position.",
        )
    elif ("zero" in squeezed and "one" in squeezed) or "input_val" in squeezed:
        name, summary, why, first = (
            "cuda.bce_input_outside_0_to_1",
            "BCELoss got a value outside of 0 to 1 (or nan)",
            "The sigmoid is missing, or the network's output is nan already.",
            "Use BCEWithLogitsLoss on the raw outputs; check the outputs and targets for nan first.",
        )
    elif "index" in squeezed.lower() or "out of bounds" in words or "outofbounds" in squeezed.lower():
        name, summary, why, first = (
            "cuda.index_out_of_range",
            "An index is out of the bounds of a tensor",
            "Indexing, gather or scatter on the card met a number that is too large or negative.",
            "Run the failing batch on the CPU: the error is raised at the line, with the numbers; then "
            "check the largest and smallest index.",
        )
    elif (
        "probability" in words
        or "multinomial" in words
        or "inf" in squeezed.lower()
        or "nan" in squeezed.lower()
    ):
        name, summary, why, first = (
            "cuda.nan_in_sampling",
            "Probabilities with nan, inf or negative numbers were drawn from",
            "The network's output is broken before: an overflow in half precision, or a model that has "
            "diverged.",
            "Check the logits for nan before sampling; load the model in bfloat16 or float32 in place of "
            "float16.",
        )
    else:
        name, summary, why, first = (
            "cuda.device_side_assert",
            "A check in a kernel failed: most often an index or a label out of range",
            "The lines that name the failed assertion are not in the text (they are printed before the "
            "traceback).",
            "Run once with CUDA_LAUNCH_BLOCKING=1, or the failing batch on the CPU: the error is then "
            "raised at the line, with the numbers; check labels (0 to classes - 1) and token numbers first.",
        )
    return Told(
        fault(
            name,
            summary,
            f"{why} {LATE}",
            (
                first,
                "Restart the process (the notebook's kernel): after such an error its CUDA context is lost.",
            ),
            ("GPU memory advice.", "A new driver, or reinstalling PyTorch.", "Going on in the same process."),
            certainty="likely" if name != "cuda.device_side_assert" else "possible",
            evidence=evidence_of({"exception": around.exception, **figures}),
        ),
        figures,
    )


_ILLEGAL = fault(
    "cuda.illegal_memory_access",
    "A kernel touched memory that is not its own",
    "Usual causes: an index out of range in a custom or fused kernel, tensors of different cards in one "
    "operation, an extension built for another torch or card, sizes beyond 2**31 elements; rarely the "
    f"card itself. {LATE}",
    (
        "Run once with CUDA_LAUNCH_BLOCKING=1 (or compute-sanitizer python train.py) to see which "
        "operation; leave out extensions and torch.compile in turn.",
        "If it moves from place to place on one card only, look at dmesg for Xid and at nvidia-smi -q -d "
        "ECC.",
    ),
    ("A smaller batch as the cure, though it may hide it.", "Going on in the same process."),
    certainty="possible",
)
_LAUNCH = fault(
    "cuda.launch_failed",
    "A kernel ended by a fault of its own (unspecified launch failure, misaligned address)",
    "Like an illegal access: a wrong index, an extension that does not match, sometimes an unstable card "
    f"(overclocking, heat). {LATE}",
    "Run once with CUDA_LAUNCH_BLOCKING=1 to see which operation; check dmesg for Xid, temperature and "
    "clocks.",
    "A smaller batch.",
    certainty="possible",
)
_NO_KERNEL = fault(
    "cuda.card_not_supported_by_build",
    "This build of PyTorch has no code for this card",
    "Each build holds kernels for some generations of cards. The card is newer (or much older) than the "
    "build.",
    "Compare torch.cuda.get_arch_list() with torch.cuda.get_device_capability(); install a build with a "
    "CUDA version that knows the card (pytorch.org, Get Started); rebuild extensions with "
    "TORCH_CUDA_ARCH_LIST.",
    ("A new driver alone.", "CUDA_LAUNCH_BLOCKING=1."),
)
_OLD_DRIVER = fault(
    "cuda.driver_too_old",
    "The driver is older than the CUDA version that this PyTorch was built with",
    "PyTorch brings its CUDA libraries; the driver must be at least as new as they ask.",
    "Update the NVIDIA driver, or install the torch build for an older CUDA version (pytorch.org, Previous "
    "versions).",
    "Installing the CUDA toolkit: PyTorch does not use it.",
)
_CPU_BUILD = fault(
    "cuda.cpu_build_of_torch",
    "This is the CPU build of PyTorch",
    "It has no CUDA code at all, whatever card and driver are there. pip on Windows and macOS installs it "
    "unless told otherwise.",
    "Install the CUDA build (the command stands on pytorch.org, Get Started), in this environment; or let "
    "the code use the CPU: "
    'device = "cuda" if torch.cuda.is_available() else "cpu".',
    ("Installing the CUDA toolkit.", "A new driver."),
)
_NO_CARD = fault(
    "cuda.no_card_visible",
    "PyTorch sees no card",
    "There is none, the driver is not loaded, the container was started without it, or "
    "CUDA_VISIBLE_DEVICES hides it.",
    "Look at nvidia-smi and echo $CUDA_VISIBLE_DEVICES; start a container with --gpus all; course doctor "
    "says what this computer has.",
    "Reinstalling PyTorch before nvidia-smi works.",
)
_BUSY = fault(
    "cuda.card_busy",
    "The card lets no further process in",
    "It is in exclusive mode (one process a card), or another process holds it in a state that does not end.",
    "nvidia-smi: see who is on the card and whether Compute M. reads E. Process; use another card, or ask "
    "for Default mode (nvidia-smi -c 0).",
    "A smaller batch.",
    certainty="likely",
)
_ECC = fault(
    "hardware.memory_errors",
    "The card's memory had an error that could not be corrected",
    "It is the hardware, not the program. The process is ended so that it does not compute with wrong "
    "numbers.",
    "Reset the card or reboot; look at nvidia-smi -q -d ECC,ROW_REMAPPER; have the card replaced if it "
    "returns.",
    ("Changing the training code.", "A smaller batch."),
)
_TIMED_OUT = fault(
    "cuda.launch_timed_out",
    "A kernel ran longer than the display's watchdog allows",
    "On a card that drives a screen the system ends kernels after some seconds (TDR on Windows).",
    "Use a card without a screen, smaller pieces of work for each kernel, or a longer TdrDelay (Windows "
    "registry).",
    "CUDA_LAUNCH_BLOCKING=1 as the cure.",
    certainty="likely",
)
_FABRIC = fault(
    "cuda.fabric_manager_not_running",
    "The card is not ready yet: on machines with NVSwitch the fabric manager does not run",
    "Cards in such servers can be used only once nvidia-fabricmanager, of the driver's very version, has "
    "set up NVSwitch.",
    "systemctl status nvidia-fabricmanager: start it, and install the version of the driver; then reboot.",
    "Reinstalling PyTorch.",
    certainty="likely",
)
_UNKNOWN = fault(
    "cuda.unknown_error",
    "CUDA could not be started, for a reason that it does not know",
    "Often after sleep or a driver update, with a module that is half loaded, or with CUDA_VISIBLE_DEVICES "
    "set after the program began.",
    "Look at nvidia-smi; reload the driver (sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm) or "
    "reboot; set CUDA_VISIBLE_DEVICES before Python starts.",
    "Reinstalling PyTorch.",
    certainty="possible",
)


_ARGUMENT = fault(
    "cuda.invalid_argument",
    "A CUDA call got an argument that it does not take",
    "Most often an extension (xformers, flash-attn, custom operations) that was built for another torch "
    f"or card, or sizes that its kernel does not know (head size, image size, an empty tensor). {LATE}",
    (
        "Run once with CUDA_LAUNCH_BLOCKING=1 to see the call; leave out the extension that the traceback "
        "names (torch's own scaled_dot_product_attention does the same), or install its build for this "
        "torch.",
        "Print the shapes at that line: look for an empty tensor and for sizes beyond the usual.",
    ),
    ("GPU memory advice.", "A new driver, before the call is known."),
    certainty="possible",
)


WORDINGS = (
    wording(
        (
            "device-side assert triggered",
            "Assertion `t >= 0",
            "Assertion `srcIndex",
            "Assertion `input_val",
            "Assertion `cur_target",
            "Assertion `index",
            "Assertion `-sizes[i] <= index",
        ),
        _assertion,
    ),
    wording("an illegal memory access was encountered", _ILLEGAL),
    wording(
        ("unspecified launch failure", "misaligned address", "an illegal instruction was encountered"),
        _LAUNCH,
    ),
    wording("CUDA error: invalid argument", _ARGUMENT),
    wording(
        (
            "no kernel image is available",
            "is not compatible with the current PyTorch installation",
            "CUDA error: invalid device function",
        ),
        _NO_KERNEL,
    ),
    wording(
        ("driver on your system is too old", "CUDA driver version is insufficient"),
        _OLD_DRIVER,
        r"found\s+version\s+(?P<driver_cuda>\d{3,6})",
    ),
    wording("Torch not compiled with CUDA enabled", _CPU_BUILD),
    wording(
        ("No CUDA GPUs are available", "Found no NVIDIA driver", "no CUDA-capable device is detected"),
        _NO_CARD,
    ),
    wording("CUDA-capable device(s) is/are busy or unavailable", _BUSY),
    wording("all CUDA-capable devices are busy", _BUSY),
    wording("uncorrectable ECC error encountered", _ECC),
    wording("the launch timed out and was terminated", _TIMED_OUT),
    wording(("system not yet initialized", "Error 802"), _FABRIC),
    wording("CUDA unknown error", _UNKNOWN),
)
