"""Which card was asked for, and which does the process see?

CUDA numbers the visible cards anew, from 0. More processes than cards, a number of the whole machine, or no
card at all lead to one message.
"""

import re
from typing import Any

from course_lib.diagnose.faults.surroundings import processes_per_node, visible_devices
from course_lib.diagnose.faults.wording import Around, Told, evidence_of, fault, wording

# Lightning's words, without blanks and in lower case; both lists may be empty.
_ASKED = re.compile(r"yourequestedgpus?:\[(?P<list>[\d,]{0,200})\]")
_THERE = re.compile(r"butyourmachineonlyhas:\[(?P<list>[\d,]{0,200})\]")


def _ordinal(around: Around) -> Told:
    visible, processes = visible_devices(around.paste), processes_per_node(around.paste)
    code = re.search(
        r"(?:cuda\s+runtime\s+error\s*\(|CUDA\s+error\s*\(?)(\d{1,4})\)", around.paste.body, re.IGNORECASE
    )
    asked = re.search(r"(?:set_device\(|cuda:|--gpus?(?:_id)?[= ])\s*(\d{1,3})\b", around.paste.body)
    figures: dict[str, Any] = {
        "cuda_visible_devices": visible,
        "nproc_per_node": processes,
        "cuda_error_code": int(code[1]) if code else None,
        "device": int(asked[1]) if asked else None,
    }
    if lists := _lists(around):
        return _not_there(*lists)
    if visible is not None and processes is not None and processes > len(visible):
        count = len(visible)
        return Told(
            fault(
                "ddp.more_processes_than_gpus",
                f"{processes} processes start, and {count} {'card is' if count == 1 else 'cards are'} "
                "visible",
                f"CUDA numbers the visible cards anew, from 0 to {count - 1}. Local rank {count} and above "
                "have no card.",
                f"--nproc_per_node={count}, or make more cards visible.",
                (
                    "Using the numbers of CUDA_VISIBLE_DEVICES in set_device: inside they count from 0.",
                    "A new driver.",
                ),
                evidence=evidence_of(figures),
            ),
            figures,
        )
    if visible is not None and figures["device"] is not None and figures["device"] >= len(visible):
        return Told(
            fault(
                "ddp.visible_devices_renumbered",
                f"cuda:{figures['device']} does not exist: only {len(visible)} visible, numbered from 0",
                "CUDA_VISIBLE_DEVICES hides all other cards, and numbers those that are left anew from 0.",
                f"Use cuda:0 to cuda:{len(visible) - 1} in the script; choose the real card by "
                "CUDA_VISIBLE_DEVICES alone.",
                "A new driver.",
                evidence=evidence_of(figures),
            ),
            figures,
        )
    return Told(
        fault(
            "ddp.more_processes_than_gpus",
            "A card is asked for that this process does not see",
            "The number is not below torch.cuda.device_count(): more processes than cards, the global rank "
            "used where local_rank is meant, a number written into the script, or CUDA_VISIBLE_DEVICES "
            "that hides cards.",
            (
                "Print torch.cuda.device_count() and the number that is asked for; set --nproc_per_node to "
                "the number of visible cards, "
                'and use int(os.environ["LOCAL_RANK"]), not the global rank, in set_device.',
            ),
            ("A new driver.", "Reinstalling PyTorch."),
            certainty="likely",
            evidence=evidence_of(figures),
        ),
        figures,
    )


def _lists(around: Around) -> tuple[list[int], list[int]] | None:
    asked, there = _ASKED.search(around.paste.lowered), _THERE.search(around.paste.lowered)
    if asked is None or there is None:
        return None
    numbers = [[int(n) for n in re.findall(r"\d{1,6}", match["list"])][:64] for match in (asked, there)]
    return numbers[0], numbers[1]


def _not_there(asked: list[int], there: list[int]) -> Told:
    """What Lightning says: the cards that were asked for, and those that this process sees."""
    figures = {"asked_for": asked, "visible": there}
    if not there:
        return Told(
            fault(
                "cuda.no_card_visible",
                "PyTorch sees no card, and one is asked for",
                "The list of cards is empty: the CPU build of PyTorch, a driver that does not work, a "
                "container without cards, or CUDA_VISIBLE_DEVICES that hides them.",
                "Look at torch.cuda.is_available(), torch.version.cuda (None is the CPU build) and "
                "nvidia-smi; without a card Trainer(accelerator='auto', devices='auto') takes the CPU.",
                ("Another number in devices or gpus.",),
                evidence=evidence_of(figures),
            ),
            figures,
        )
    return Told(
        fault(
            "ddp.more_processes_than_gpus",
            f"Card {', '.join(map(str, sorted(set(asked) - set(there)))) or '?'} is asked for; this "
            f"process sees {', '.join(map(str, there))}",
            "Cards are numbered from 0 over those that are visible: with one card there is no number 1.",
            f"devices={there} (or devices={len(there)}, the count) in the Trainer or the config; to choose "
            "among several, set CUDA_VISIBLE_DEVICES and count from 0.",
            ("A new driver.", "Reinstalling PyTorch."),
            evidence=evidence_of(figures),
        ),
        figures,
    )


WORDINGS = (
    wording(("invalid device ordinal", "But your machine only has:", "Error: Invalid device id"), _ordinal),
)
