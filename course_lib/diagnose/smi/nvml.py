"""What do the cards of this computer look like now, asked through NVML (nvidia-ml-py)?

Each figure is asked for by itself: a card that cannot tell one leaves None there and tells the others.
"""

from collections.abc import Callable
from typing import Any

from course_lib.diagnose.smi.fields import REASON_BITS
from course_lib.diagnose.smi.model import Gpu, GpuProcess, GpuStatus
from course_lib.errors import CourseError

_MIB = 2.0**20


def live_status() -> GpuStatus:
    """The state of all NVIDIA cards of this computer at this moment.

    Raises CourseError where there is no NVIDIA driver, no card, or no nvidia-ml-py.
    """
    try:
        import pynvml
    except ImportError:
        raise CourseError(
            "Live figures of NVIDIA cards need the package nvidia-ml-py: install it with "
            "pip install nvidia-ml-py, or paste the output of nvidia-smi into course explain."
        ) from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise CourseError(
            f"The NVIDIA driver does not answer ({error}): on a computer without an NVIDIA card there is "
            "nothing to read; paste another machine's nvidia-smi into course explain."
        ) from None
    try:
        return _status(pynvml)
    finally:
        pynvml.nvmlShutdown()


def _status(nvml: Any) -> GpuStatus:
    ask = _asker(nvml)
    gpus, processes = [], []
    for index in range(ask(nvml.nvmlDeviceGetCount) or 0):
        handle = ask(nvml.nvmlDeviceGetHandleByIndex, index)
        if handle is None:
            gpus.append(Gpu(index=index, unreadable=("card",)))
            continue
        gpus.append(_gpu(nvml, ask, handle, index))
        for kind, function in (
            ("C", nvml.nvmlDeviceGetComputeRunningProcesses),
            ("G", nvml.nvmlDeviceGetGraphicsRunningProcesses),
        ):
            for process in ask(function, handle) or ():
                used = process.usedGpuMemory
                processes.append(
                    GpuProcess(
                        gpu=index,
                        pid=process.pid,
                        kind=kind,
                        name=_text(ask(nvml.nvmlSystemGetProcessName, process.pid)),
                        mib=None if used is None or used >= 2**63 else used / _MIB,
                    )
                )
    cuda = ask(nvml.nvmlSystemGetCudaDriverVersion)
    return GpuStatus(
        source="live",
        driver_version=_text(ask(nvml.nvmlSystemGetDriverVersion)),
        cuda_version=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        gpus=tuple(gpus),
        samples=tuple(gpus),
        processes=tuple(processes),
    )


def _asker(nvml: Any) -> Callable[..., Any]:
    def ask(function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except (nvml.NVMLError, UnicodeDecodeError):
            return None

    return ask


def _gpu(nvml: Any, ask: Callable[..., Any], handle: Any, index: int) -> Gpu:
    memory = ask(nvml.nvmlDeviceGetMemoryInfo, handle)
    rates = ask(nvml.nvmlDeviceGetUtilizationRates, handle)
    draw, cap = ask(nvml.nvmlDeviceGetPowerUsage, handle), ask(nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    default_cap = ask(nvml.nvmlDeviceGetPowerManagementDefaultLimit, handle)
    bits = ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    mig = ask(nvml.nvmlDeviceGetMigMode, handle)
    state = ask(nvml.nvmlDeviceGetPerformanceState, handle)
    pci = ask(nvml.nvmlDeviceGetPciInfo, handle)
    return Gpu(
        index=index,
        name=_text(ask(nvml.nvmlDeviceGetName, handle)),
        uuid=_text(ask(nvml.nvmlDeviceGetUUID, handle)),
        bus_id=None if pci is None else _text(pci.busId),
        used_mib=None if memory is None else memory.used / _MIB,
        total_mib=None if memory is None else memory.total / _MIB,
        free_mib=None if memory is None else memory.free / _MIB,
        util_percent=None if rates is None else float(rates.gpu),
        memory_activity_percent=None if rates is None else float(rates.memory),
        temp_c=_float(ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)),
        slowdown_temp_c=_float(
            ask(nvml.nvmlDeviceGetTemperatureThreshold, handle, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
        ),
        fan_percent=_float(ask(nvml.nvmlDeviceGetFanSpeed, handle)),
        power_w=None if draw is None else draw / 1000,
        power_cap_w=None if cap is None else cap / 1000,
        default_power_cap_w=None if default_cap is None else default_cap / 1000,
        pstate=None if state is None or state >= 32 else f"P{state}",
        sm_clock_mhz=_float(ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM)),
        max_sm_clock_mhz=_float(ask(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM)),
        memory_clock_mhz=_float(ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM)),
        throttle_reasons=None
        if bits is None
        else tuple(name for bit, name in REASON_BITS.items() if bits & bit),
        pcie_generation=ask(nvml.nvmlDeviceGetCurrPcieLinkGeneration, handle),
        pcie_generation_max=ask(nvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
        pcie_width=ask(nvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
        pcie_width_max=ask(nvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
        mig_enabled=None if mig is None else bool(mig[0]),
    )


def _float(value: Any) -> float | None:
    return None if value is None else float(value)


def _text(value: Any) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
