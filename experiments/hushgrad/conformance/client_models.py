"""Scenarios about models: which one a round may begin with, and which ones are ignored."""

import hashlib
from functools import partial

from hushgrad.conformance import world
from hushgrad.conformance.report import Check, Judgement
from hushgrad.conformance.scripted import Reply, Submission
from hushgrad.conformance.stage import Kit, Scenario, Stage, StuckError, stage


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
            found.complain("older-models", _backwards(on) or f"with older versions arriving after newer ones, {stuck}")
            return
        server.publish(12)
        server.end()
        if not _readable(on, found, "older-models"):
            return
        found.complain("older-models", _backwards(on) or on.finish([0]))


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
        found.complain(name, on.finish([0]))


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
        found.complain("delay-sqrt", on.finish([0]))


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


SCENARIOS = (
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
    Scenario((Check("model-checksum", "No round is trained from a model with a wrong checksum."),), corrupted_model),
)
