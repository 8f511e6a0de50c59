"""A status snapshot as plain values, for JSON and for people."""

from typing import Any

from hushgrad.v1 import membership_pb2, status_pb2


def state_name(state: membership_pb2.ParticipationState) -> str:
    """Returns "observing", "active", "suspended" or "left"."""
    return membership_pb2.ParticipationState.Name(state).removeprefix("PARTICIPATION_STATE_").lower()


def plain_status(status: status_pb2.GetStatusResponse) -> dict[str, Any]:
    """Returns the snapshot with integers as integers, digests as hex and enums as lower-case words."""
    return {
        "server_epoch": status.server.server_epoch,
        "retention_watermark": status.server.retention_watermark,
        "newest_version": status.server.newest_version,
        "federation": status.federation,
        "terms_digest": status.terms_digest.hex(),
        "phase": status_pb2.Phase.Name(status.phase).removeprefix("PHASE_").lower(),
        "final_version": status.final_version,
        "waiting_for": status.waiting_for,
        "participants": [_participant(one) for one in status.participants],
        "uptime_seconds": status.uptime_seconds,
        "watchers": status.watchers,
        "is_paused": status.is_paused,
        "is_draining": status.is_draining,
        "scores": [_score(one) for one in status.scores],
    }


def _score(one: status_pb2.EvaluationScore) -> dict[str, Any]:
    return {
        "evaluator": one.evaluator,
        "version": one.version,
        "accuracy": one.accuracy,
        "averaged_accuracy": one.averaged_accuracy if one.HasField("averaged_accuracy") else None,
        "examples": one.examples,
    }


def _participant(one: status_pb2.ParticipantStatus) -> dict[str, Any]:
    view = one.participation
    return {
        "participant": one.participant,
        "state": state_name(view.state),
        "entry_round": view.entry_round,
        "exit_round": view.exit_round if view.HasField("exit_round") else None,
        "wanted_rounds": list(view.wanted_rounds),
        "suspensions": view.suspensions,
        "evicted": view.evicted,
        "next_owed_round": one.next_owed_round,
        "rounds_received": one.rounds_received,
        "updates_accepted": one.updates_accepted,
        "updates_duplicate": one.updates_duplicate,
        "updates_invalid": one.updates_invalid,
        "rounds_without_update": one.rounds_without_update,
        "rounds_lost": one.rounds_lost,
        "updates_flagged": one.updates_flagged,
    }
