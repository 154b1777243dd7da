"""`course cost` and `course cards`: the sums, the sentences, the JSON."""

import json

import pytest

from course_lib.cli.main import main

EXAMPLE = [
    "cost",
    "--price",
    "10000",
    "--years",
    "3",
    "--power-w",
    "350",
    "--tariff",
    "0.6",
    "--hours",
    "100",
]


def run(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return int(ended.value.code or 0)


def test_the_guides_example_is_59_and_not_30(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(EXAMPLE) == 0
    assert capsys.readouterr().out.startswith("59.05 CNY for 100 h")


def test_the_json_holds_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    rent = ["--cloud", "0.76", "--instances", "2", "--json"]
    assert run(EXAMPLE + rent) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["depreciation"] == pytest.approx(38.0518, abs=1e-4)
    assert answer["energy"] == pytest.approx(21)
    assert answer["cloud"] == pytest.approx(152)
    assert answer["total"] == pytest.approx(answer["depreciation"] + answer["energy"] + answer["cloud"])
    assert answer["break_even_hours"] == pytest.approx(10_000 / (1.52 - 0.21))


def test_it_says_which_is_cheaper(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*EXAMPLE, "--cloud", "0.76", "--carbon", "china"]) == 0
    out = capsys.readouterr().out
    assert "Owning is cheaper than renting from 18,182 hours of use on (69% of 3 years)" in out
    assert "On your own card 59.05 CNY, rented 76.00 CNY; the total adds both." in out
    assert "20.4 kg CO2e" in out
    assert run([*EXAMPLE, "--cloud", "0.3"]) == 0
    assert "Renting stays cheaper" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["--hours", "-1"],
        ["--hours", "1", "--price", "-5"],
        ["--hours", "1", "--price", "5", "--years", "0"],
        ["--hours", "1", "--power-w", "-1"],
        ["--hours", "1", "--tariff", "-1"],
        ["--hours", "1", "--cloud", "-1"],
        ["--hours", "1", "--instances", "-1"],
        ["--hours", "nan"],
        ["--hours", "1", "--price", "inf"],
        ["--hours", "many"],
        ["--hours", "1", "--currency", "gold"],
        ["--hours", "1", "--carbon", "Atlantis"],
        ["--hours", "1", "--price", "1", "--residual", "0.5", "--yearly-loss", "0.2"],
        ["--hours", "1"],
        ["--hours", "1", "--cloud", "3", "--carbon", ""],
        [],
    ],
)
def test_nonsense_ends_in_one_sentence(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", *arguments]) == 2
    told = capsys.readouterr()
    assert not told.out
    assert told.err.startswith("course: ")
    assert len(told.err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("option", "most"),
    [
        ("--price", "1,000,000,000,000"),
        ("--tariff", "1,000,000,000,000"),
        ("--cloud", "1,000,000,000,000"),
        ("--hours", "1,000,000,000"),
        ("--power-w", "1,000,000,000"),
        ("--host-w", "1,000,000,000"),
        ("--years", "100"),
        ("--pue", "10"),
        ("--utilisation", "1"),
        ("--residual", "1"),
        ("--yearly-loss", "1"),
        ("--lost-work", "100"),
    ],
)
@pytest.mark.parametrize("silly", ["1e300", "nan", "inf", "-1"])
def test_a_silly_number_is_answered_with_what_is_accepted(
    option: str, most: str, silly: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cost", "--hours", "1", "--price", "10", option, silly]) == 2
    told = capsys.readouterr()
    assert not told.out
    assert told.err.strip().endswith(f" to {most}.")
    assert "cannot be" in told.err


def test_a_card_is_told_with_its_offers_and_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cards", "3090"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("RTX 3090\n")
    assert "704.00 USD (used" in out
    assert "older than a year" in out
    assert "https://" in out


def test_what_is_not_known_of_a_card_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cards", "M2", "Max"]) == 0
    out = capsys.readouterr().out
    assert "not known" in out
    assert "No price of it" in out


def test_the_list_holds_all_cards_or_one_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cards", "--json"]) == 0
    everything = json.loads(capsys.readouterr().out)
    assert len(everything) >= 70
    assert run(["cards", "--kind", "tpu"]) == 0
    out = capsys.readouterr().out
    assert "TPU v5e" in out
    assert "RTX" not in out


def test_an_unknown_card_ends_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cards", "RTX", "9999"]) == 2
    assert "near it are" in capsys.readouterr().err
