"""Judges a server: one play of two scripted participants, from GetTerms to RunEnded."""

import secrets
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

import grpc
import numpy as np
from hushgrad.conformance import server_files
from hushgrad.conformance.player import Player, Sealed, Watch, digest_of
from hushgrad.conformance.report import Check, Judgement, Result
from hushgrad.conformance.server_process import ServerProcess
from hushgrad.conformance.stage import StuckError
from hushgrad.experiments.errors import ExperimentError, InputError
from hushgrad.v1 import common_pb2, membership_pb2
from hushgrad.wire import arrays, grid, header
from hushgrad.wire import terms as wire_terms
from hushgrad.wire.errors import ContractError
from hushgrad.wire.terms import Terms

VERSION_SECONDS: Final = 30.0
FOREIGN: Final = "kit-stranger"
ACCEPTED, DUPLICATE = common_pb2.ANSWER_ACCEPTED, common_pb2.ANSWER_DUPLICATE
INVALID, CONFLICT = common_pb2.ANSWER_INVALID, common_pb2.ANSWER_CONFLICT

CHECKS: Final = (
    Check("terms-digest", "terms_digest is the SHA-256 of the terms, and they are consistent."),
    Check("wrong-terms", "A caller with other terms is answered WRONG_TERMS."),
    Check("unknown-participant", "A name that the terms do not admit is answered UNKNOWN_PARTICIPANT."),
    Check("join", "The same join_id gets the same session, and sessions grow."),
    Check("start", "Start gives entry round 0 while participants gather, and a repeat changes nothing."),
    Check("first-answer", "A repeated update gets its first answer, INVALID ones too."),
    Check("conflict", "Other bytes for a known round are CONFLICT, and change nothing."),
    Check("chain-conflict", "A ledger row that contradicts one that was seen is CONFLICT."),
    Check("checksum", "A message with a wrong CRC-32C is BUSY and leaves nothing behind."),
    Check("order", "Rounds are taken in any order."),
    Check("invalid", "Elements of -2^31 and insecure noise are INVALID."),
    Check("window", "Rounds outside the window are TOO_FAR_AHEAD or STALE."),
    Check("upload", "An upload in chunks is resumed where it broke off."),
    Check("stale-session", "An older session is fenced, and Join returns the highest ledger row."),
    Check("versions", "A version is published when every owed round has its disposition, not before."),
    Check("watch", "A watch begins after the version it names, and versions only grow."),
    Check("models", "Every version is, bit for bit, the initial model and its manifests' updates."),
    Check("get-model", "GetModel serves every version from any offset, and NOT_FOUND for others."),
    Check("manifests", "Manifests hold exactly the accepted updates, each once."),
    Check("run-ended", "The last message is RunEnded after the final version; later updates are RUN_ENDED."),
    Check("restart", "After kill -9 repeats get their first answer, and no published version has changed."),
)


def run(
    *, address: str = "", command: Collection[str] = (), only: Collection[str] = (), folder: Path | None = None
) -> list[Result]:
    """Judges a server.

    Args:
        address: host:port of a running server with a fresh federation from `server_files.write`.
        command: starts one instead; it may be killed and started again.
        only: names of checks; the play is always whole.
        folder: with a command: where its files go.

    Raises:
        InputError: if the server's federation is not the kit's, or a check is not known.
        UnreachableError: if no server answers.
    """
    known = {check.name for check in CHECKS}
    if unknown := sorted(set(only) - known):
        raise InputError(f"unknown check {unknown[0]!r}; checks are {', '.join(sorted(known))}")
    began = time.monotonic()
    found = Judgement(CHECKS)
    process = ServerProcess(list(command), folder) if command and folder is not None else None
    try:
        if process is not None:
            process.start()
            address = process.address
        _Play(address, found, process).run()
    except StuckError as stuck:
        found.fail_rest(str(stuck))
    except grpc.RpcError as error:
        found.fail_rest(f"a call failed that must not: {error.code().name} {error.details()}")
    finally:
        if process is not None:
            process.kill()
    results = found.results(time.monotonic() - began)
    return [
        result for result in results if not only or result.name in only or (result.outcome == "fail" and bool(only))
    ]


class UnreachableError(ExperimentError):
    """No server answers."""

    exit_code = 4


class _Play:
    """The play; `one` and `two` are the participants."""

    def __init__(self, address: str, found: Judgement, process: ServerProcess | None) -> None:
        self._found = found
        self._process = process
        self.one, self.two = (Player(address, name) for name in server_files.PARTICIPANTS)
        self.stranger = Player(address, FOREIGN)
        self.accepted: dict[tuple[str, int], Sealed] = {}
        self._address = address
        self._watch: Watch | None = None

    def run(self) -> None:
        """Plays everything, in order."""
        terms = self._meet()
        self._join()
        first = self._first_rounds()
        self._middle(first)
        self._sessions()
        self._restart()
        self._finish()
        self._recompute(terms)

    # Acts.

    def _meet(self) -> Terms:
        try:
            answer = self.one.get_terms()
        except grpc.RpcError as error:
            raise UnreachableError(f"no server answers at {self._address}: {error.code().name}") from None
        digest = wire_terms.digest(answer.terms)
        self._require("terms-digest", answer.terms_digest == digest, "terms_digest is not the SHA-256 of the terms")
        try:
            terms = wire_terms.from_bytes(answer.terms)
        except ContractError as error:
            self._found.fail("terms-digest", f"the terms cannot be accepted: {error}")
            raise StuckError(f"without terms nothing can be played: {error}") from None
        server_files.check(terms)
        for player in (self.one, self.two, self.stranger):
            player.digest, player.terms = digest, terms
        wrong = self.one.join(secrets.token_bytes(16), terms_digest=bytes(32))
        self._expect("wrong-terms", wrong.verdict.answer, common_pb2.ANSWER_WRONG_TERMS, "Join with other terms")
        unknown = self.stranger.join(secrets.token_bytes(16))
        self._expect("unknown-participant", unknown.verdict.answer, common_pb2.ANSWER_UNKNOWN_PARTICIPANT, "Join")
        self.one.session = self.stranger.session = 0
        return terms

    def _join(self) -> None:
        join_id = secrets.token_bytes(16)
        first = self.one.join(join_id)
        if first.ledger.sequence or first.verdict.server.newest_version:
            raise InputError("this federation was used before; make a fresh one, each run of the kit needs its own")
        self._expect("join", first.verdict.answer, ACCEPTED, "Join")
        again = self.one.join(join_id)
        self._require(
            "join",
            again.session == first.session,
            f"the same join_id got session {first.session} first and {again.session} then",
        )
        self.two.join(secrets.token_bytes(16))
        self._watch = self.stranger.watch()
        self._await_version(0)
        assert self.one.terms is not None
        start = self._watch.published[0]
        self._require(
            "watch",
            start.version == 0 and start.sha256 == self.one.terms.initial_model_sha256,
            "a watch that names no version begins with the newest one; version 0 has the digest of the terms",
        )

    def _first_rounds(self) -> list[Sealed]:
        one, two = self.one, self.two
        for _ in range(2):
            started = one.start(0)
            self._expect("start", started.verdict.answer, ACCEPTED, "Start")
            active = started.participation.state == membership_pb2.PARTICIPATION_STATE_ACTIVE
            entry = started.participation.entry_round
            self._require("start", active and entry == 0, f"Start must give ACTIVE and entry round 0, found {entry}")
        sealed = [one.seal(0)]
        accepted = self._submit("first-answer", one, sealed[0])
        two.start(0)
        ahead = [two.seal(0), two.seal(1)]
        self._submit("order", two, ahead[1])
        again = one.submit(sealed[0])
        self._duplicate("first-answer", again, ACCEPTED, "an accepted update sent again")
        self._require(
            "first-answer",
            0 < again.included_in <= accepted.included_in or again.included_in >= accepted.included_in > 0,
            "ACCEPTED and DUPLICATE of it must name included_in",
        )
        other = one.forge(0, ledger_sequence=1, ledger_previous_head=one.heads[0])
        self._expect("conflict", one.submit(other).verdict.answer, CONFLICT, "other bytes for round 0")
        self._duplicate("conflict", one.submit(sealed[0]), ACCEPTED, "the first bytes after a conflict")
        assert one.terms is not None
        smallest = np.full(one.terms.parameters, -(2**31), np.int32)
        sealed += [one.seal(1, elements=smallest), one.seal(2), one.seal(3)]
        early = one.submit(sealed[3]).verdict.answer
        self._expect("window", early, common_pb2.ANSWER_TOO_FAR_AHEAD, "round 3 at version 0 with window 3")
        damaged = two.submit(ahead[0], crc_change=1)
        self._expect("checksum", damaged.verdict.answer, common_pb2.ANSWER_BUSY, "a message with a wrong checksum")
        time.sleep(0.3)
        newest = damaged.verdict.server.newest_version
        self._require("versions", newest == 0, f"version {newest} was published while round 0 of kit-2 was owed")
        self._submit("checksum", two, ahead[0])
        self._await_version(1)
        return sealed

    def _middle(self, sealed: list[Sealed]) -> None:
        one, two = self.one, self.two
        self._submit("window", one, sealed[3])
        refused = one.submit(sealed[1]).verdict.answer
        self._expect("invalid", refused, INVALID, "an update of -2^31")
        self._duplicate("first-answer", one.submit(sealed[1]), INVALID, "an INVALID update sent again")
        self._await_version(2)
        self._upload(sealed[2])
        skipped = two.report_skipped(2)
        self._expect("versions", skipped.verdict.answer, ACCEPTED, "ReportRounds of a skipped round")
        self._await_version(3)
        insecure = two.seal(3, flags=header.FLAG_INSECURE_NOISE)
        self._expect(
            "invalid", two.submit(insecure).verdict.answer, INVALID, "an update with the flag of insecure noise"
        )
        self._await_version(4)

    def _upload(self, sealed: Sealed) -> None:
        broken = self.one.upload(sealed, stop=14)
        self._expect("upload", broken.verdict.answer, common_pb2.ANSWER_BUSY, "an upload that ended early")
        held = self.one.received(sealed).received_bytes
        self._require("upload", held in (0, 14), f"14 bytes were uploaded, GetUpload says {held}")
        whole = self.one.upload(sealed, offset=held)
        self._expect("upload", whole.verdict.answer, ACCEPTED, f"an upload resumed at {held}")
        self.accepted[self.one.name, sealed.round] = sealed

    def _sessions(self) -> None:
        one, two = self.one, self.two
        old = one.session
        joined = one.join(secrets.token_bytes(16))
        self._require("join", one.session > old, f"a new join_id got session {one.session} after {old}")
        seen = joined.ledger
        self._require(
            "stale-session",
            (seen.sequence, seen.head) == (one.sequence, one.head),
            f"Join must return the highest ledger row that was seen, {one.sequence}, found {seen.sequence}",
        )
        sealed = one.seal(4)
        fenced = one.submit(sealed, session=old).verdict.answer
        self._expect("stale-session", fenced, common_pb2.ANSWER_STALE_SESSION, "an update of an older session")
        self._submit("stale-session", one, sealed)
        twisted = two.forge(4, ledger_sequence=1, ledger_previous_head=secrets.token_bytes(32))
        self._expect("chain-conflict", two.submit(twisted).verdict.answer, CONFLICT, "ledger row 1 with another head")
        later, newest = self.stranger.watch(3), self.stranger.watch(4)
        self._require("watch", later.wait(4, VERSION_SECONDS), "a watch after version 3 must send version 4 at once")
        time.sleep(0.5)
        self._require(
            "watch", not newest.published, "a watch after version 4 sent a version before there was a newer one"
        )
        self._submit("versions", two, two.seal(4))
        self._await_version(5)
        self._require("watch", newest.wait(5, VERSION_SECONDS), "a watch after version 4 must send version 5")
        for watch in (later, newest):
            watch.close()

    def _restart(self) -> None:
        if self._process is None:
            self._found.skip("restart", "only a server that the kit starts can be killed: give its command after --")
            return
        one, two = self.one, self.two
        ahead = one.seal(5)
        self._submit("restart", one, ahead)
        before = {version: one.model(version)[0] for version in range(6)}
        self._process.kill()
        self._process.start()
        for player in (one, two, self.stranger):
            player.connect()
        self._watch = self.stranger.watch(4)
        for player in (one, two):
            player.join(secrets.token_bytes(16))
        for (name, round_), sealed in sorted(self.accepted.items()):
            answer = (one if name == one.name else two).submit(sealed)
            word = answer.first_answer if answer.verdict.answer == DUPLICATE else answer.verdict.answer
            self._expect("restart", word, ACCEPTED, f"round {round_} of {name}, accepted before kill -9, sent again")
        for version, model in before.items():
            self._require("restart", one.model(version)[0] == model, f"version {version} changed with a restart")

    def _finish(self) -> None:
        one, two = self.one, self.two
        late = two.forge(2, ledger_sequence=two.sequence + 5)
        for round_ in range(5, 8):
            for player in (one, two):
                if (player.name, round_) not in self.accepted:
                    self._submit("versions", player, player.seal(round_))
            self._await_version(round_ + 1)
            if round_ == 5:
                stale = two.submit(late).verdict.answer
                self._expect("window", stale, common_pb2.ANSWER_STALE, "round 2 at version 6 with window 3")
        assert self._watch is not None
        ended = self._watch.wait_end(VERSION_SECONDS)
        self._require("run-ended", ended, "RunEnded must be the last message of a watch")
        if ended:
            self._require("run-ended", self._watch.ended.final_version == 8, "RunEnded must name the final version 8")
        versions = [one.version for one in self._watch.published]
        self._require("watch", versions == sorted(set(versions)), f"versions in a watch must grow, found {versions}")
        over = two.submit(late).verdict.answer
        self._expect("run-ended", over, common_pb2.ANSWER_RUN_ENDED, "an update after the end")

    def _recompute(self, terms: Terms) -> None:
        stranger = self.stranger
        g, p = terms.grid_exponent, terms.step_exponent
        specs = list(terms.arrays)
        initial, digest = stranger.model(0)
        self._require(
            "get-model", digest == digest_of(initial), "version 0 does not have the SHA-256 that came with it"
        )
        vector = np.frombuffer(initial, "<f4").astype(np.float32)
        assert len(vector) == sum(spec.size for spec in specs if isinstance(spec, arrays.ArraySpec))
        total = grid.initial_array(vector, grid_exponent=g, step_exponent=p)
        included: list[tuple[str, int]] = []
        for version in range(1, terms.final_version + 1):
            for entry in stranger.manifest(version).entries:
                key = (entry.participant, entry.round)
                sealed = self.accepted.get(key)
                if sealed is None or sealed.digest != entry.digest:
                    self._found.fail(
                        "manifests", f"version {version} names round {key[1]} of {key[0]}, which was not accepted"
                    )
                    continue
                included.append(key)
                total -= terms.step_numerator(key[1]) * sealed.update
            model, digest = stranger.model(version)
            expected = grid.published_model(total, grid_exponent=g, step_exponent=p).astype("<f4").tobytes()
            self._require(
                "models", model == expected, f"version {version} is not the initial model and its manifests' updates"
            )
            self._require(
                "get-model", digest == digest_of(model), f"version {version} has another SHA-256 than it says"
            )
            tail, _ = stranger.model(version, offset=8)
            self._require("get-model", tail == model[8:], f"version {version} from offset 8 is not the rest of it")
        missing = sorted(set(self.accepted) - set(included))
        self._require("manifests", len(included) == len(set(included)), "an update is in two manifests")
        self._require(
            "manifests", not missing, f"accepted updates are in no version: {missing[:1]} and {len(missing)} in all"
        )
        try:
            stranger.model(99)
            self._found.fail("get-model", "version 99 does not exist, and GetModel found it")
        except grpc.RpcError as error:
            self._require(
                "get-model",
                error.code() == grpc.StatusCode.NOT_FOUND,
                f"GetModel of version 99 must be NOT_FOUND, found {error.code().name}",
            )

    # Words.

    def _submit(self, name: str, player: Player, sealed: Sealed) -> Any:
        answer = player.submit(sealed)
        for _ in range(20):
            if answer.verdict.answer != common_pb2.ANSWER_BUSY:
                break
            time.sleep(min(answer.verdict.retry_after_milliseconds / 1000 or 0.2, 2.0))
            answer = player.submit(sealed)
        self._expect(name, answer.verdict.answer, ACCEPTED, f"round {sealed.round} of {player.name}")
        self.accepted[player.name, sealed.round] = sealed
        return answer

    def _duplicate(self, name: str, answer: Any, first: int, what: str) -> None:
        self._expect(name, answer.verdict.answer, DUPLICATE, what)
        self._expect(name, answer.first_answer, first, f"{what}, as first_answer")

    def _expect(self, name: str, found: int, wanted: int, what: str) -> None:
        shown = [common_pb2.Answer.Name(word).removeprefix("ANSWER_") for word in (wanted, found)]
        self._require(name, found == wanted, f"{what} must be answered {shown[0]}, found {shown[1]}")

    def _require(self, name: str, condition: bool, why: str) -> None:
        self._found.require(name, condition, why)

    def _await_version(self, version: int) -> None:
        assert self._watch is not None
        if not self._watch.wait(version, VERSION_SECONDS):
            self._found.fail(
                "versions",
                f"version {version} was due, every owed round below it has its disposition, and it was not published",
            )
            raise StuckError(f"version {version} did not come within {VERSION_SECONDS:g} seconds")
