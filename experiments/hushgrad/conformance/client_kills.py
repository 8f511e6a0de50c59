"""Scenarios about what must survive: lost answers, kill -9, a server that restarts, a ledger that is put back."""

import shutil
import threading
from typing import Final

import grpc
from hushgrad.conformance import judge, proxy, world
from hushgrad.conformance.report import Check, Judgement
from hushgrad.conformance.scripted import Reply, Submission
from hushgrad.conformance.stage import Kit, Scenario, StuckError, stage
from hushgrad.wire import header as wire_header

CONFLICT_EXIT: Final = 5


def lost_answer(kit: Kit, found: Judgement) -> None:
    """Answers get lost after the server took the update, and before."""
    lost = {1: 1, 3: 2}
    with stage(kit, world.beacons(rounds=5)) as on:

        def reply(submission: Submission) -> Reply:
            left = lost.get(submission.round, 0)
            if not left:
                return None
            lost[submission.round] = left - 1
            if submission.round == 1:
                on.server.take(submission)
            return grpc.StatusCode.UNAVAILABLE

        on.server.on_submit = reply
        on.start()
        try:
            on.until_round(1, 2)
            on.until_round(3, 3)
            on.until_round(4)
        except StuckError as stuck:
            said = judge.same_bytes(on.server.submissions, "after its answer was lost")
            found.fail("lost-answer", said or f"after a lost answer, {stuck}")
            return
        on.server.end()
        said = judge.same_bytes(on.server.submissions, "after its answer was lost")
        found.complain("lost-answer", said or on.finish([0]))


def killed(kit: Kit, found: Judgement) -> None:
    """kill -9 at the first byte of round 0, before the answer to round 2, and after the answer to round 3."""
    pipe: list[proxy.Proxy] = []
    captured: list[bytes] = []
    died = threading.Event()

    def through_proxy(address: str) -> str:
        pipe.append(proxy.Proxy(("127.0.0.1", int(address.rpartition(":")[2]))))
        return address

    federation = world.beacons(rounds=6)
    with stage(kit, federation, address=through_proxy) as on, pipe[0].serving() as address:
        on.process.environment["HUSHGRAD_SERVER"] = address

        def at_first_byte(data: bytes) -> None:
            on.kill()
            captured.append(data)
            died.set()

        def reply(submission: Submission) -> Reply:
            if submission.round == 2 and submission.life == 2:
                on.server.take(submission)
                on.kill()
                died.set()
            return None

        pipe[0].on_update = at_first_byte
        on.server.on_submit = reply
        on.start()
        on.until(died.is_set, "an update must be sent")
        died.clear()
        on.start()
        try:
            on.until_round(0)
        except StuckError as stuck:
            found.fail("killed-at-first-byte", f"after kill -9 at the first sent byte of round 0, {stuck}")
            found.skip("killed-before-answer", "the client did not survive the first kill")
            return
        found.complain("killed-at-first-byte", _compare(captured[0], on.server.of_round(0)[0]))
        found.passed("killed-at-first-byte")
        on.until(died.is_set, "round 2 must be sent")
        on.start()
        on.until_round(2, 2)
        on.until_round(3)
        on.kill()
        on.start()
        on.until_round(5)
        on.server.end()
        sent = on.server.submissions
        wrong = judge.same_bytes(sent, "before and after kill -9") or judge.chain(sent) or on.finish([0])
        found.complain("killed-before-answer", wrong)


def _compare(captured: bytes, again: Submission) -> str | None:
    head = captured[: wire_header.HEADER_BYTES]
    where = "after kill -9 at the first sent byte of round 0 the restarted client sent"
    if not again.header.startswith(head):
        return f"{where} another header: the row was not durable before its first byte left"
    if len(captured) > len(head) + len(again.payload) + 8 and again.payload not in captured[len(head) :]:
        return f"{where} other bytes: the update was not durable before its first byte left, and noise was drawn twice"
    return None


def killed_anywhere(kit: Kit, found: Judgement) -> None:
    """kill -9 at odd moments: some milliseconds after a new round has come, six times."""
    with stage(kit, world.beacons(rounds=40, max_delay=2)) as on:
        server = on.server

        def slowly(submission: Submission) -> Reply:
            on.listen(0.01)  # so that a fast client has rounds left for the last kill
            return None

        server.on_submit = slowly
        on.start()
        for milliseconds in (0, 1, 2, 5, 10, 30):
            newest = max(server.rounds(), default=-1)
            if newest > 30:
                break
            on.until(lambda: max(server.rounds(), default=-1) > newest, f"round {newest + 1} must be sent")  # noqa: B023
            on.listen(milliseconds / 1000)
            on.kill()
            on.start()
        on.until_round(39)
        server.end()
        sent = list(server.submissions)
        wrong = judge.same_bytes(sent, "before and after kill -9") or judge.chain(sent)
        missing = sorted(set(range(40)) - set(server.rounds()))
        if missing:
            wrong = wrong or f"round {missing[0]} never came, although nobody reported it skipped or void"
        found.complain("killed-anywhere", wrong or on.finish([0]))


def wanted(kit: Kit, found: Judgement) -> None:
    """The server restarts and has receipts without content for rounds 1 and 3."""
    down = threading.Event()
    federation = world.beacons(rounds=8)
    with stage(kit, federation) as on:
        server = on.server
        server.watermark = 1

        def reply(submission: Submission) -> Reply:
            if submission.round == 4:
                down.set()
            return grpc.StatusCode.UNAVAILABLE if down.is_set() else None

        server.on_submit = reply
        on.start()
        on.until(down.is_set, "round 4 must be sent")
        server.close()
        server.wanted = [1, 3]
        before = len(server.submissions)
        server.on_submit = lambda submission: None
        server.open()
        after = lambda: [one.round for one in server.submissions[before:]]  # noqa: E731
        try:
            on.until(lambda: 4 in after(), "round 4 must be sent again when the server is back")
            on.until(lambda: {1, 3} <= set(after()), "the wanted rounds 1 and 3 must be sent again")
        except StuckError as stuck:
            found.fail("wanted-rounds", f"after a restart of the server, {stuck} (sent since: {_shown(after())})")
            return
        if after().index(1) > after().index(3):
            found.fail("wanted-rounds", "wanted round 3 was sent before wanted round 1; oldest first")
        found.complain("wanted-rounds", judge.same_bytes(server.submissions, "before and after the server's restart"))
        on.until_round(7)
        server.end()
        found.complain("wanted-rounds", on.finish([0]))


def rolled_back(kit: Kit, found: Judgement) -> None:
    """The state folder is put back to where it was two rounds ago."""
    # Synchronous, so that no round is sealed before the one before it has come.
    with stage(kit, world.beacons(rounds=8, max_delay=0)) as on:
        server = on.server
        deaths = {1: 2, 2: 4}
        died = threading.Event()

        def reply(submission: Submission) -> Reply:
            if submission.round == deaths.get(submission.life):
                on.kill()
                died.set()
                return grpc.StatusCode.UNAVAILABLE
            return None

        server.on_submit = reply
        on.start()
        on.until(died.is_set, "round 2 must be sent")
        copy = on.state.parent / "copy"
        shutil.copytree(on.state, copy)
        died.clear()
        on.start()
        on.until(died.is_set, "round 4 must be sent")
        shutil.rmtree(on.state)
        shutil.copytree(copy, on.state)
        before = len(server.submissions)
        on.start()
        wrong = on.finish([CONFLICT_EXIT])
        if len(server.submissions) > before:
            wrong = (
                f"round {server.submissions[before].round} was sent although the server has seen a later row than the "
                "restored ledger has"
            )
        found.complain("rolled-back-ledger", wrong)


def _shown(rounds: list[int]) -> str:
    return ", ".join(map(str, rounds)) or "none"


SCENARIOS = (
    Scenario((Check("lost-answer", "After a lost answer the same bytes are sent again."),), lost_answer),
    Scenario(
        (
            Check("killed-at-first-byte", "After kill -9 at the first sent byte the same bytes are sent."),
            Check("killed-before-answer", "After kill -9 before and after answers, every round keeps its bytes."),
        ),
        killed,
    ),
    Scenario(
        (Check("killed-anywhere", "Six times kill -9 at odd moments: every round comes, with its bytes."),),
        killed_anywhere,
    ),
    Scenario(
        (Check("wanted-rounds", "Accepted rounds that the server wants are sent again, the same bytes."),), wanted
    ),
    Scenario(
        (
            Check(
                "rolled-back-ledger", "With a ledger that is older than what the server saw, nothing is sent: exit 5."
            ),
        ),
        rolled_back,
    ),
)
