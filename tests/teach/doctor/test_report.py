"""Does the doctor tell the troubles of many computers apart, and name a cure that can be typed?"""

import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from course_lib.gpu_driver import NvidiaCard, NvidiaStatus
from course_lib.teach.doctor.check import Check, Status
from course_lib.teach.doctor.facts import (
    Facts,
    Kernel,
    Package,
    TorchFacts,
    course_packages,
    gather_facts,
    kernel_facts,
    torch_facts,
)
from course_lib.teach.doctor.report import Report, examine

GIB = 2**30
CUDA_BUILD = TorchFacts(version="2.9.0+cu130", cuda="13.0", cuda_available=True)
CPU_BUILD = TorchFacts(version="2.9.0+cpu")
ROCM_BUILD = TorchFacts(version="2.9.0+rocm6.4", rocm="6.4")
RTX_3090 = NvidiaStatus((NvidiaCard("NVIDIA GeForce RTX 3090", 24 * GIB),), "580.65.06")
UNSERVED = NvidiaStatus((NvidiaCard("NVIDIA card"),))

WORKSTATION = Facts(
    system="Linux",
    system_name="Linux 6.8.0 x86_64",
    place=None,
    python="3.12.3",
    bits=64,
    executable="/opt/course/.venv/bin/python",
    prefix="/opt/course/.venv",
    is_venv=True,
    uv="uv",
    packages=(Package("torch>=2.9", "2.9.0"), Package("ipywidgets>=8.1", "8.1.7")),
    versions={"torch": "2.9.0", "torchvision": "0.24.0", "ipywidgets": "8.1.7"},
    front_ends=(
        Package("jupyterlab_widgets~=3.0.15", "3.0.15"),
        Package("widgetsnbextension~=4.0.14", "4.0.14"),
    ),
    torch=CUDA_BUILD,
    vision_needs="==2.9.0",
    nvidia=RTX_3090,
    cores=16,
    usable_cores=16,
    memory_bytes=64 * GIB,
    usable_memory_bytes=64 * GIB,
    available_memory_bytes=50 * GIB,
    shared_memory_bytes=32 * GIB,
    free_disk_bytes=100 * GIB,
    kernel=Kernel(prefix="/opt/course/.venv"),
)
AUTO = (
    'uv pip install --python "/opt/course/.venv/bin/python" --torch-backend=auto '
    "--reinstall-package torch --reinstall-package torchvision torch torchvision"
)


def the(name: str, facts: Facts) -> Check:
    """The one check of that name on these facts, after seeing that no other check complains."""
    checks = {check.name: check for check in examine(facts).checks}
    others = [check for check in checks.values() if check.name != name and check.status is not Status.OK]
    assert others == []
    return checks[name]


def test_a_sound_workstation_is_ready() -> None:
    report = examine(WORKSTATION)
    assert report.is_ready
    assert report.answer == "This computer is ready for the course."
    assert {check.status for check in report.checks} == {Status.OK}
    assert the("device", WORKSTATION).found == "NVIDIA GeForce RTX 3090, driver 580.65.06"


def test_a_card_and_a_cpu_build() -> None:
    check = the("device", replace(WORKSTATION, torch=CPU_BUILD))
    assert check.status is Status.WARN
    assert check.found == "NVIDIA GeForce RTX 3090, but torch was built for the CPU only"
    assert check.cure == AUTO


def test_without_uv_the_cure_fetches_it_first() -> None:
    check = the("device", replace(WORKSTATION, torch=CPU_BUILD, uv=None))
    first, second = check.cure.splitlines()
    assert first == '"/opt/course/.venv/bin/python" -m pip install uv'
    assert second.startswith('"/opt/course/.venv/bin/python" -m uv pip install --python ')


@pytest.mark.parametrize(
    ("cuda", "driver", "least"),
    [("13.0", "550.54.14", "580"), ("12.8", "470.256.02", "525"), ("11.8", "440.33", "450")],
)
def test_a_driver_older_than_the_builds_cuda(cuda: str, driver: str, least: str) -> None:
    torch = TorchFacts(version="2.9.0", cuda=cuda)
    check = the("device", replace(WORKSTATION, torch=torch, nvidia=replace(RTX_3090, driver_version=driver)))
    assert check.status is Status.WARN
    assert f"driver {driver} is too old for CUDA {cuda}, which needs {least} or newer" in check.found
    assert check.cure.splitlines()[1] == AUTO


@pytest.mark.parametrize(
    ("cuda", "driver"), [("12.6", "525.60.13"), ("12.6", "580.65.06"), ("14.1", "580.65.06")]
)
def test_a_driver_that_is_new_enough_is_not_blamed(cuda: str, driver: str) -> None:
    torch = TorchFacts(version="2.9.0", cuda=cuda)
    check = the("device", replace(WORKSTATION, torch=torch, nvidia=replace(RTX_3090, driver_version=driver)))
    assert check.status is Status.WARN
    assert "torch does not reach it" in check.found
    assert "Restart" in check.cure


def test_under_wsl2_the_driver_belongs_into_windows() -> None:
    nvidia = replace(RTX_3090, driver_version="551.23")
    torch = TorchFacts(version="2.9.0", cuda="13.0")
    check = the("device", replace(WORKSTATION, place="WSL2", torch=torch, nvidia=nvidia))
    assert "in Windows, not inside WSL" in check.cure


def test_a_card_whose_driver_does_not_answer() -> None:
    nvidia = replace(UNSERVED, complaint="Failed to initialize NVML: Driver/library version mismatch")
    torch = TorchFacts(version="2.9.0", cuda="13.0")
    check = the("device", replace(WORKSTATION, torch=torch, nvidia=nvidia))
    assert check.status is Status.WARN
    assert "no driver answers (Failed to initialize NVML" in check.found
    assert "driver 580 or newer" in check.cure


def test_a_container_without_its_card() -> None:
    torch = TorchFacts(version="2.9.0", cuda="13.0")
    check = the("device", replace(WORKSTATION, place="a container", torch=torch, nvidia=UNSERVED))
    assert "docker run --gpus all" in check.cure


@pytest.mark.parametrize("value", ["", "-1", " "])
def test_cards_hidden_by_the_environment(value: str) -> None:
    torch = TorchFacts(version="2.9.0", cuda="13.0")
    check = the("device", replace(WORKSTATION, torch=torch, visible_devices=value))
    assert "hidden by CUDA_VISIBLE_DEVICES" in check.found


def test_a_card_too_old_for_the_build_fails() -> None:
    error = "AcceleratorError: CUDA error: no kernel image is available for execution on the device"
    check = the("device", replace(WORKSTATION, torch=replace(CUDA_BUILD, card_error=error)))
    assert check.status is Status.FAIL
    assert "--torch-backend=cu126" in check.cure


def test_a_card_that_is_full_fails() -> None:
    error = "OutOfMemoryError: CUDA out of memory."
    check = the("device", replace(WORKSTATION, torch=replace(CUDA_BUILD, card_error=error)))
    assert check.status is Status.FAIL
    assert "End the other programs" in check.cure


@pytest.mark.parametrize(
    ("place", "hint"), [(None, "the course needs none"), ("WSL2", "when Windows has its driver")]
)
def test_no_card_is_well(place: str | None, hint: str) -> None:
    check = the("device", replace(WORKSTATION, place=place, torch=CPU_BUILD, nvidia=NvidiaStatus()))
    assert check.status is Status.OK
    assert hint in check.found


def test_wsl1_reaches_no_card() -> None:
    check = the("device", replace(WORKSTATION, place="WSL1", torch=CPU_BUILD, nvidia=NvidiaStatus()))
    assert check.status is Status.WARN
    assert "--set-version" in check.cure


def test_amd_cards() -> None:
    none = NvidiaStatus()
    working = replace(WORKSTATION, torch=replace(ROCM_BUILD, cuda_available=True), nvidia=none, amd_cards=1)
    assert the("device", working).status is Status.OK
    blocked = the("device", replace(WORKSTATION, torch=ROCM_BUILD, nvidia=none, amd_cards=1))
    assert blocked.status is Status.WARN
    assert "usermod -aG render,video" in blocked.cure
    other_build = the("device", replace(WORKSTATION, torch=CPU_BUILD, nvidia=none, amd_cards=1))
    assert "need the ROCm build" in other_build.found


def test_apple_computers() -> None:
    built = TorchFacts(version="2.9.0", mps_built=True)
    mac = replace(WORKSTATION, system="Darwin", nvidia=NvidiaStatus(), shared_memory_bytes=None)
    assert the("device", replace(mac, torch=replace(built, mps_available=True))).found == "Apple GPU (MPS)"
    blocked = the("device", replace(mac, torch=built))
    assert blocked.status is Status.WARN
    assert "Update macOS" in blocked.cure
    assert the("torch", replace(mac, torch=replace(built, mps_available=True))).found.endswith("Apple MPS")
    assert "Darwin" in the("shared memory", replace(mac, torch=replace(built, mps_available=True))).found


def test_a_torch_that_cannot_be_imported_fails_and_is_blamed_alone() -> None:
    check = the("torch", replace(WORKSTATION, torch=TorchFacts(error="ImportError: libcudart.so.13")))
    assert check.status is Status.FAIL
    assert check.cure == AUTO


def test_on_windows_a_missing_dll_may_be_microsofts() -> None:
    error = "OSError: [WinError 126] The specified module could not be found."
    check = the("torch", replace(WORKSTATION, system="Windows", torch=TorchFacts(error=error)))
    assert "Visual C++" in check.cure


@pytest.mark.parametrize(
    ("needs", "error", "said"),
    [
        ("==2.8.0", "RuntimeError: operator torchvision::nms does not exist", "was built for torch==2.8.0"),
        ("==2.8.0", None, "was built for torch==2.8.0"),
        ("==2.9.0", "RuntimeError: operator torchvision::nms does not exist", "nms does not exist"),
        (None, "ModuleNotFoundError: No module named 'torchvision'", "No module named"),
    ],
)
def test_a_torchvision_that_does_not_fit(needs: str | None, error: str | None, said: str) -> None:
    torch = replace(CUDA_BUILD, vision_error=error)
    check = the("torchvision", replace(WORKSTATION, torch=torch, vision_needs=needs))
    assert check.status is Status.FAIL
    assert said in check.found
    assert check.cure == AUTO


@pytest.mark.parametrize("place", ["Google Colab", "Kaggle"])
def test_a_lent_place_needs_no_server_and_keeps_its_own_versions(place: str) -> None:
    lent = replace(WORKSTATION, place=place)
    server = (Package("jupyterlab>=4.2", None), Package("papermill>=2.6", None))
    assert (
        the("packages", replace(lent, packages=(*(WORKSTATION.packages or ()), *server))).status is Status.OK
    )
    older = (Package("torch>=2.9", "2.9.0"), Package("ipywidgets>=8.1", "7.7.1"), *server)
    check = the("packages", replace(lent, packages=older))
    assert (check.status, check.found) == (Status.WARN, "older than tested: ipywidgets 7.7.1")
    assert "pip" not in check.cure
    check = the("packages", replace(lent, packages=(*older, Package("jupytext>=1.16", None))))
    assert (check.status, check.found) == (Status.FAIL, "jupytext missing")
    assert the("packages", replace(WORKSTATION, packages=older)).status is Status.FAIL


def test_packages_missing_or_too_old() -> None:
    packages = (
        Package("torch>=2.9", "2.9.0+cu130"),
        Package("numpy>=1.26", "1.24.0"),
        Package("tqdm>=4.66", None),
    )
    check = the("packages", replace(WORKSTATION, packages=packages))
    assert check.status is Status.FAIL
    assert check.found == "numpy 1.24.0, tqdm missing"
    assert check.cure.endswith('--upgrade "numpy>=1.26" "tqdm>=4.66"')


def test_a_release_candidate_is_recent_enough() -> None:
    packages = (Package("torch>=2.9", "2.10.0rc1"),)
    assert the("packages", replace(WORKSTATION, packages=packages)).status is Status.OK


def test_a_nightly_build_fits_a_lower_bound() -> None:
    torch = replace(CUDA_BUILD, version="2.10.0.dev20251101+cu130")
    assert the("torchvision", replace(WORKSTATION, torch=torch, vision_needs=">=2.9.0")).status is Status.OK


def test_a_course_that_is_not_installed() -> None:
    check = the("packages", replace(WORKSTATION, packages=None, uv=None))
    assert check.status is Status.FAIL
    assert check.cure.endswith('"/opt/course/.venv/bin/python" -m pip install -e .')


@pytest.mark.parametrize(("python", "bits"), [("3.10.12", 64), ("3.12.3", 32)])
def test_a_python_that_cannot_run_the_course(python: str, bits: int) -> None:
    assert the("Python", replace(WORKSTATION, python=python, bits=bits)).status is Status.FAIL


def test_python_3_11_is_new_enough() -> None:
    assert the("Python", replace(WORKSTATION, python="3.11.0rc1")).status is Status.FAIL
    assert the("Python", replace(WORKSTATION, python="3.11.0")).status is Status.OK


def test_granted_cores() -> None:
    granted = the("cores", replace(WORKSTATION, usable_cores=2))
    assert granted.status is Status.OK
    assert granted.found.startswith("2 usable of 16 (")
    assert the("cores", replace(WORKSTATION, usable_cores=1)).status is Status.WARN


@pytest.mark.parametrize(
    ("place", "machine", "usable", "cure"),
    [
        ("a container", 64 * GIB, GIB, "docker run --memory"),
        ("WSL2", GIB, GIB, ".wslconfig"),
        (None, GIB, GIB, "larger computer"),
    ],
)
def test_too_little_memory(place: str | None, machine: int, usable: int, cure: str) -> None:
    facts = replace(WORKSTATION, place=place, memory_bytes=machine, usable_memory_bytes=usable)
    check = the("memory", replace(facts, available_memory_bytes=usable))
    assert check.status is Status.WARN
    assert cure in check.cure


def test_memory_that_others_use() -> None:
    check = the("memory", replace(WORKSTATION, available_memory_bytes=GIB))
    assert check.status is Status.WARN
    assert "Close other programs" in check.cure


def test_the_64_mib_of_docker() -> None:
    check = the("shared memory", replace(WORKSTATION, shared_memory_bytes=64 * 2**20))
    assert check.status is Status.WARN
    assert check.found == "64 MiB"
    assert "--shm-size" in check.cure


@pytest.mark.parametrize(("free", "status"), [(3 * GIB, "OK"), (GIB, "WARN"), (100 * 2**20, "FAIL")])
def test_disk(free: int, status: str) -> None:
    assert the("disk", replace(WORKSTATION, free_disk_bytes=free)).status == status


def test_a_kernel_of_another_environment() -> None:
    check = the("kernel", replace(WORKSTATION, kernel=Kernel(prefix="/usr")))
    assert check.status is Status.FAIL
    assert "another Python, in /usr" in check.found
    assert "ipykernel install --sys-prefix --name python3" in check.cure


def test_a_kernel_that_does_not_start() -> None:
    facts = replace(WORKSTATION, is_venv=False, kernel=Kernel(error="No module named ipykernel"))
    check = the("kernel", facts)
    assert check.status is Status.FAIL
    assert "--user" in check.cure


@pytest.mark.parametrize("installed", ["1.1.11", None])
def test_a_front_end_of_another_generation(installed: str | None) -> None:
    front_ends = (Package("jupyterlab_widgets~=3.0.15", installed), WORKSTATION.front_ends[1])
    check = the("widgets", replace(WORKSTATION, front_ends=front_ends))
    assert check.status is Status.FAIL
    assert "sliders will not show" in check.found
    assert '"jupyterlab_widgets~=3.0.15"' in check.cure
    assert "widgetsnbextension~" not in check.cure


def test_the_report_has_its_answer_on_top_and_cures_below_their_line() -> None:
    text = str(examine(replace(WORKSTATION, torch=CPU_BUILD, free_disk_bytes=0)))
    lines = text.splitlines()
    assert lines[0] == "This computer is not ready for the course: see disk."
    assert "Linux 6.8.0 x86_64, Python 3.12.3, torch 2.9.0" in lines[1]
    at = next(number for number, line in enumerate(lines) if line.startswith("[WARN] device:"))
    assert lines[at + 1].strip() == f"-> {AUTO}"
    assert sum(line.startswith("[FAIL]") for line in lines) == 1
    only_warned = examine(replace(WORKSTATION, torch=CPU_BUILD, usable_cores=1))
    assert only_warned.answer.endswith("with something to know about device, cores.")
    assert only_warned.is_ready


def test_the_report_as_json_holds_every_line() -> None:
    report = examine(replace(WORKSTATION, torch=CPU_BUILD))
    data = json.loads(json.dumps(report.to_json()))
    assert data["ready"] is True
    assert [check["name"] for check in data["checks"]] == [check.name for check in report.checks]
    assert all(check["cure"] for check in data["checks"] if check["status"] != "OK")


def test_the_home_folder_is_not_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    facts = replace(WORKSTATION, executable=str(tmp_path / "bin" / "python"))
    found = the("Python", facts).found
    assert str(tmp_path) not in found
    assert f"~{os.sep}bin" in found


def test_every_complaint_has_a_cure() -> None:
    facts = replace(
        WORKSTATION,
        python="3.9.1",
        packages=None,
        torch=replace(CPU_BUILD, vision_error="x"),
        usable_cores=1,
        usable_memory_bytes=1,
        shared_memory_bytes=1,
        free_disk_bytes=1,
        kernel=Kernel(error="x"),
        front_ends=(Package("jupyterlab_widgets~=3.0.15", None),),
    )
    report: Report = examine(facts)
    bad = [check for check in report.checks if check.status is not Status.OK]
    assert len(bad) == len(report.checks) - 1  # all but torch itself, which imports
    assert all(check.cure for check in bad)


def test_this_computer_for_real() -> None:
    facts = gather_facts()
    report = examine(facts)
    assert facts.torch.error is None
    assert facts.kernel.prefix is not None
    assert Path(facts.kernel.prefix).resolve() == Path(sys.prefix).resolve()
    assert facts.packages
    assert {"torch", "ipywidgets"} <= {package.requirement.split(">")[0] for package in facts.packages}
    json.dumps(asdict(facts), allow_nan=False)
    assert {check.name for check in report.checks} == {check.name for check in examine(WORKSTATION).checks}


def test_extras_are_no_requirements() -> None:
    packages = course_packages()
    assert packages
    assert not any(package.requirement.startswith(("pytest", "lightning")) for package in packages)
    assert course_packages("no-such-distribution-anywhere") is None


def broken_module(folder: Path, name: str, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a module in front of the real one, for child processes."""
    (folder / f"{name}.py").write_text(code, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(folder))


def test_a_library_that_is_missing_for_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken_module(tmp_path, "torch", "raise OSError('libcudart.so.13: cannot open\\nmore')", monkeypatch)
    assert torch_facts().error == "OSError: libcudart.so.13: cannot open"


def test_an_import_that_ends_the_process_for_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken_module(tmp_path, "torch", "import os; os.abort()", monkeypatch)
    error = torch_facts().error
    assert error is not None
    assert "ended the process with status" in error


def test_an_import_that_hangs_for_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken_module(tmp_path, "torch", "import time; time.sleep(60)", monkeypatch)
    monkeypatch.setattr("course_lib.teach.doctor.facts._CHILD_SECONDS", 1)
    error = torch_facts().error
    assert error is not None
    assert "did not end within 1 s" in error


def test_a_torchvision_that_breaks_for_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "raise RuntimeError('operator torchvision::nms does not exist')"
    broken_module(tmp_path, "torchvision", code, monkeypatch)
    facts = torch_facts()
    assert facts.error is None
    assert facts.vision_error == "RuntimeError: operator torchvision::nms does not exist"


def kernel_that_runs(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel "python3" in a folder that Jupyter looks into first."""
    spec = folder / "kernels" / "python3"
    spec.mkdir(parents=True)
    argv = [command, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    text = json.dumps({"argv": argv, "display_name": "Python 3", "language": "python"})
    (spec / "kernel.json").write_text(text, encoding="utf-8")
    monkeypatch.setenv("JUPYTER_PATH", str(folder))


@pytest.mark.parametrize("command", ["python", sys.executable])
def test_a_kernel_of_this_python(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel_that_runs(command, tmp_path, monkeypatch)
    assert kernel_facts() == Kernel(prefix=sys.prefix)


def test_a_kernel_whose_python_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel_that_runs(str(tmp_path / "gone" / "python"), tmp_path, monkeypatch)
    error = kernel_facts().error
    assert error is not None
    assert "cannot be started" in error


def test_a_kernel_without_ipykernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel_that_runs(sys.executable, tmp_path, monkeypatch)
    broken_module(tmp_path, "ipykernel", "raise ImportError('No module named ipykernel')", monkeypatch)
    error = kernel_facts().error
    assert error is not None
    assert "No module named ipykernel" in error


def test_an_environment_without_jupyter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jupyter_client.kernelspec", None)
    error = kernel_facts().error
    assert error is not None
    assert "jupyter_client" in error


def test_a_kernel_that_does_not_exist() -> None:
    assert kernel_facts("no-such-kernel") == Kernel(error="there is no kernel named no-such-kernel")
