"""Scenarios about rounds: their bytes, their order, what survives a kill, and when one may begin."""

import hashlib
import shutil
import threading
from functools import partial

import grpc
from hushgrad.conformance import judge, proxy, world
from hushgrad.conformance.report import Check, Judgement
from hushgrad.conformance.scripted import Reply, Submission
from hushgrad.conformance.stage import Kit, Scenario, Stage, StuckError, stage
from hushgrad.v1 import membership_pb2
from hushgrad.wire import header as wire_header

CONFLICT_EXIT = 5


def whole_run(kit: Kit, found: Judgement) -> None:
    """Six rounds and the end, nothing unusual."""
    federation = world.beacons(rounds=6)
    with stage(kit, federation) as on:
        server = on.server
        on.start()
        on.until_round(5)
        on.until(lambda: server.newest == 6, "version 6 must be reached")
        on.listen(1.0)
        server.end()
        wrong = on.finish([0])
        sent = list(server.submissions)
    digest = server.digest
    _say(found, "header", judge.first(judge.layout(one, federation, digest) for one in sent))
    _say(found, "secure-flag", judge.first(map(judge.flags, sent)))
    _say(found, "payload", judge.first(judge.payload(one, federation) for one in sent))
    _say(found, "checksum", judge.first(map(judge.checksum, sent)))
    _say(found, "caller", judge.first(judge.caller(one, digest, 1) for one in sent))
    _say(found, "chain", judge.chain(sent))
    _say(found, "life", _order_of_life(on))
    late = [one.round for one in sent if one.round >= 6]
    _say(found, "final-version", f"round {late[0]} was begun, the final version is 6" if late else wrong)


def _order_of_life(on: Stage) -> str | None:
    joins, starts = on.server.called("Join"), on.server.called("Start")
    watches, sent = on.server.called("WatchModels"), on.server.submissions
    if not joins or joins[0].request.caller.session or len(joins[0].request.join_id) != 16:
        return "Join must come with session 0 and a join_id of 16 bytes"
    if not starts or not sent or starts[0].at > sent[0].at:
        return "Start must be answered before the first update is sent"
    if not watches or watches[0].at > starts[0].at:
        return "Start must wait until the newest model is held, and nobody watched before it"
    if starts[0].request.next_round:
        return f"the next_round of a new ledger is 0, Start said {starts[0].request.next_round}"
    return None


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
        _say(found, "lost-answer", said or on.finish([0]))


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
        _say(found, "killed-at-first-byte", _compare(captured[0], on.server.of_round(0)[0]))
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
        _say(found, "killed-before-answer", wrong)


def _compare(captured: bytes, again: Submission) -> str | None:
    head = captured[: wire_header.HEADER_BYTES]
    where = "after kill -9 at the first sent byte of round 0 the restarted client sent"
    if not again.header.startswith(head):
        return f"{where} another header: the row was not durable before its first byte left"
    if len(captured) > len(head) + len(again.payload) + 8 and again.payload not in captured[len(head) :]:
        return f"{where} other bytes: the update was not durable before its first byte left, and noise was drawn twice"
    return None


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
        _say(found, "wanted-rounds", judge.same_bytes(server.submissions, "before and after the server's restart"))
        on.until_round(7)
        server.end()
        _say(found, "wanted-rounds", on.finish([0]))


def older_models(kit: Kit, found: Judgement) -> None:
    """The federation is at version 3 when the client comes; older versions arrive after newer ones, all the time."""
    federation = world.beacons(rounds=12, max_delay=4, window=6)
    with stage(kit, federation) as on:
        server = on.server
        server.publishing = False
        server.newest = 3

        def late_news(request: object) -> Reply:
            server.send_extra(server.published(1))
            on.listen(0.5)
            return None

        def reply(submission: Submission) -> Reply:
            answer = server.take(submission)
            with server.changed:
                server.newest = max(server.newest, submission.round)
                server.send_extra(server.published(max(0, submission.round - 1)), server.published(1))
            return answer

        server.on_call["Start"] = late_news
        server.on_submit = reply
        on.start()
        on.until(lambda: bool(server.submissions), "an update must be sent")
        first = server.submissions[0].round
        if first != 4:
            found.fail("entry-round", f"the server gave entry round 4, the client began with round {first}")
        found.passed("entry-round")
        try:
            on.until(lambda: 11 in server.rounds() or _backwards(on) is not None, "round 11 must be sent")
        except StuckError as stuck:
            _say(found, "older-models", _backwards(on) or f"with older versions arriving after newer ones, {stuck}")
            return
        server.publish(12)
        server.end()
        if not _readable(on, found, "older-models"):
            return
        _say(found, "older-models", _backwards(on) or on.finish([0]))


def _trained_from(on: Stage, submission: Submission) -> int | None:
    federation = on.server.federation
    return world.beacon_version(federation, submission.update(federation.terms.parameters))


def _readable(on: Stage, found: Judgement, name: str) -> bool:
    """Says whether updates tell what they were trained from; if not, nothing can be said."""
    if all(_trained_from(on, one) is not None for one in on.server.submissions):
        return True
    found.skip(name, "the updates are not sums of clipped gradients, so they do not tell which model they come from")
    return False


def _backwards(on: Stage) -> str | None:
    newest = 3
    for one in sorted(on.server.submissions, key=lambda one: one.round):
        version = _trained_from(on, one)
        if version is not None and version < newest:
            return (
                f"round {one.round} was trained from version {version} although version {newest} had arrived before: "
                "a model is taken only if it is newer than any seen"
            )
        newest = max(newest, version or 0)
    return None


def delay(name: str, max_delay: int, kit: Kit, found: Judgement) -> None:
    """Versions come only when the kit lets them."""
    federation = world.beacons(rounds=6, max_delay=max_delay, window=max_delay + 2)
    with stage(kit, federation) as on:
        server = on.server
        server.publishing = False
        on.start()
        for version in range(3):
            server.publish(version)
            try:
                on.until_round(version + max_delay)
            except StuckError as stuck:
                found.fail(name, f"with version {version} and max_delay {max_delay}, {stuck}")
                return
            on.listen(0.7)
            ahead = max(server.rounds())
            if ahead > version + max_delay:
                found.fail(
                    name,
                    f"round {ahead} was begun with version {version}; max_delay {max_delay} permits rounds up to "
                    f"{version + max_delay}",
                )
                return
        server.settle()
        on.until_round(5)
        server.end()
        if not _readable(on, found, name):
            return
        for one in server.submissions:
            base = _trained_from(on, one)
            if base is not None and base < one.round - max_delay:
                found.fail(
                    name,
                    f"round {one.round} was trained from version {base}, max_delay {max_delay} asks for "
                    f"{one.round - max_delay} at least",
                )
        _say(found, name, on.finish([0]))


def sqrt_delay(kit: Kit, found: Judgement) -> None:
    """s = 1: with t = i the lag i - k may be at most sqrt(i / ln i): 0 before round 3, then 1."""
    with stage(kit, world.beacons(rounds=6, delay="sqrt", max_delay=0, window=6, sample_size=1)) as on:
        server = on.server
        server.publishing = False
        on.start()
        for version, last in ((0, 0), (1, 1), (2, 3), (3, 4)):
            server.publish(version)
            on.until_round(last)
            on.listen(0.7)
            if max(server.rounds()) > last:
                found.fail(
                    "delay-sqrt",
                    f"round {max(server.rounds())} was begun with version {version}; sqrt(t / ln t) permits "
                    f"rounds up to {last}",
                )
                return
        server.settle()
        on.until_round(5)
        server.end()
        _say(found, "delay-sqrt", on.finish([0]))


def suspended(kit: Kit, found: Judgement) -> None:
    """The answer to round 2 says that the sender is suspended."""
    with stage(kit, world.beacons(rounds=7, max_delay=0, window=3)) as on:
        server = on.server

        def reply(submission: Submission) -> Reply:
            if submission.round == 2 and len(server.of_round(2)) == 1:
                server.publishing = False
                server.state = membership_pb2.PARTICIPATION_STATE_SUSPENDED
            return None

        server.on_submit = reply
        on.start()
        on.until_round(2)
        starts = len(server.called("Start"))
        on.listen(0.3)
        server.settle()
        try:
            on.until(lambda: len(server.called("Start")) > starts, "Start must be called after a suspension")
        except StuckError as stuck:
            began = [round_ for round_ in server.rounds() if round_ > 2]
            found.fail("suspended", f"round {began[0]} was begun while suspended" if began else str(stuck))
            return
        back = server.called("Start")[starts].at
        began = [one.round for one in server.submissions if one.round > 2 and one.at < back]
        if began:
            found.fail("suspended", f"round {began[0]} was begun while suspended, before Start")
            return
        on.until_round(6)
        server.end()
        _say(found, "suspended", on.finish([0]))


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
        _say(found, "rolled-back-ledger", wrong)


def corrupted_model(kit: Kit, found: Judgement) -> None:
    """Version 1 first comes with other bytes than its checksum says."""
    federation = world.beacons(rounds=4, max_delay=0, window=3)
    with stage(kit, federation) as on:
        server = on.server
        server.publishing = False
        on.start()
        on.until_round(0)
        message = server.published(1)
        model = world.published(world.beacon_model(15))
        message.published.model = model
        message.published.sha256 = hashlib.sha256(world.published(world.beacon_model(1))).digest()
        server.send_extra(message)
        on.listen()
        server.settle()
        on.until(lambda: 1 in server.rounds(), "", exit_allowed=True)
        for one in server.of_round(1):
            if _trained_from(on, one) == 15:
                found.fail("model-checksum", "round 1 was trained from a model whose bytes do not have its SHA-256")


def _say(found: Judgement, name: str, complaint: str | None) -> None:
    if complaint is not None:
        found.fail(name, complaint)


def _shown(rounds: list[int]) -> str:
    return ", ".join(map(str, rounds)) or "none"


SCENARIOS = (
    Scenario(
        (
            Check("header", "Every header has the 192 bytes of the layout, with what was agreed in each field."),
            Check("secure-flag", "No update is flagged as having insecure noise."),
            Check("payload", "Every payload is d little-endian int32, none of them -2^31."),
            Check("checksum", "Every message carries the CRC-32C of header and payload."),
            Check("caller", "Every update names terms, participant and session as they were agreed."),
            Check("chain", "Ledger sequences grow, and each head is the hash of the one before and the digest."),
            Check("life", "Join, then watch, then Start from round 0, then updates."),
            Check("final-version", "No round at or after the final version is begun, and the end is exit code 0."),
        ),
        whole_run,
    ),
    Scenario((Check("lost-answer", "After a lost answer the same bytes are sent again."),), lost_answer),
    Scenario(
        (
            Check("killed-at-first-byte", "After kill -9 at the first sent byte the same bytes are sent."),
            Check("killed-before-answer", "After kill -9 before and after answers, every round keeps its bytes."),
        ),
        killed,
    ),
    Scenario(
        (Check("wanted-rounds", "Accepted rounds that the server wants are sent again, the same bytes."),), wanted
    ),
    Scenario(
        (
            Check("entry-round", "The first round is the entry round that Start was answered."),
            Check("older-models", "A model that is not newer than those seen is ignored.", 1e-7),
        ),
        older_models,
    ),
    Scenario((Check("delay-0", "With max_delay 0 round i waits for version i.", 1e-7),), partial(delay, "delay-0", 0)),
    Scenario(
        (Check("delay-1", "With max_delay 1 round i waits for version i - 1.", 1e-7),), partial(delay, "delay-1", 1)
    ),
    Scenario(
        (Check("delay-sqrt", "With the square-root rule round i waits for s_k + ... <= sqrt(t / ln t)."),), sqrt_delay
    ),
    Scenario((Check("suspended", "After a suspension no round is begun before Start."),), suspended),
    Scenario(
        (
            Check(
                "rolled-back-ledger", "With a ledger that is older than what the server saw, nothing is sent: exit 5."
            ),
        ),
        rolled_back,
    ),
    Scenario((Check("model-checksum", "No round is trained from a model with a wrong checksum."),), corrupted_model),
)
