"""Who may call what: one table. A call that is not in it may be made by nobody.

docs/identity.md shows this table, and tests walk it with certificates of every role.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hushgrad.wire.identity import ROLES, Role

_EVERYBODY = frozenset(ROLES)
_MEMBERS = _EVERYBODY - {"enrollment"}
_PARTICIPANT = frozenset[Role](("participant",))
_RECEIVERS = frozenset[Role](("participant", "watcher", "evaluator"))
_AUDITORS = frozenset[Role](("participant", "evaluator", "operator"))
_MODEL_READERS = frozenset[Role](("participant", "watcher", "evaluator", "operator"))
_OVERSEERS = frozenset[Role](("participant", "evaluator", "operator", "observer"))
_EVALUATOR = frozenset[Role](("evaluator",))
_OPERATOR = frozenset[Role](("operator",))
_ENROLLING = frozenset[Role](("enrollment",))

ALLOWED: Final[Mapping[str, frozenset[Role]]] = MappingProxyType(
    {
        "/hushgrad.v1.TermsService/GetTerms": _EVERYBODY,
        "/hushgrad.v1.MembershipService/Join": _PARTICIPANT,
        "/hushgrad.v1.MembershipService/Start": _PARTICIPANT,
        "/hushgrad.v1.MembershipService/Observe": _PARTICIPANT,
        "/hushgrad.v1.MembershipService/Leave": _PARTICIPANT,
        "/hushgrad.v1.MembershipService/GetParticipation": _PARTICIPANT,
        "/hushgrad.v1.MembershipService/ReportRounds": _PARTICIPANT,
        "/hushgrad.v1.UpdateService/SubmitUpdate": _PARTICIPANT,
        "/hushgrad.v1.UpdateService/GetUpload": _PARTICIPANT,
        "/hushgrad.v1.UpdateService/UploadUpdate": _PARTICIPANT,
        "/hushgrad.v1.ModelService/WatchModels": _RECEIVERS,
        "/hushgrad.v1.ModelService/GetModel": _MODEL_READERS,
        "/hushgrad.v1.ModelService/GetManifest": _AUDITORS,
        "/hushgrad.v1.ModelService/ListModels": _MODEL_READERS,
        "/hushgrad.v1.StatusService/GetStatus": _OVERSEERS,
        "/hushgrad.v1.StatusService/ReportEvaluation": _EVALUATOR,
        "/hushgrad.v1.AdministrationService/Pause": _OPERATOR,
        "/hushgrad.v1.AdministrationService/Resume": _OPERATOR,
        "/hushgrad.v1.AdministrationService/Evict": _OPERATOR,
        "/hushgrad.v1.AdministrationService/End": _OPERATOR,
        "/hushgrad.v1.AdministrationService/Drain": _OPERATOR,
        "/hushgrad.v1.AdministrationService/GetAdministration": _OPERATOR,
        "/hushgrad.v1.EnrollmentService/Enroll": _ENROLLING,
        "/hushgrad.v1.EnrollmentService/Renew": _MEMBERS,
        "/grpc.health.v1.Health/Check": _MEMBERS,
        "/grpc.health.v1.Health/Watch": _MEMBERS,
    }
)
"""Full name of a call, and the roles that may make it."""

LOOKERS: Final = frozenset[Role](("operator", "observer"))
"""Who may look at the page and at metrics where `web_listen` is not on loopback."""

FOR_THE_TERMS_PARTICIPANTS: Final = frozenset(
    method
    for method in ALLOWED
    if method.split("/")[1]
    in ("hushgrad.v1.MembershipService", "hushgrad.v1.UpdateService", "hushgrad.v1.ModelService")
)
"""Calls that a participant's certificate is good for only if the terms admit its name."""


def markdown() -> str:
    """Returns the table as docs/identity.md shows it."""
    lines = [f"| call | {' | '.join(ROLES)} |", f"| --- |{' --- |' * len(ROLES)}"]
    for method, allowed in ALLOWED.items():
        service, call = method.removeprefix("/").rsplit("/", 1)
        marks = " | ".join("yes" if role in allowed else "-" for role in ROLES)
        lines.append(f"| {service.rpartition('.')[2]}.{call} | {marks} |")
    return "\n".join(lines)
