"""Several things in one paste are told apart and told together; the unknown is said to be unknown."""

import json
from pathlib import Path

import pytest

from course_lib.diagnose.recognise import KINDS, can_be_read, explain

SAMPLES = Path(__file__).parent / "samples"
OOM = (
    "RuntimeError: CUDA out of memory. Tried to allocate 1.20 GiB (GPU {}; 23.70 GiB total capacity; 15.02 "
    "GiB already allocated; 300.00 MiB free; 22.60 GiB reserved in total by PyTorch)"
)


def sample(name: str) -> str:
    return (SAMPLES / name).read_text(encoding="utf-8")


def test_a_message_and_a_dump() -> None:
    explanation = explain(OOM.format(0) + "\n\n" + sample("smi_535_eight_ranks.txt"))
    assert [r.kind for r in explanation.readings] == ["out-of-memory message", "GPU status"]
    assert [f.id for f in explanation.findings] == [
        "oom.fragmentation",
        "ddp.every_rank_has_a_context_on_gpu0",
    ]


def test_the_table_of_another_device_is_not_diagnosed() -> None:
    explanation = explain(OOM.format(1) + "\n" + sample("summary_112.txt"))
    assert [f.id for f in explanation.findings] == ["oom.fragmentation"]
    assert [r.figures.get("device") for r in explanation.readings] == [None, 3]


def test_two_ranks_that_fail_alike_give_one_finding() -> None:
    explanation = explain("\n".join(OOM.format(gpu) for gpu in range(4)))
    assert len(explanation.readings) == 4
    assert [f.id for f in explanation.findings] == ["oom.fragmentation"]


def test_a_long_series_is_judged_over_time() -> None:
    header = (
        "# gpu   pwr gtemp    sm   mem  mclk  pclk    fb\n# Idx     W     C     %     %   MHz   MHz    MB\n"
    )
    rows = "".join(
        f"    {gpu}   {300 - 100 * (gpu == 2)}    60    {98 - 40 * (gpu == 2)}    30  1593  1400 30000\n"
        for _ in range(30)
        for gpu in range(4)
    )
    first = explain(header + rows).findings[0]
    assert first.id == "health.starved_rank"
    assert "GPU 2" in first.summary


def test_host_memory_beside_an_idle_card() -> None:
    idle = sample("smi_held_idle.txt").replace("11315MiB", "  215MiB").replace("11312MiB", "  200MiB")
    explanation = explain("OSError: [WinError 1455] The paging file is too small\n" + idle)
    assert explanation.findings[0].id == "oom.host_commit_limit"
    assert all(f.severity != "note" for f in explanation.findings)


@pytest.mark.parametrize(
    "text",
    [
        "hello",
        "def f(x):\n    return x + 1\n",
        "epoch 1 loss 0.5\nepoch 2 loss 0.4",
        "|  a |  b |\n|----|----|",
        "\n\n",
    ],
)
def test_unknown_text_is_said_to_be_unknown(text: str) -> None:
    explanation = explain(text)
    assert not explanation.known
    assert "do not know" in str(explanation)
    assert "nvidia-smi" in str(explanation)
    assert explanation.to_json()["can_be_read"] == can_be_read()


def test_each_kind_says_what_it_looks_like() -> None:
    assert len(can_be_read()) == len(KINDS)
    assert all(kind.name and kind.looks_like for kind in KINDS)


def test_the_answer_is_json_text_and_escaped_html() -> None:
    explanation = explain(
        "<script>alert(1)</script>\n" + sample("gpustat_two.txt").replace("NVIDIA", "<b>N</b>")
    )
    assert "<b>N" not in explanation._repr_html_()
    assert json.loads(json.dumps(explanation.to_json()))["known"] is True
    assert "First:" in str(explanation)


def test_nothing_in_the_text_is_run(tmp_path: Path) -> None:
    target = tmp_path / "made"
    explain(f"__import__('pathlib').Path({str(target)!r}).touch()\n" + OOM.format(0))
    assert not target.exists()


def test_in_a_notebook_an_unknown_text_gets_one_sentence_and_the_list_on_demand() -> None:
    page = explain("my dog ate it")._repr_html_()
    sentence, details = page.split("<details>")
    assert "I do not know this text" in sentence
    assert "<li>" not in sentence
    assert details.count("<li>") == len(KINDS)


def test_in_a_notebook_figures_without_a_fault_are_said_to_be_well() -> None:
    text = "index, name, persistence_mode, utilization.gpu [%]\n0, NVIDIA A40, Disabled, 3 %\n"
    explanation = explain(text)
    assert explanation.known
    assert not explanation.findings
    assert "calls for an action" in explanation._repr_html_()


def test_a_long_run_of_empty_lines_is_read_once() -> None:
    """A pattern that goes on from each line over all the empty ones after it would take minutes here."""
    for line in ("", "* ", "> "):
        assert not explain(f"{line}\n" * 30_000).known


def test_a_text_that_begins_with_a_thousand_empty_lines() -> None:
    assert explain("> \n" * 1200 + "> x\n>  4\n>  CPU 4").findings == ()
