"""The gRPC service for orders of operators: messages in, one order on the host, messages out.

Contains no decision; refuses malformed requests before they reach the host. Who may call is decided at the door: the
service is registered only where every caller is an operator, or at this machine.
"""

import time
from collections.abc import Callable, Iterable
from typing import Final

from hushgrad.server import border
from hushgrad.server import config as config_module
from hushgrad.server.administration import LOOPBACK, Order, Ruling
from hushgrad.server.border import Context
from hushgrad.server.host import Host
from hushgrad.server.orders import Orders
from hushgrad.server.records import Act, Answer
from hushgrad.server.services import Gate
from hushgrad.server.watch import Publisher
from hushgrad.v1 import admin_pb2, admin_pb2_grpc, common_pb2
from hushgrad.wire import names
from hushgrad.wire.errors import ContractError

MOST_ACTS: Final = 1000
"""So many rows of the log at most are sent in one answer."""

_MOST_REASON: Final = 500
_REQUEST_ID_BYTES: Final = 16


def is_served_on(listen: str, *, has_tls: bool) -> bool:
    """Says whether a listener may take orders: with mutual TLS, or on loopback."""
    return has_tls or config_module.is_loopback(config_module.split_address(listen)[0])


class AdministrationService(admin_pb2_grpc.AdministrationServiceServicer):
    """See AdministrationService in admin.proto."""

    def __init__(self, host: Host, publisher: Publisher, gate: Gate, clock: Callable[[], float] = time.time) -> None:
        """Args: clock is seconds since 1970, for the log."""
        self._host = host
        self._publisher = publisher
        self._gate = gate
        self._clock = clock

    async def Pause(self, request: admin_pb2.PauseRequest, context: Context) -> admin_pb2.PauseResponse:  # noqa: N802
        """Stops the making of versions."""
        order = await self._order(request.order, context)
        ruling = await self._given(lambda orders, _: orders.pause(order), context)
        return admin_pb2.PauseResponse(
            verdict=self._verdict(ruling), standing=self._standing(), act=self._act(ruling.act)
        )

    async def Resume(self, request: admin_pb2.ResumeRequest, context: Context) -> admin_pb2.ResumeResponse:  # noqa: N802
        """Goes on after a pause."""
        order = await self._order(request.order, context)
        ruling = await self._given(lambda orders, now: orders.resume(order, now), context)
        return admin_pb2.ResumeResponse(
            verdict=self._verdict(ruling), standing=self._standing(), act=self._act(ruling.act)
        )

    async def Evict(self, request: admin_pb2.EvictRequest, context: Context) -> admin_pb2.EvictResponse:  # noqa: N802
        """Lets nobody wait for a participant any more."""
        order = await self._order(request.order, context)
        name = request.participant
        try:
            if name or not request.vacant_seat:
                names.check_name(name, what="participant")
        except ContractError as error:
            await border.refuse(context, str(error))
        ruling = await self._given(lambda orders, now: orders.evict(order, name, now), context)
        return admin_pb2.EvictResponse(
            verdict=self._verdict(ruling), standing=self._standing(), act=self._act(ruling.act)
        )

    async def End(self, request: admin_pb2.EndRequest, context: Context) -> admin_pb2.EndResponse:  # noqa: N802
        """Ends the federation before its terms do."""
        order = await self._order(request.order, context)
        final_version = request.final_version if request.HasField("final_version") else None
        ruling = await self._given(lambda orders, now: orders.end(order, final_version, now), context)
        return admin_pb2.EndResponse(
            verdict=self._verdict(ruling), standing=self._standing(), act=self._act(ruling.act)
        )

    async def Drain(self, request: admin_pb2.DrainRequest, context: Context) -> admin_pb2.DrainResponse:  # noqa: N802
        """Lets this process stop after the next version."""
        order = await self._order(request.order, context)
        ruling = await self._given(lambda orders, _: orders.drain(order), context)
        return admin_pb2.DrainResponse(
            verdict=self._verdict(ruling), standing=self._standing(), act=self._act(ruling.act)
        )

    async def GetAdministration(  # noqa: N802
        self, request: admin_pb2.GetAdministrationRequest, context: Context
    ) -> admin_pb2.GetAdministrationResponse:
        """Tells how the orders stand, and lists the log."""
        await self._gate.enter(context)
        # What is not durable yet is waited for, so that nothing is told that a crash could undo.
        await border.answered(self._host.barrier(), context)
        acts = self._host.federation.administration.acts
        size = min(request.page_size or MOST_ACTS, MOST_ACTS)
        page = acts[request.after_id : request.after_id + size]
        return admin_pb2.GetAdministrationResponse(
            verdict=self._verdict(Ruling(Answer.ACCEPTED)),
            standing=self._standing(),
            acts=self._listed(page, request.after_id + 1),
            last_id=len(acts),
        )

    async def _order(self, order: admin_pb2.Order, context: Context) -> Order:
        await self._gate.enter(context)
        certificate = border.certificate_of(context)
        who = LOOPBACK if certificate is None else certificate.identity.name
        if len(order.request_id) != _REQUEST_ID_BYTES:
            await border.refuse(
                context, f"order.request_id must be {_REQUEST_ID_BYTES} bytes, found {len(order.request_id)}"
            )
        if len(order.reason) > _MOST_REASON or not order.reason.isprintable():
            await border.refuse(
                context, f"order.reason must be at most {_MOST_REASON} characters without control characters"
            )
        return Order(self._clock(), who, order.request_id, order.reason)

    async def _given(self, give: Callable[[Orders, float], Ruling], context: Context) -> Ruling:
        return await border.answered(self._host.order(give), context)

    def _verdict(self, ruling: Ruling) -> common_pb2.Verdict:
        return common_pb2.Verdict(
            answer=int(ruling.answer),  # type: ignore[arg-type]
            detail=ruling.detail,
            server=self._publisher.state,
        )

    def _standing(self) -> admin_pb2.Standing:
        federation = self._host.federation
        administration = federation.administration
        return admin_pb2.Standing(
            paused_by=self._act(administration.paused_by),
            final_version=federation.final_version,
            ended_by=self._act(administration.ended_by),
            has_ended=federation.has_ended,
            evicted=sorted(administration.evicted),
            is_draining=federation.orders.is_draining,
            closed_seats=administration.closed_seats,
        )

    def _act(self, act: Act | None) -> admin_pb2.Act | None:
        if act is None:
            return None
        (found,) = self._listed((act,), self._host.federation.administration.number(act))
        return found

    def _listed(self, acts: Iterable[Act], first: int) -> list[admin_pb2.Act]:
        return [
            admin_pb2.Act(
                id=number,
                unix_seconds=act.at,
                who=act.who,
                verb=admin_pb2.Verb.Value(f"VERB_{act.verb.name}"),  # type: ignore[arg-type]
                changed=act.changed,
                participant=act.participant,
                final_version=act.final_version,
                at_once=act.at_once,
                reason=act.reason,
            )
            for number, act in enumerate(acts, first)
        ]
