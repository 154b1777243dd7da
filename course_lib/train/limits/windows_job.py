"""How is a process limited in memory on Windows? By a job object that holds it.

Structures and constants: Microsoft's documentation of JOBOBJECT_EXTENDED_LIMIT_INFORMATION.
"""

import sys


def limit_own_memory(budget: int) -> bool:
    """Let this process commit `budget` bytes more than it has now, for good.

    False where the system refuses, or is not Windows.
    """
    if sys.platform == "win32":
        import ctypes
        from ctypes import wintypes

        import psutil

        class BasicLimits(ctypes.Structure):
            _fields_ = [
                ("PerProcessUserTimeLimit", ctypes.c_int64),
                ("PerJobUserTimeLimit", ctypes.c_int64),
                ("LimitFlags", wintypes.DWORD),
                ("MinimumWorkingSetSize", ctypes.c_size_t),
                ("MaximumWorkingSetSize", ctypes.c_size_t),
                ("ActiveProcessLimit", wintypes.DWORD),
                ("Affinity", ctypes.c_size_t),
                ("PriorityClass", wintypes.DWORD),
                ("SchedulingClass", wintypes.DWORD),
            ]

        class ExtendedLimits(ctypes.Structure):
            _fields_ = [
                ("BasicLimitInformation", BasicLimits),
                ("IoInfo", ctypes.c_uint64 * 6),
                ("ProcessMemoryLimit", ctypes.c_size_t),
                ("JobMemoryLimit", ctypes.c_size_t),
                ("PeakProcessMemoryUsed", ctypes.c_size_t),
                ("PeakJobMemoryUsed", ctypes.c_size_t),
            ]

        process_memory, extended_limit_information = 0x100, 9
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.CreateJobObjectW.restype = kernel.GetCurrentProcess.restype = wintypes.HANDLE
        kernel.SetInformationJobObject.argtypes = [
            wintypes.HANDLE,
            ctypes.c_int,
            ctypes.c_void_p,
            wintypes.DWORD,
        ]
        kernel.AssignProcessToJobObject.argtypes = [wintypes.HANDLE, wintypes.HANDLE]
        limits = ExtendedLimits()
        limits.BasicLimitInformation.LimitFlags = process_memory
        limits.ProcessMemoryLimit = psutil.Process().memory_info().private + budget
        job = kernel.CreateJobObjectW(None, None)
        return bool(
            job
            and kernel.SetInformationJobObject(
                job, extended_limit_information, ctypes.byref(limits), ctypes.sizeof(limits)
            )
            and kernel.AssignProcessToJobObject(job, kernel.GetCurrentProcess())
        )
    return False
