"""Places for connections that nobody knows yet, and the loop that gives them."""

import asyncio
import os
import resource
import socket
from contextlib import suppress

import pytest

from dokl.base.errors import BadInput
from dokl.live.doors import Door, DoorPlaces, Rank, listening, places_for

NEAR, FAR, OTHER = "127.0.0.1", "192.0.2.1", "192.0.2.2"


def fill(places, host, n, start=0.0, rank=Rank.SILENT):
    dropped = []
    for i in range(n):
        place = places.enter(host, start + i)
        if place is not None:
            place.rank = lambda: rank
            place.drop = lambda i=i: dropped.append((host, i))
    return dropped


def test_an_address_elsewhere_pushes_out_itself():
    places = DoorPlaces(most=10, each=5)
    others = fill(places, OTHER, 3)
    dropped = fill(places, FAR, 20, start=10.0)
    assert dropped == [(FAR, i) for i in range(15)]
    assert not others
    assert (len(places), places.dropped, places.refused) == (8, 15, 0)


def test_of_a_full_house_the_crowd_makes_room():
    places = DoorPlaces(most=10, each=8)
    crowd = fill(places, FAR, 8)
    fill(places, OTHER, 2, start=10.0)
    assert places.enter("192.0.2.3", 20.0) is not None
    assert crowd == [(FAR, 0)]


def test_places_are_kept_for_this_machine():
    places = DoorPlaces(most=10, each=10, kept=3)
    dropped = fill(places, FAR, 20, rank=Rank.SERVED)
    assert (len(places), places.refused) == (7, 13)
    assert [places.enter(NEAR, 50.0) is not None for _ in range(4)] == [True] * 3 + [True]
    assert not dropped
    assert len(places) == 10  # of those from here, the first made room for the last


def test_who_is_served_stays_and_who_said_nothing_goes_first():
    places = DoorPlaces(most=3, each=3)
    served = fill(places, FAR, 1, rank=Rank.SERVED)
    idle = fill(places, FAR, 1, start=1.0, rank=Rank.IDLE)
    silent = fill(places, FAR, 1, start=2.0)
    fill(places, FAR, 1, start=3.0, rank=Rank.SERVED)
    assert (len(silent), len(idle), len(served)) == (1, 0, 0)
    fill(places, FAR, 1, start=4.0, rank=Rank.SERVED)
    assert (len(idle), len(served)) == (1, 0)
    assert places.enter(FAR, 5.0) is None
    assert places.refused == 1


def test_leaving_makes_room():
    places = DoorPlaces(most=1, each=1)
    first = places.enter(FAR, 0.0)
    first.rank = lambda: Rank.SERVED
    assert places.enter(FAR, 1.0) is None
    places.leave(first)
    places.leave(first)
    assert places.enter(FAR, 2.0) is not None


def test_few_descriptors_mean_few_places():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (264, hard))
        assert places_for(256, 0.5) == 100
        assert places_for(50, 0.5) == 50
        assert places_for(100, 0.3, each=3) == 20
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_port_that_is_taken_is_named():
    with (
        socket.create_server((NEAR, 0)) as taken,
        pytest.raises(BadInput, match=r"tea at .* in use"),
    ):
        listening(NEAR, taken.getsockname()[1], "tea")


def test_without_descriptors_whoever_waits_is_sent_away_and_the_next_is_served():
    lines = []

    async def serve(connection, place):
        await asyncio.get_running_loop().sock_sendall(connection, b"hello")

    async def scene():
        listener = listening(NEAR, 0, "tests")
        places = DoorPlaces(4, 4)
        door = asyncio.create_task(
            Door(listener, places, serve, lambda event, **_: lines.append(event)).run()
        )
        await asyncio.to_thread(len, "")  # a thread is there
        await asyncio.sleep(0)  # and the door has its spare descriptor
        waits, held = socket.socket(), []
        waits.settimeout(5)
        with suppress(OSError):
            while True:
                held.append(os.dup(0))
        waits.connect(listener.getsockname())
        try:
            sent_away = await asyncio.to_thread(_said, waits)
        finally:
            for number in held:
                os.close(number)
        with socket.create_connection(listener.getsockname(), timeout=5) as after:
            served = await asyncio.to_thread(_said, after)
        door.cancel()
        with suppress(asyncio.CancelledError):
            await door
        listener.close()
        return sent_away, served, len(places)

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
        assert asyncio.run(scene()) == (b"", b"hello", 0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert 1 <= lines.count("no descriptors") <= 20


def _said(connection):
    """All that comes until the other side closes."""
    with connection, suppress(ConnectionResetError):
        return connection.recv(100)
    return b""
