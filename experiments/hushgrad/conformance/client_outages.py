"""Scenarios about servers that go: with a word, without one, and back in an older state."""

from typing import Any, Final

from hushgrad.conformance import judge, world
from hushgrad.conformance.report import Check, Judgement
from hushgrad.conformance.scripted import HEARTBEAT_SECONDS, Reply, Submission
from hushgrad.conformance.stage import Kit, Scenario, StuckError, stage
from hushgrad.v1 import membership_pb2, models_pb2

AWAY_SECONDS: Final = 1.5


def going_away(kit: Kit, found: Judgement) -> None:
    """The watch ends with GoingAway and a time to wait."""
    with stage(kit, world.beacons(rounds=6)) as on:
        server = on.server
        on.start()
        on.until_round(1)
        message = models_pb2.WatchModelsResponse(
            server=server.server_state(),
            going_away=models_pb2.GoingAway(retry_after_milliseconds=int(1000 * AWAY_SECONDS)),
        )
        watches = len(server.called("WatchModels"))
        on.until(lambda: server.watches > 0, "the client must watch")
        server.publishing = False
        server.send_extra(message)
        on.until(lambda: server.watches == 0, "the watch must end")
        ended = max(call.at for call in server.called("WatchModels"))
        try:
            on.until(lambda: len(server.called("WatchModels")) > watches, "after GoingAway the client must watch again")
        except StuckError as stuck:
            found.fail("going-away", str(stuck))
            return
        waited = server.called("WatchModels")[watches].at - max(ended, server.extra_at)
        found.require(
            "going-away",
            waited >= 0.95 * AWAY_SECONDS,
            f"the client watched again {waited:.2f} s after GoingAway with retry_after {AWAY_SECONDS} s",
        )
        server.settle()
        on.until_round(5)
        server.end()
        found.complain("going-away", on.finish([0]))


def heartbeats(kit: Kit, found: Judgement) -> None:
    """A watch stays open and falls silent: neither versions nor heartbeats come on it any more."""
    with stage(kit, world.beacons(rounds=6, max_delay=0, window=3)) as on:
        server = on.server
        on.start()
        on.until_round(1)
        server.publishing = False
        watches = len(server.called("WatchModels"))
        on.until(lambda: server.watches > 0, "the client must watch")
        on.listen(2 * HEARTBEAT_SECONDS)  # so that one heartbeat has come, and said how often they do
        server.mute()
        server.settle()
        try:
            on.until(
                lambda: len(server.called("WatchModels")) > watches, "a watch without heartbeats must be opened again"
            )
        except StuckError as stuck:
            found.fail("heartbeats", str(stuck))
            return
        on.until_round(5)
        server.end()
        found.complain("heartbeats", on.finish([0]))


def raised_epoch(kit: Kit, found: Judgement) -> None:
    """The server is restored from a backup that holds version 1 and the updates of round 0."""
    with stage(kit, world.beacons(rounds=8, window=6)) as on:
        server = on.server
        server.watermark = 1

        def reply(submission: Submission) -> Reply:
            if submission.round >= 4:
                server.publishing = False
            return None

        server.on_submit = reply
        on.start()
        on.until_round(4)
        server.close()
        joins, reports, before = len(server.called("Join")), len(server.called("ReportRounds")), len(server.submissions)
        server.on_submit = lambda submission: None
        sealed = {one.round: one.digest for one in server.submissions}
        server.restore(version=1, epoch=2)
        server.publishing = True
        server.open()
        after = lambda: [one.round for one in server.submissions[before:]]  # noqa: E731
        try:
            on.until(lambda: len(server.called("Join")) > joins, "when server_epoch rose the client must join again")
        except StuckError as stuck:
            found.fail("raised-epoch", str(stuck))
            found.skip("held-rounds", "the client did not join again")
            return
        try:
            on.until(lambda: {1, 2, 3} <= set(after()), "rounds 1 to 3, which the restored server lacks, must be sent")
        except StuckError as stuck:
            found.complain("held-rounds", _untold(server.called("ReportRounds")[reports:], sealed))
            found.fail("raised-epoch", f"{stuck} (sent since: {', '.join(map(str, after())) or 'none'})")
            return
        found.complain("held-rounds", _untold(server.called("ReportRounds")[reports:], sealed))
        on.until_round(7)
        server.end()
        wrong = judge.same_bytes(server.submissions, "before and after the server was restored") or on.finish([0])
        found.complain("raised-epoch", wrong)


def _untold(calls: list[Any], sealed: dict[int, bytes]) -> str | None:
    """Says what of the held rounds 1 to 3 was not reported as it must be."""
    told: dict[int, bytes] = {}
    covered: set[int] = set()
    for call in calls:
        held = [one for one in call.request.reports if one.fate == membership_pb2.RoundReport.FATE_HELD]
        told |= {one.round: one.digest for one in held}
        if call.request.HasField("held_below"):
            covered |= set(range(call.request.held_from, call.request.held_below))
    for round_ in (1, 2, 3):
        if round_ not in told:
            return f"round {round_} is held and was not reported to the restored server"
        if told[round_] != sealed[round_]:
            return f"round {round_} was reported to the restored server with another digest than it was sent with"
    if not {1, 2, 3} <= covered:
        return "held_below was not set; the restored server cannot know that all that is held was named"
    return None


SCENARIOS = (
    Scenario((Check("going-away", "After GoingAway the client watches again, not before it may."),), going_away),
    Scenario((Check("heartbeats", "A watch on which heartbeats no longer come is opened again."),), heartbeats),
    Scenario(
        (
            Check("raised-epoch", "When server_epoch rose, the client joins again and sends the same bytes again."),
            Check("held-rounds", "A restored server is told every round that is held, and that these are all."),
        ),
        raised_epoch,
    ),
)  # fmt: skip
