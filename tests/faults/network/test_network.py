"""A server and clients on hosts of their own, with a network between them that loses, delays, repeats and damages."""

import os
import shutil
import time
from pathlib import Path

import pytest

from tests.faults import crowd
from tests.faults.network import idle
from tests.faults.network.switch import CALM, Switch, Weather
from tests.faults.process.test_kills import judge_unfinished, stop_clients

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.faults,
    pytest.mark.timeout(400),
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(shutil.which("ip") is None, reason="ip is missing; install it with: apt-get install iproute2"),
    pytest.mark.skipif(not os.path.exists("/dev/net/tun"), reason="/dev/net/tun is missing"),
]
NAMES = ("client-1", "client-2", "client-3")


def start(federation: crowd.Crowd, switch: Switch) -> None:
    """Starts everybody on a host of its own."""
    federation.start_server(*switch.on("server"), listen=f"{switch.address('server')}:7443")
    for name in federation.names:
        federation.start_client(name, *switch.on(name))


@pytest.mark.parametrize(
    ("weather", "counted"),
    [
        (Weather(loss=0.05), "lost"),
        (Weather(delay=0.005, jitter=0.03), "overtaken"),
        (Weather(repeats=0.1), "repeated"),
        (Weather(damage=0.02), "damaged"),
    ],
    ids=["five_percent_lost", "jitter_and_reordering", "ten_percent_repeated", "single_bits_flipped"],
)
def test_packets_in_bad_weather_slow_a_federation_down_and_change_nothing(
    tmp_path: Path, weather: Weather, counted: str
) -> None:
    with (
        Switch(("server", *NAMES), seed=5) as switch,
        crowd.crowd(tmp_path / "run", clients=3, rounds=2000, round_seconds=0.03) as federation,
    ):
        start(federation, switch)
        federation.wait(lambda: federation.version >= 3, 60, "version 3")
        switch.weather = weather
        for _ in range(2):
            at = federation.version
            time.sleep(10)
            assert federation.version > at, f"no progress in ten seconds\n{federation.tails()}"
        print(f"{weather}: version {federation.version}, {switch.counts}")
        assert getattr(switch.counts, counted) > 10
        switch.weather = CALM
        stop_clients(federation)
        judge_unfinished(federation)


def test_after_a_partition_of_a_minute_everybody_is_back_within_ten_seconds(tmp_path: Path) -> None:
    with (
        Switch(("server", *NAMES), seed=6) as switch,
        crowd.crowd(
            tmp_path / "run", clients=3, rounds=2000, round_seconds=0.03, straggler_timeout_seconds=200.0
        ) as federation,
    ):
        start(federation, switch)
        federation.wait(lambda: federation.version >= 3, 60, "version 3")
        switch.part({"server"}, NAMES)
        time.sleep(60)
        at = federation.version
        switch.heal()
        healed = time.monotonic()
        federation.wait(lambda: federation.version >= at + 3, 10, "three versions after the partition")
        print(f"three versions within {time.monotonic() - healed:.1f} s after the partition")
        for name in federation.names:
            rounds = [event["round"] for event in federation.events(name, "update_answered")]
            assert rounds == sorted(rounds)  # outboxes drain oldest first
        stop_clients(federation)
        judge_unfinished(federation)


def test_a_partition_of_one_client_suspends_it_and_healing_brings_it_back(tmp_path: Path) -> None:
    with (
        Switch(("server", *NAMES), seed=7) as switch,
        crowd.crowd(
            tmp_path / "run", clients=3, rounds=2000, round_seconds=0.03, straggler_timeout_seconds=2.0
        ) as federation,
    ):
        start(federation, switch)
        federation.wait(lambda: federation.version >= 3, 60, "version 3")
        switch.part({"server"}, {"client-3"})
        federation.wait(lambda: federation.events("server", "suspended"), 30, "the suspension")
        starts = len(federation.events("server", "started"))
        switch.heal()
        federation.wait(lambda: len(federation.events("server", "started")) > starts, 30, "the return")
        stop_clients(federation)
        judge_unfinished(federation)


def test_an_idle_client_that_pings_every_ten_seconds_is_not_sent_away(tmp_path: Path) -> None:
    """`make soak` does the same for ten minutes."""
    found = idle.idle(tmp_path, 45)
    assert found["lost_ours"] == 0
    assert found["lost_plain"] > 0  # the twin
