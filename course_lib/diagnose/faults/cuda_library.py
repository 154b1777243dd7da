"""A call of cuBLAS, cuDNN or cuFFT failed: is it this call, or an earlier kernel?

Where memory is the usual cause (ALLOC_FAILED, NOT_INITIALIZED), oom/bare.py reads it.
"""

import re

from course_lib.diagnose.faults.cuda import LATE
from course_lib.diagnose.faults.wording import Around, Told, evidence_of, fault, wording


def _library(around: Around) -> Told | None:
    if around.says("device-side assert", "illegal memory access"):
        return None  # that is the cause
    status = re.search(
        r"\b(CU(?:BLAS|DNN|FFT|SPARSE|SOLVER)_(?:STATUS_)?\w{3,40})",
        around.paste.body[around.offset : around.offset + 200],
    )
    call = re.search(r"when\s+calling\s+`(\w{3,60})", around.following)
    figures = {"status": status[1] if status else None, "call": call[1] if call else None}
    version = bool(around.says("VERSION_MISMATCH", "version incompatibility"))
    if version:
        return Told(
            fault(
                "cuda.library_versions_differ",
                "cuDNN of another version was loaded than PyTorch was built with",
                "A system-wide cuDNN or an LD_LIBRARY_PATH comes before the one that PyTorch brings.",
                "Unset LD_LIBRARY_PATH (or take the system's CUDA out of it), and use a clean environment.",
                "Installing one more cuDNN.",
                certainty="likely",
                evidence=evidence_of(figures),
            ),
            figures,
        )
    return Told(
        fault(
            "cuda.library_call_failed",
            f"A call of {_name(around)} failed; the text does not say why",
            "Often an earlier kernel failed (an index or label out of range) and is reported here; else "
            "shapes or types that do not go together, a card that this library version does not know, or "
            f"memory that is full. {LATE}",
            (
                "Run once with CUDA_LAUNCH_BLOCKING=1, or the same batch on the CPU, to see the real "
                "error; check the input's shapes and the labels.",
                "If the CPU runs it well: watch nvidia-smi for full memory, and compare the torch build "
                "with the card.",
            ),
            ("Reinstalling CUDA before the failing line is known.",),
            certainty="possible",
            evidence=evidence_of({"exception": around.exception, **figures}),
        ),
        figures,
    )


def _name(around: Around) -> str:
    """The library as its makers write it."""
    words = around.paste.lowered[around.start : around.start + 40]
    names = (("cudnn", "cuDNN"), ("cufft", "cuFFT"), ("cusolver", "cuSOLVER"))
    return next((name for mark, name in names if mark in words), "cuBLAS")


WORDINGS = (
    wording(
        (
            "CUBLAS_STATUS_EXECUTION_FAILED",
            "CUBLAS_STATUS_INTERNAL_ERROR",
            "CUBLAS_STATUS_INVALID_VALUE",
            "CUBLAS_STATUS_NOT_SUPPORTED",
            "CUBLAS_STATUS_ARCH_MISMATCH",
            "CUFFT_INTERNAL_ERROR",
            "CUFFT_EXEC_FAILED",
            "CUSOLVER_STATUS_EXECUTION_FAILED",
            "CUSOLVER_STATUS_INTERNAL_ERROR",
            "CUDNN_STATUS_EXECUTION_FAILED",
            "CUDNN_STATUS_INTERNAL_ERROR",
            "CUDNN_STATUS_MAPPING_ERROR",
            "CUDNN_STATUS_BAD_PARAM",
            "CUDNN_STATUS_NOT_SUPPORTED",
            "VERSION_MISMATCH",
            "cuDNN version incompatibility",
        ),
        _library,
    ),
)
