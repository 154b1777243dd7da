"""Does torch work here, and does its build suit the card that is there?

The checks of ``course doctor`` that need to know about builds, drivers and CUDA. A card that torch does not
reach is a warning, since every lesson runs on the CPU; a card that torch reaches and fails on is a failure.
"""

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from course_lib.teach.doctor.check import Check, Status, reinstall_torch
from course_lib.teach.doctor.facts import Facts

# The oldest driver for each major version of CUDA: "Minor Version Compatibility", NVIDIA, CUDA Compatibility
_LEAST_DRIVER = {11: Version("450"), 12: Version("525"), 13: Version("580")}


def check_torch(facts: Facts) -> Check:
    """Torch can be imported."""
    torch = facts.torch
    if torch.error is None:
        return Check("torch", Status.OK, f"{torch.version}, built for {_build(facts)}")
    cure = reinstall_torch(facts)
    if facts.system == "Windows" and "WinError" in torch.error:
        cure += "\nIf that does not help, install the Microsoft Visual C++ Redistributable for x64."
    return Check("torch", Status.FAIL, f"cannot be imported: {torch.error}", cure)


def check_torchvision(facts: Facts) -> Check | None:
    """Torchvision can be imported, and was built for this torch; None where torch itself fails."""
    torch = facts.torch
    if torch.error is not None:
        return None
    version = facts.versions.get("torchvision")
    needs = facts.vision_needs
    fits = not needs or not torch.version or SpecifierSet(needs).contains(torch.version, prereleases=True)
    if torch.vision_error is None and fits:
        return Check("torchvision", Status.OK, f"{version}, matches torch")
    # A torchvision for another torch fails with "operator torchvision::nms does not exist": say why.
    reason = f"{version} was built for torch{needs}" if not fits else f"fails: {torch.vision_error}"
    return Check("torchvision", Status.FAIL, reason, reinstall_torch(facts))


def check_device(facts: Facts) -> Check | None:
    """The build of torch suits the card that is there; None where torch itself fails."""
    if facts.torch.error is not None:
        return None
    if facts.torch.cuda_available:
        return _check_reachable_card(facts)
    if facts.nvidia.cards:
        return _check_unreachable_nvidia(facts)
    if facts.torch.rocm:
        cure = "Join the groups render and video (sudo usermod -aG render,video $USER), and log in again."
        return Check("device", Status.WARN, "CPU: the ROCm build of torch finds no card it can use", cure)
    if facts.torch.mps_available:
        return Check("device", Status.OK, "Apple GPU (MPS)")
    if facts.torch.mps_built:
        cure = "Update macOS, and run it on the computer itself: a virtual machine has no Metal device."
        return Check("device", Status.WARN, "CPU: MPS is built in, but macOS offers no device", cure)
    if facts.amd_cards:
        return Check("device", Status.OK, "CPU: the AMD graphics here need the ROCm build of torch, on Linux")
    if facts.nvidia.complaint:
        return Check("device", Status.OK, f"CPU: no card was found ({facts.nvidia.complaint})")
    if facts.place == "WSL1":
        cure = "WSL1 reaches no card; if you have one, run in Windows: wsl --set-version NAME 2"
        return Check("device", Status.WARN, "CPU: this is WSL1", cure)
    hint = "WSL2 shows one when Windows has its driver" if facts.place == "WSL2" else "the course needs none"
    return Check("device", Status.OK, f"CPU: no card was found; {hint}")


def _check_reachable_card(facts: Facts) -> Check:
    names = ", ".join(card.name for card in facts.nvidia.cards) or "a card"
    error = facts.torch.card_error
    if error is None:
        driver = f", driver {facts.nvidia.driver_version}" if facts.nvidia.driver_version else ""
        return Check("device", Status.OK, f"{names}{driver}")
    found = f"{names}: the first sum on it fails: {error}"
    if "no kernel image" in error:
        # Builds for CUDA 13 left out the cards before Turing; those for 12.6 still know them.
        return Check("device", Status.FAIL, found, reinstall_torch(facts, backend="cu126"))
    return Check("device", Status.FAIL, found, "End the other programs on the card, or restart the computer.")


def _check_unreachable_nvidia(facts: Facts) -> Check:
    card, torch, driver = facts.nvidia.cards[0].name, facts.torch, facts.nvidia.driver_version
    if not torch.cuda:
        found = f"{card}, but torch was built for {_build(facts)}"
        return Check("device", Status.WARN, found, reinstall_torch(facts))
    if facts.visible_devices is not None and facts.visible_devices.strip() in ("", "-1"):
        found = f"{card}, hidden by CUDA_VISIBLE_DEVICES={facts.visible_devices!r}"
        return Check("device", Status.WARN, found, "Unset the environment variable CUDA_VISIBLE_DEVICES.")
    least = _LEAST_DRIVER.get(Version(torch.cuda).major)
    where = "in Windows, not inside WSL" if facts.place == "WSL2" else "as your system installs drivers"
    if driver is None:
        said = f" ({facts.nvidia.complaint})" if facts.nvidia.complaint else ""
        need = f"{least} or newer " if least else ""
        cure = f"Install an NVIDIA driver {need}{where}, and restart the computer."
        if facts.place == "a container":
            cure = "Start it with docker run --gpus all ..., which needs the NVIDIA Container Toolkit."
        return Check("device", Status.WARN, f"{card}, but no driver answers{said}", cure)
    if least is not None and Version(driver) < least:
        found = f"{card}, but driver {driver} is too old for CUDA {torch.cuda}, which needs {least} or newer"
        cure = f"Install driver {least} or newer {where}, or take the build of torch for this driver:"
        return Check("device", Status.WARN, found, f"{cure}\n{reinstall_torch(facts)}")
    said = f": {facts.nvidia.complaint}" if facts.nvidia.complaint else ""
    found = f"{card}, driver {driver}, but torch does not reach it{said}"
    return Check("device", Status.WARN, found, "Restart the computer: the driver was updated, or hangs.")


def _build(facts: Facts) -> str:
    torch = facts.torch
    if torch.cuda:
        return f"CUDA {torch.cuda}"
    return f"ROCm {torch.rocm}" if torch.rocm else "Apple MPS" if torch.mps_built else "the CPU only"
