"""Scenarios about answers: what a client does on each of them, and what it refuses before it sends anything."""

import secrets
import shutil
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import grpc
from hushgrad.conformance import judge, world
from hushgrad.conformance.report import Check, Judgement
from hushgrad.conformance.scripted import Reply, Server, Submission
from hushgrad.conformance.stage import Kit, Scenario, Stage, StuckError, stage
from hushgrad.v1 import common_pb2, membership_pb2, terms_pb2
from hushgrad.wire import terms as wire_terms
from hushgrad.wire.grid import INT32_MAX
from hushgrad.wire.terms import Limits

BUDGET_EXIT: Final = 3
CONFLICT_EXIT: Final = 5
BUSY_SECONDS: Final = 1.2


def busy(kit: Kit, found: Judgement) -> None:
    """BUSY to Join and to round 1, with a time to wait."""
    with stage(kit, world.beacons(rounds=3)) as on:
        server = on.server

        def join(request: Any) -> Reply:
            if len(server.called("Join")) > 1:
                return None
            return membership_pb2.JoinResponse(verdict=_busy(server))

        def reply(submission: Submission) -> Reply:
            if submission.round == 1 and len(server.of_round(1)) == 1:
                return server.answer(common_pb2.ANSWER_BUSY, retry_after_milliseconds=int(1000 * BUSY_SECONDS))
            return None

        server.on_call["Join"] = join
        server.on_submit = reply
        on.start()
        try:
            on.until_round(1, 2)
        except StuckError as stuck:
            found.fail("busy", f"after BUSY, {stuck}")
            return
        joins = [call.at for call in server.called("Join")]
        submits = [one.at for one in server.of_round(1)]
        for what, times in (("Join", joins), ("round 1", submits)):
            waited = times[1] - times[0]
            found.require(
                "busy",
                waited >= 0.95 * BUSY_SECONDS,
                f"{what} was sent again {waited:.2f} s after BUSY with retry_after {BUSY_SECONDS} s",
            )
        on.until_round(2)
        server.end()
        found.complain("busy", judge.same_bytes(server.submissions, "after BUSY") or on.finish([0]))


def _busy(server: Server) -> Any:
    return server.verdict(common_pb2.ANSWER_BUSY, retry_after_milliseconds=int(1000 * BUSY_SECONDS))


def too_far_ahead(kit: Kit, found: Judgement) -> None:
    """Round 1 is answered TOO_FAR_AHEAD; later ones, if they come, are accepted. Then a newer version arrives."""
    with stage(kit, world.beacons(rounds=7, max_delay=3, window=4)) as on:
        server = on.server
        server.publishing = False

        def reply(submission: Submission) -> Reply:
            if submission.round == 1 and server.newest == 0:
                return server.answer(common_pb2.ANSWER_TOO_FAR_AHEAD)
            return None

        server.on_submit = reply
        on.start()
        on.until_round(1)
        on.listen()
        times = len(server.of_round(1))
        found.complain(
            "too-far-ahead",
            f"round 1 was sent {times} times before a newer version had arrived" if times > 1 else None,
        )
        later = sorted({round_ for round_ in server.rounds() if round_ > 1})
        server.publish(1)
        try:
            on.until_round(1, times + 1)
        except StuckError:
            if later:
                found.fail(
                    "set-of-rounds",
                    f"round {later[0]} was accepted, and round 1, which was not, was never sent again: acceptance is a "
                    "set of rounds, not a high-water mark",
                )
            else:
                found.fail("too-far-ahead", "round 1 was never sent again after a newer version had arrived")
                found.skip("set-of-rounds", "the client stopped sending")
            return
        if not later:
            found.skip("set-of-rounds", "this client never has a later round accepted while an earlier one is open")
        server.settle()
        on.until_round(6)
        server.end()
        wrong = judge.same_bytes(server.submissions, "after TOO_FAR_AHEAD") or on.finish([0])
        found.complain("too-far-ahead", wrong)


def refused(kit: Kit, found: Judgement) -> None:
    """Round 1 is INVALID, round 2 STALE, round 3 a DUPLICATE of an INVALID one."""
    words = {1: common_pb2.ANSWER_INVALID, 2: common_pb2.ANSWER_STALE, 3: common_pb2.ANSWER_DUPLICATE}
    with stage(kit, world.beacons(rounds=7)) as on:
        server = on.server

        def reply(submission: Submission) -> Reply:
            word = words.get(submission.round)
            if word is None:
                return None
            server.remember(submission, word)
            return server.answer(word, first_answer=common_pb2.ANSWER_INVALID if submission.round == 3 else 0)

        server.on_submit = reply
        on.start()
        repeated = lambda: any(len(server.of_round(round_)) > 1 for round_ in words)  # noqa: E731
        stuck = ""
        try:
            on.until(lambda: 6 in server.rounds() or repeated(), "round 6 must be sent")
        except StuckError as error:
            stuck = f"after single refused rounds, {error}"
        on.listen(0.3)
        server.end()
        for round_, word in words.items():
            times = len(server.of_round(round_))
            name = "DUPLICATE of INVALID" if round_ == 3 else common_pb2.Answer.Name(word).removeprefix("ANSWER_")
            found.require(
                "refused-rounds", times <= 1, f"round {round_} was answered {name} and was sent {times} times"
            )
        found.complain("refused-rounds", stuck or on.finish([0], unless=repeated))


def halting_submit(name: str, word: int, kit: Kit, found: Judgement) -> None:
    """Round 1 is answered with a word that ends everything."""
    with stage(kit, world.beacons(rounds=8)) as on:
        server = on.server
        server.on_submit = lambda one: server.answer(word) if one.round == 1 else None
        on.start()
        on.until_round(1)
        wrong = on.finish([CONFLICT_EXIT])
        said = common_pb2.Answer.Name(word).removeprefix("ANSWER_")
        after = server.submissions[server.rounds().index(1) + 1 :]
        if after:
            wrong = f"round {after[0].round} was sent after {said}; the client must stop at once"
        found.complain(name, f"after {said}, {wrong}" if wrong and not after else wrong)


def halting_join(name: str, word: int, kit: Kit, found: Judgement) -> None:
    """Join is answered with a word that ends everything."""
    with stage(kit, world.beacons(rounds=8)) as on:
        server = on.server
        server.on_call["Join"] = lambda request: membership_pb2.JoinResponse(verdict=server.verdict(word))
        on.start()
        said = common_pb2.Answer.Name(word).removeprefix("ANSWER_")
        _refuses(on, found, name, [CONFLICT_EXIT], f"Join was answered {said}")


def fatal_fault(kit: Kit, found: Judgement) -> None:
    """Round 1 meets a status that repeating cannot help."""
    with stage(kit, world.beacons(rounds=8)) as on:
        server = on.server
        server.on_submit = lambda one: grpc.StatusCode.INVALID_ARGUMENT if one.round == 1 else None
        on.start()
        on.until_round(1)
        wrong = on.finish(range(1, 256))
        after = server.submissions[server.rounds().index(1) + 1 :]
        if after:
            wrong = f"round {after[0].round} was sent after INVALID_ARGUMENT; repeating does not help, stop"
        found.complain("fatal-fault", wrong and f"after INVALID_ARGUMENT, {wrong}" if not after else wrong)


def run_ended(kit: Kit, found: Judgement) -> None:
    """An operator ends the federation: round 3 of 40 is answered RUN_ENDED, newer versions come, then the last word."""
    with stage(kit, world.beacons(rounds=40)) as on:
        server = on.server
        server.on_submit = lambda one: server.answer(common_pb2.ANSWER_RUN_ENDED) if one.round >= 3 else None
        on.start()
        on.until_round(3)
        on.listen(0.3)
        begun = max(server.rounds())
        for version in (4, 5, 6):
            server.publish(version)
            on.listen(0.3)
        # Round 4 was permitted at version 3 and may have been sealed before the answer was read.
        late = [round_ for round_ in server.rounds() if round_ > max(begun, 4)]
        server.end()
        wrong = f"round {late[0]} was begun after RUN_ENDED" if late else None
        found.complain("run-ended", wrong or on.finish([0]))


def budget(kit: Kit, found: Judgement) -> None:
    """The run costs a hundred times what HUSHGRAD_PRIVACY allows."""
    with stage(kit, world.beacons(rounds=60, epsilon=0.05)) as on:
        on.start()
        _refuses(on, found, "budget", [BUDGET_EXIT], "the run costs more than epsilon = 0.05")


def anchor(kit: Kit, found: Judgement) -> None:
    """The server has seen row 5 of a ledger that is empty."""
    with stage(kit, world.beacons()) as on:
        on.server.anchor = (5, secrets.token_bytes(32))
        on.start()
        _refuses(on, found, "ledger-anchor", [CONFLICT_EXIT], "the server has seen row 5 of another ledger")


def terms_digest(kit: Kit, found: Judgement) -> None:
    """terms_digest is not the digest of the terms."""
    with stage(kit, world.beacons()) as on:
        server = on.server
        server.on_call["GetTerms"] = lambda request: terms_pb2.GetTermsResponse(
            server=server.server_state(), terms=server.terms_bytes, terms_digest=bytes(32)
        )
        on.start()
        _refuses(on, found, "terms-digest", range(1, 256), "terms_digest was not the SHA-256 of the terms")


def offered_privacy(kit: Kit, found: Judgement) -> None:
    """The terms allow only noise multipliers that HUSHGRAD_PRIVACY does not name."""
    with stage(kit, world.beacons(privacy={"noise_multiplier_min": 3.0})) as on:
        on.start()
        _refuses(
            on, found, "privacy-terms", range(1, 256), "the terms allow noise multipliers 3 to 4, the client's is 2"
        )


def pinned_terms(kit: Kit, found: Judgement) -> None:
    """The same state folder meets another federation."""
    with stage(kit, world.beacons(rounds=5)) as on:
        on.start()
        on.until_round(1)
        on.kill()
        state = on.state.parent / "kept"
        shutil.copytree(on.state, state)
        # Lock files and absolute paths may name the folder: the second federation is met in the very same one.
        with stage(kit, world.beacons(rounds=6), state=on.state) as other:
            other.start()
            _refuses(other, found, "pinned-terms", [CONFLICT_EXIT], "the terms are not those pinned in the ledger")


def limits(kit: Kit, found: Judgement) -> None:
    """An update is larger than a unary message may be."""
    with stage(kit, world.beacons(rounds=3, limits=Limits(max_unary_bytes=16))) as on:
        server = on.server
        on.start()
        on.until(lambda: bool(server.submissions), "an update must be uploaded", exit_allowed=True)
        if not server.submissions:
            found.skip("limits", f"the client does not upload and stops cleanly: {on.ending()}")
            return
        unary = [one for one in server.submissions if not one.streamed]
        if unary:
            found.fail(
                "limits", f"SubmitUpdate carried {len(unary[0].payload)} bytes, the limit is 16; use UploadUpdate"
            )
            return
        on.until_round(2)
        server.end()
        wrong = judge.first(judge.layout(one, server.federation, server.digest) for one in server.submissions)
        found.complain("limits", wrong or on.finish([0]))


def saturation(kit: Kit, found: Judgement) -> None:
    """The grid is so fine that sums of 100 clipped gradients do not fit into 32 bits. Such terms may be refused."""
    federation = world.beacons(rounds=3, sample_size=500)
    everything = lambda version: world.beacon_model(15 if version else 0)  # noqa: E731
    with stage(kit, federation, everything) as on:
        server = on.server
        message = terms_pb2.Terms.FromString(server.terms_bytes)
        message.grid_exponent = -26
        server.terms_bytes = message.SerializeToString(deterministic=True)
        server.digest = wire_terms.digest(server.terms_bytes)
        server.newest = 1
        on.start()
        on.until(lambda: bool(server.submissions), "an update must be sent", exit_allowed=True)
        if not server.submissions:
            refused_ = on.process.exit_code != 0
            found.complain("saturation", None if refused_ else "the client ended with 0 and sent nothing")
            return
        update = server.submissions[0].update(federation.terms.parameters)
        shown = None if update is None else update[: world.BITS].tolist()
        right = update is not None and (update[: world.BITS] == INT32_MAX).all()
        found.require(
            "saturation", bool(right), f"sums beyond 2^31 must saturate at {INT32_MAX}, the payload holds {shown}"
        )


def _refuses(on: Stage, found: Judgement, name: str, codes: Any, why: str) -> None:
    wrong = on.finish(codes, unless=lambda: bool(on.server.submissions))
    sent = on.server.submissions
    if sent:
        found.fail(name, f"{why}, and round {sent[0].round} was sent all the same")
    elif wrong:
        found.fail(name, f"{why}: {wrong}")


def _one(name: str, promise: str, play: Callable[[Kit, Judgement], None]) -> Scenario:
    return Scenario((Check(name, promise),), play)


SCENARIOS = (
    _one("busy", "After BUSY nothing is sent again before retry_after has passed, and then the same bytes.", busy),
    Scenario(
        (
            Check("too-far-ahead", "After TOO_FAR_AHEAD the same bytes are sent again, after a newer version arrived."),
            Check("set-of-rounds", "An accepted round says nothing about earlier ones."),
        ),
        too_far_ahead,
    ),
    _one("refused-rounds", "INVALID and STALE rounds are never sent again, and the run goes on.", refused),
    _one(
        "conflict", "After CONFLICT the client stops with 5.",
        partial(halting_submit, "conflict", common_pb2.ANSWER_CONFLICT),
    ),
    _one(
        "stale-session", "After STALE_SESSION the client stops with 5 and does not join again.",
        partial(halting_submit, "stale-session", common_pb2.ANSWER_STALE_SESSION),
    ),
    _one(
        "wrong-terms", "After WRONG_TERMS the client stops with 5.",
        partial(halting_join, "wrong-terms", common_pb2.ANSWER_WRONG_TERMS),
    ),
    _one(
        "unknown-participant", "After UNKNOWN_PARTICIPANT the client stops with 5.",
        partial(halting_join, "unknown-participant", common_pb2.ANSWER_UNKNOWN_PARTICIPANT),
    ),
    _one("fatal-fault", "After a status that repeating does not help, the client stops.", fatal_fault),
    _one("run-ended", "After RUN_ENDED no round is begun, and the end is exit code 0.", run_ended),
    _one("budget", "A run that costs more than the budget is refused with 3 before anything is sent.", budget),
    _one("ledger-anchor", "When the server knows another ledger, nothing is sent: exit 5.", anchor),
    _one("terms-digest", "Terms with a wrong digest are refused.", terms_digest),
    _one("privacy-terms", "Terms that do not allow the client's noise are refused.", offered_privacy),
    _one("pinned-terms", "A ledger serves no federation but its own: exit 5.", pinned_terms),
    _one("limits", "Payloads above max_unary_bytes are uploaded in chunks.", limits),
    _one("saturation", "Sums that do not fit saturate at 2^31 - 1, or such terms are refused.", saturation),
)  # fmt: skip
