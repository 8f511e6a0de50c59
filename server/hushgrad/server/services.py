"""The gRPC services for terms, membership and status: messages in, one call on the host, messages out.

Contains no protocol decision; refuses malformed requests before they reach the host. Updates are in `update_service`,
models in `model_service`.
"""

import asyncio
import time

import grpc
from hushgrad.server import border, declarations, scoring
from hushgrad.server.border import Context
from hushgrad.server.federation import Outcome
from hushgrad.server.host import Host
from hushgrad.server.records import MAX_REPORTS, Answer, DeclaredClaim, Score
from hushgrad.server.watch import Publisher
from hushgrad.v1 import (
    membership_pb2,
    membership_pb2_grpc,
    status_pb2,
    status_pb2_grpc,
    terms_pb2,
    terms_pb2_grpc,
)
from hushgrad.wire.errors import ContractError
from hushgrad.wire.terms import Terms

_FATES = {
    membership_pb2.RoundReport.FATE_SKIPPED: "skipped",
    membership_pb2.RoundReport.FATE_VOID: "void",
    membership_pb2.RoundReport.FATE_HELD: "held",
}


class Gate:
    """Says whether calls are still taken, and when the last one came.

    Attributes:
        is_open: false from the moment the server stops.
        last_call_at: in the event loop's seconds.
    """

    def __init__(self) -> None:
        self.is_open = True
        self._time = asyncio.get_running_loop().time
        self.last_call_at = self._time()

    def touch(self) -> None:
        """Notes that a call makes progress."""
        self.last_call_at = self._time()

    async def enter(self, context: Context) -> None:
        """Notes a call, or ends it when the server is stopping."""
        self.touch()
        if not self.is_open:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the server is stopping; try again later")


class TermsService(terms_pb2_grpc.TermsServiceServicer):
    """See TermsService in terms.proto."""

    def __init__(self, terms_bytes: bytes, terms_digest: bytes, publisher: Publisher, gate: Gate) -> None:
        self._terms_bytes = terms_bytes
        self._terms_digest = terms_digest
        self._publisher = publisher
        self._gate = gate

    async def GetTerms(self, request: terms_pb2.GetTermsRequest, context: Context) -> terms_pb2.GetTermsResponse:  # noqa: N802
        """Returns the terms, byte for byte as they were made."""
        await self._gate.enter(context)
        return terms_pb2.GetTermsResponse(
            server=self._publisher.state, terms=self._terms_bytes, terms_digest=self._terms_digest
        )


class MembershipService(membership_pb2_grpc.MembershipServiceServicer):
    """See MembershipService in membership.proto."""

    def __init__(self, host: Host, terms: Terms, publisher: Publisher, gate: Gate) -> None:
        self._host = host
        self._final_version = terms.final_version
        self._publisher = publisher
        self._gate = gate

    async def Join(self, request: membership_pb2.JoinRequest, context: Context) -> membership_pb2.JoinResponse:  # noqa: N802
        """Opens a session."""
        await self._gate.enter(context)
        caller = await border.read_caller(request.caller, context)
        if len(request.join_id) != 16:
            await border.refuse(context, f"join_id must be 16 bytes, found {len(request.join_id)}")
        outcome = await border.answered(self._host.join(caller, request.join_id), context)
        return membership_pb2.JoinResponse(
            verdict=border.verdict(outcome, self._publisher),
            session=outcome.session,
            participation=border.participation(outcome.participation),
            ledger={"sequence": outcome.sequence, "head": outcome.head},
        )

    async def Start(self, request: membership_pb2.StartRequest, context: Context) -> membership_pb2.StartResponse:  # noqa: N802
        """Makes the caller active."""
        await self._gate.enter(context)
        caller = await border.read_caller(request.caller, context)
        declared = await self._declared(request, context)
        next_round = self._clamped(request.next_round)
        outcome = await border.answered(self._host.start(caller, next_round, declared), context)
        return membership_pb2.StartResponse(
            verdict=border.verdict(outcome, self._publisher), participation=border.participation(outcome.participation)
        )

    async def Observe(  # noqa: N802
        self, request: membership_pb2.ObserveRequest, context: Context
    ) -> membership_pb2.ObserveResponse:
        """Lets the caller owe nothing from a round on."""
        await self._gate.enter(context)
        caller = await border.read_caller(request.caller, context)
        outcome = await border.answered(self._host.observe(caller, self._clamped(request.exit_round)), context)
        return membership_pb2.ObserveResponse(
            verdict=border.verdict(outcome, self._publisher), participation=border.participation(outcome.participation)
        )

    async def Leave(self, request: membership_pb2.LeaveRequest, context: Context) -> membership_pb2.LeaveResponse:  # noqa: N802
        """Lets the caller go."""
        await self._gate.enter(context)
        caller = await border.read_caller(request.caller, context)
        outcome = await border.answered(self._host.leave(caller, self._clamped(request.exit_round)), context)
        return membership_pb2.LeaveResponse(
            verdict=border.verdict(outcome, self._publisher), participation=border.participation(outcome.participation)
        )

    async def GetParticipation(  # noqa: N802
        self, request: membership_pb2.GetParticipationRequest, context: Context
    ) -> membership_pb2.GetParticipationResponse:
        """Tells the caller how it is seen."""
        await self._gate.enter(context)
        caller = await border.read_caller(request.caller, context)
        outcome = await border.answered(self._host.participation(caller), context)
        return membership_pb2.GetParticipationResponse(
            verdict=border.verdict(outcome, self._publisher), participation=border.participation(outcome.participation)
        )

    async def ReportRounds(  # noqa: N802
        self, request: membership_pb2.ReportRoundsRequest, context: Context
    ) -> membership_pb2.ReportRoundsResponse:
        """Takes the caller's word on rounds."""
        await self._gate.enter(context)
        caller = await border.read_caller(request.caller, context)
        if len(request.reports) > MAX_REPORTS:
            await border.refuse(context, f"reports must be at most {MAX_REPORTS}, found {len(request.reports)}")
        reports = [
            await self._report(f"reports[{place}]", report, context) for place, report in enumerate(request.reports)
        ]
        held_range = None
        if request.HasField("held_below"):
            held_range = range(self._clamped(request.held_from), self._clamped(request.held_below))
        outcome = await border.answered(self._host.report(caller, reports, held_range), context)
        return membership_pb2.ReportRoundsResponse(
            verdict=border.verdict(outcome, self._publisher), participation=border.participation(outcome.participation)
        )

    async def _report(self, path: str, report: membership_pb2.RoundReport, context: Context) -> tuple[int, str, bytes]:
        fate = _FATES.get(report.fate)
        if fate is None:
            await border.refuse(context, f"{path}.fate must be skipped, void or held, found {report.fate}")
        if report.round >= self._final_version:
            await border.refuse(context, f"{path}.round must be below {self._final_version}, found {report.round}")
        if fate == "held":
            await border.read_digest(report.digest, f"{path}.digest", context)
        return report.round, fate, report.digest

    async def _declared(self, request: membership_pb2.StartRequest, context: Context) -> DeclaredClaim | None:
        if not request.HasField("claim"):
            return None
        try:
            return declarations.claim(request.claim)
        except ContractError as error:
            await border.refuse(context, str(error))

    def _clamped(self, round_: int) -> int:
        return min(round_, self._final_version)


class StatusService(status_pb2_grpc.StatusServiceServicer):
    """See StatusService in status.proto."""

    def __init__(
        self, host: Host, terms: Terms, terms_digest: bytes, publisher: Publisher, *, has_tls: bool = False
    ) -> None:
        self._host = host
        self._terms = terms
        self._terms_digest = terms_digest
        self._publisher = publisher
        self._has_tls = has_tls
        self._time = asyncio.get_running_loop().time
        self._started_at = self._time()

    async def GetStatus(self, request: status_pb2.GetStatusRequest, context: Context) -> status_pb2.GetStatusResponse:  # noqa: N802
        """Returns a snapshot."""
        federation = self._host.federation
        if federation.has_ended:
            phase = status_pb2.PHASE_ENDED
        else:
            phase = status_pb2.PHASE_GATHERING if federation.is_gathering else status_pb2.PHASE_RUNNING
        return status_pb2.GetStatusResponse(
            server=self._publisher.state,
            federation=self._terms.federation,
            terms_digest=self._terms_digest,
            phase=phase,
            final_version=federation.final_version,
            waiting_for=federation.waiting_for(),
            participants=[
                status_pb2.ParticipantStatus(
                    participant=participant.name,
                    participation=border.participation(federation.view(participant)),
                    next_owed_round=participant.next_owed_round,
                    rounds_received=participant.rounds_received,
                    updates_accepted=participant.accepted,
                    updates_duplicate=participant.duplicates,
                    updates_invalid=participant.invalid,
                    rounds_without_update=participant.without_update,
                    rounds_lost=participant.lost,
                    updates_flagged=participant.flagged,
                )
                for participant in federation.participants
            ],
            uptime_seconds=self._time() - self._started_at,
            watchers=self._publisher.watchers,
            is_paused=federation.administration.paused_by is not None,
            is_draining=federation.orders.is_draining,
            scores=[
                status_pb2.EvaluationScore(
                    evaluator=score.evaluator,
                    version=score.version,
                    accuracy=score.accuracy,
                    averaged_accuracy=score.averaged_accuracy,
                    examples=score.examples,
                )
                for score in self._host.scoreboard.scores
            ],
        )

    async def ReportEvaluation(  # noqa: N802
        self, request: status_pb2.ReportEvaluationRequest, context: Context
    ) -> status_pb2.ReportEvaluationResponse:
        """Takes a score, durably."""
        if self._has_tls and border.certificate_of(context) is None:
            # The listener for people at the machine knows nobody's role.
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "scores are reported where certificates are shown")
        caller = await border.read_caller(request.caller, context)
        newest = self._publisher.state.newest_version
        try:
            declarations.check_score(request, newest)
        except ContractError as error:
            await border.refuse(context, str(error))
        if caller.terms_digest != self._terms_digest:
            wrong = Outcome(Answer.WRONG_TERMS, "the score is of another federation; compare the address")
            return status_pb2.ReportEvaluationResponse(verdict=border.verdict(wrong, self._publisher))
        if not self._host.scoreboard.has_room_for(caller.participant):
            await border.refuse(context, f"{scoring.MOST_EVALUATORS} evaluators have reported scores, there is no room")
        score = Score(
            evaluator=caller.participant,
            version=request.version,
            accuracy=request.accuracy,
            averaged_accuracy=request.averaged_accuracy if request.HasField("averaged_accuracy") else None,
            examples=request.examples,
            reported_at=time.time(),
        )
        await border.answered(self._host.scored(score), context)
        taken = Outcome(Answer.ACCEPTED)
        return status_pb2.ReportEvaluationResponse(verdict=border.verdict(taken, self._publisher))
