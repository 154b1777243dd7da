"""The listing's mends: each changes something, and the last version is a program without the faults."""

import ast

import pytest

from course_lib.teach.listing import LISTING, MENDS, Attempt, version


def test_each_mend_changes_the_listing_and_every_version_is_python() -> None:
    versions = [version(mended) for mended in range(len(MENDS) + 1)]
    assert versions[0] == LISTING
    assert len(set(versions)) == len(versions)
    for source in versions:
        ast.parse(source)
    for mend in MENDS:
        assert all(old in versions[MENDS.index(mend)] for old, _ in mend.changes)


def test_the_last_version_has_none_of_the_faults() -> None:
    last = version(len(MENDS))
    for wanted in (
        "main()\n",
        '"gloo"',
        "LOCAL_RANK",
        "images.to(device)",
        "zero_grad()",
        "destroy_process_group()",
    ):
        assert wanted in last
        assert wanted not in LISTING.replace("def main():\n", "")
    assert last.index("zero_grad()") < last.index("loss.backward()")


@pytest.mark.parametrize(
    ("attempt", "says"),
    [
        (Attempt(0, (), None, False), "nothing happened"),
        (Attempt(1, (), "NameError: name 'x'", True), "NameError: name 'x'"),
        (Attempt(4, ("loss 2", "loss 3"), None, True), "loss 2; loss 3; the group was left behind"),
        (Attempt(7, ("loss 2", "loss 1"), None, False), "loss 2; loss 1"),
    ],
)
def test_an_attempt_says_what_became_of_it(attempt: Attempt, says: str) -> None:
    assert str(attempt).startswith(says)
