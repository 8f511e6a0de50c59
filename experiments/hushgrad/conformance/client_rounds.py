"""Scenarios about the plain course of a run: what every update and call looks like, and a suspension."""

from hushgrad.conformance import judge, world
from hushgrad.conformance.report import Check, Judgement
from hushgrad.conformance.scripted import Reply, Submission
from hushgrad.conformance.stage import Kit, Scenario, Stage, StuckError, stage
from hushgrad.v1 import membership_pb2


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
    found.complain("header", judge.first(judge.layout(one, federation, digest) for one in sent))
    found.complain("secure-flag", judge.first(map(judge.flags, sent)))
    found.complain("payload", judge.first(judge.payload(one, federation) for one in sent))
    found.complain("checksum", judge.first(map(judge.checksum, sent)))
    found.complain("caller", judge.first(judge.caller(one, digest, 1) for one in sent))
    found.complain("chain", judge.chain(sent))
    found.complain("life", _order_of_life(on))
    late = [one.round for one in sent if one.round >= 6]
    found.complain("final-version", f"round {late[0]} was begun, the final version is 6" if late else wrong)


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
        found.complain("suspended", on.finish([0]))


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
    Scenario((Check("suspended", "After a suspension no round is begun before Start."),), suspended),
)
