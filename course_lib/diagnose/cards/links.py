"""How are the cards connected, and what follows for exchanging gradients?"""

from course_lib.diagnose.finding import Evidence, Finding
from course_lib.diagnose.smi.model import GpuStatus


def links(status: GpuStatus) -> Finding:
    """The Finding for the matrix of ``nvidia-smi topo -m``."""
    kinds = set(status.links.values())
    nvlink = {kind for kind in kinds if kind.startswith("NV")}
    evidence = tuple(Evidence(f"GPU {pair}", link) for pair, link in list(status.links.items())[:32])
    if nvlink and nvlink == kinds:
        return Finding(
            id="topology.nvlink",
            summary="All pairs of cards are connected by NVLink",
            why="Gradients go over NVLink; PCIe and sockets do not limit the exchange inside this computer.",
            evidence=evidence,
            severity="note",
        )
    if nvlink:
        return Finding(
            id="topology.mixed_nvlink",
            summary="Some pairs of cards have NVLink, others do not",
            why="A ring over all cards is as fast as its slowest link.",
            remedies=("Put small jobs on cards that share NVLink: choose them with CUDA_VISIBLE_DEVICES.",),
            evidence=evidence,
            severity="note",
        )
    direct = sorted(pair for pair, link in status.links.items() if link in ("PIX", "PXB"))
    if direct:
        return Finding(
            id="nccl.p2p_over_pcie_blocked",
            summary="No NVLink: cards under one PCIe switch copy directly, which some servers block",
            why=f"Pairs {', '.join(direct[:8])} sit under a PCIe switch (PIX, PXB) and use direct copies; "
            "pairs across sockets (SYS) do not. If NCCL hangs or errs only within such pairs, PCIe access "
            "control (ACS) or the IOMMU breaks peer-to-peer.",
            remedies=(
                "Test with NCCL_P2P_DISABLE=1: if that works (slower), disable ACS or the VT-d IOMMU as "
                "the NCCL troubleshooting guide says.",
            ),
            not_helpful=("Rewriting the training loop.", "A longer NCCL timeout."),
            evidence=evidence,
            severity="warning",
            certainty="possible",
        )
    return Finding(
        id="topology.no_fast_links",
        summary="No NVLink and no common PCIe switch: cards talk through the processor",
        why="Every exchange of gradients crosses a host bridge or the link between sockets (PHB, NODE, SYS).",
        remedies=(
            "Measure the share of communication in a step; accumulate gradients if it is above a fifth.",
        ),
        evidence=evidence,
        severity="note",
    )
