"""Ports that are really free, and that nobody else is given."""

import socket

import pytest

from course_lib.train.ranks import meeting_port as module
from course_lib.train.ranks.meeting_port import FIRST, MANY, meeting_port


def test_each_port_is_free_and_another_one() -> None:
    ports = [meeting_port() for _ in range(20)]
    assert len(set(ports)) == len(ports)
    for port in ports:
        with socket.create_server(("127.0.0.1", port)):
            pass


def test_the_system_gives_none_of_them_by_itself() -> None:
    for _ in range(200):
        with socket.create_server(("127.0.0.1", 0)) as given:
            assert given.getsockname()[1] not in range(FIRST, FIRST + MANY)


def test_a_port_on_which_somebody_listens_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_taken", iter(range(5, 10**6)))
    first = meeting_port()
    monkeypatch.setattr(module, "_taken", iter(range(5, 10**6)))
    with socket.create_server(("127.0.0.1", first)):
        assert meeting_port() != first
