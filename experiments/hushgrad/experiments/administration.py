"""An operator's side of administration: gives orders to a server, repeats them until they are answered, reads the log.

Every order gets 16 random bytes once and keeps them through its repeats, so that a lost answer never orders twice.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import grpc
from hushgrad.experiments.errors import InputError
from hushgrad.server import asking
from hushgrad.server.errors import UnreachableError
from hushgrad.server.plain_status import plain_status
from hushgrad.v1 import admin_pb2, admin_pb2_grpc, common_pb2, models_pb2, models_pb2_grpc, status_pb2, status_pb2_grpc

CALL_SECONDS: Final = 10.0
PATIENCE_SECONDS: Final = 30.0
"""So long an order is repeated when no answer comes."""

_AGAIN_SECONDS: Final = 0.5
_PASSING: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED)


class Desk:
    """A connection of one operator to one server.

    Args:
        address: host:port.
        ca, certificate, key: PEM files; None: plain text, which stays on this machine.

    Raises:
        InputError: if the address or a file cannot be used.
    """

    def __init__(self, address: str, *, ca: Path | None, certificate: Path | None, key: Path | None) -> None:
        self._address = address
        self._has_certificate = certificate is not None
        self._channel = asking.channel(address, ca=ca, certificate=certificate, key=key)
        self._orders = admin_pb2_grpc.AdministrationServiceStub(self._channel)
        self._status = status_pb2_grpc.StatusServiceStub(self._channel)

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    # Orders. Each returns {"answer": "accepted", "act": ..., "standing": ...} once it is durable, or raises.

    def pause(self, reason: str = "") -> dict[str, Any]:
        """Stops the making of versions."""
        return self._given(self._orders.Pause, admin_pb2.PauseRequest(order=_order(reason)))

    def resume(self, reason: str = "") -> dict[str, Any]:
        """Goes on after a pause."""
        return self._given(self._orders.Resume, admin_pb2.ResumeRequest(order=_order(reason)))

    def evict(self, name: str | None, reason: str = "") -> dict[str, Any]:
        """Lets nobody wait for a participant any more; None: closes a seat that nobody has taken."""
        request = admin_pb2.EvictRequest(order=_order(reason), participant=name or "", vacant_seat=name is None)
        return self._given(self._orders.Evict, request)

    def end(self, final_version: int | None, reason: str = "") -> dict[str, Any]:
        """Ends the federation with a version below its final one; None: at once."""
        request = admin_pb2.EndRequest(order=_order(reason), final_version=final_version)
        return self._given(self._orders.End, request)

    def drain(self, reason: str = "") -> dict[str, Any]:
        """Lets the server's process stop after the next version."""
        return self._given(self._orders.Drain, admin_pb2.DrainRequest(order=_order(reason)))

    # Reading

    def status(self) -> dict[str, Any]:
        """Returns the status, and under "administration" how the orders stand."""
        status = self._answered(lambda: self._status.GetStatus(status_pb2.GetStatusRequest(), timeout=CALL_SECONDS))
        return {**plain_status(status), "administration": self.standing()}

    def standing(self) -> dict[str, Any]:
        """Returns how the orders stand."""
        request = admin_pb2.GetAdministrationRequest(page_size=1)
        answer = self._answered(lambda: self._orders.GetAdministration(request, timeout=CALL_SECONDS))
        return plain_standing(answer.standing)

    def log(self) -> Iterator[dict[str, Any]]:
        """Yields every order that was taken, in order."""
        request = admin_pb2.GetAdministrationRequest()
        last = 1
        while request.after_id < last:
            answer = self._answered(lambda: self._orders.GetAdministration(request, timeout=CALL_SECONDS))
            last = answer.last_id
            for act in answer.acts:
                request.after_id = act.id
                yield plain_act(act)
            if not answer.acts:
                return

    def manifest(self, caller: common_pb2.Caller, version: int) -> list[dict[str, Any]]:
        """Returns which updates a version added to the one before it."""
        models = models_pb2_grpc.ModelServiceStub(self._channel)
        request = models_pb2.GetManifestRequest(caller=caller, version=version)
        answer = self._answered(lambda: models.GetManifest(request, timeout=CALL_SECONDS))
        return [
            {"participant": one.participant, "round": one.round, "digest": one.digest.hex()} for one in answer.entries
        ]

    # Parts of the above

    def _given(self, call: Callable[..., Any], request: Any) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                with self._errors():
                    answer = call(request, timeout=CALL_SECONDS)
            except UnreachableError:
                if time.monotonic() > until:
                    raise
                time.sleep(_AGAIN_SECONDS)
                continue
            if answer.verdict.answer != common_pb2.ANSWER_BUSY or time.monotonic() > until:
                break
            time.sleep(max(_AGAIN_SECONDS, answer.verdict.retry_after_milliseconds / 1000))
        if answer.verdict.answer != common_pb2.ANSWER_ACCEPTED:
            word = common_pb2.Answer.Name(answer.verdict.answer).removeprefix("ANSWER_").lower().replace("_", " ")
            raise InputError(f"nothing was changed ({word}): {answer.verdict.detail}")
        return {"answer": "accepted", "act": plain_act(answer.act), "standing": plain_standing(answer.standing)}

    def _answered(self, call: Callable[[], Any]) -> Any:
        with self._errors():
            return call()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as error:
            said, code = " ".join((error.details() or "").split()), error.code()
            if code is grpc.StatusCode.UNIMPLEMENTED:
                raise InputError(
                    f"{self._address} does not take this from here: orders are for mutual TLS, for admin_listen, and "
                    "for plain text on loopback; manifests and models are at the server's main address"
                ) from None
            if code not in _PASSING:
                raise InputError(f"{self._address} refuses: {said}") from None
            hint = "" if self._has_certificate else "; if it speaks TLS, give --tls-ca, --tls-certificate and --tls-key"
            raise UnreachableError(f"no server answers at {self._address} ({code.name}){hint}") from None


def plain_act(act: admin_pb2.Act) -> dict[str, Any]:
    """Returns a row of the log as plain values."""
    return {
        "id": act.id,
        "at": datetime.fromtimestamp(act.unix_seconds, UTC).isoformat(timespec="milliseconds"),
        "who": act.who,
        "verb": admin_pb2.Verb.Name(act.verb).removeprefix("VERB_").lower(),
        "changed": act.changed,
        "participant": act.participant or None,
        "final_version": act.final_version if act.HasField("final_version") else None,
        "at_once": act.at_once,
        "reason": act.reason,
    }


def plain_standing(standing: admin_pb2.Standing) -> dict[str, Any]:
    """Returns how the orders stand as plain values."""
    return {
        "paused_by": plain_act(standing.paused_by) if standing.HasField("paused_by") else None,
        "final_version": standing.final_version,
        "ended_by": plain_act(standing.ended_by) if standing.HasField("ended_by") else None,
        "has_ended": standing.has_ended,
        "evicted": list(standing.evicted),
        "closed_seats": standing.closed_seats,
        "is_draining": standing.is_draining,
    }


def act_text(act: dict[str, Any]) -> str:
    """Returns a row of the log as people read it."""
    what = str(act["verb"])
    if act["verb"] == "evict":
        what += f" {act['participant'] or 'a vacant seat'}"
    if act["verb"] == "end":
        what += f" with version {act['final_version']}{', at once' if act['at_once'] else ''}"
    same = "" if act["changed"] else " (it was so already)"
    reason = f": {act['reason']}" if act["reason"] else ""
    return f"{act['id']:>4}  {act['at']}  {act['who']}  {what}{same}{reason}"


def _order(reason: str) -> admin_pb2.Order:
    return admin_pb2.Order(request_id=os.urandom(16), reason=reason)
