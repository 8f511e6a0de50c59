from hushgrad.v1 import common_pb2 as _common_pb2
from hushgrad.v1 import membership_pb2 as _membership_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Phase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PHASE_UNSPECIFIED: _ClassVar[Phase]
    PHASE_GATHERING: _ClassVar[Phase]
    PHASE_RUNNING: _ClassVar[Phase]
    PHASE_ENDED: _ClassVar[Phase]
PHASE_UNSPECIFIED: Phase
PHASE_GATHERING: Phase
PHASE_RUNNING: Phase
PHASE_ENDED: Phase

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ParticipantStatus(_message.Message):
    __slots__ = ("participant", "participation", "next_owed_round", "rounds_received", "updates_accepted", "updates_duplicate", "updates_invalid", "rounds_without_update", "rounds_lost", "updates_flagged")
    PARTICIPANT_FIELD_NUMBER: _ClassVar[int]
    PARTICIPATION_FIELD_NUMBER: _ClassVar[int]
    NEXT_OWED_ROUND_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_RECEIVED_FIELD_NUMBER: _ClassVar[int]
    UPDATES_ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    UPDATES_DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    UPDATES_INVALID_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_WITHOUT_UPDATE_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_LOST_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FLAGGED_FIELD_NUMBER: _ClassVar[int]
    participant: str
    participation: _membership_pb2.Participation
    next_owed_round: int
    rounds_received: int
    updates_accepted: int
    updates_duplicate: int
    updates_invalid: int
    rounds_without_update: int
    rounds_lost: int
    updates_flagged: int
    def __init__(self, participant: _Optional[str] = ..., participation: _Optional[_Union[_membership_pb2.Participation, _Mapping]] = ..., next_owed_round: _Optional[int] = ..., rounds_received: _Optional[int] = ..., updates_accepted: _Optional[int] = ..., updates_duplicate: _Optional[int] = ..., updates_invalid: _Optional[int] = ..., rounds_without_update: _Optional[int] = ..., rounds_lost: _Optional[int] = ..., updates_flagged: _Optional[int] = ...) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("server", "federation", "terms_digest", "phase", "final_version", "waiting_for", "participants", "uptime_seconds", "watchers", "is_paused", "is_draining", "scores")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    FEDERATION_FIELD_NUMBER: _ClassVar[int]
    TERMS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    FINAL_VERSION_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANTS_FIELD_NUMBER: _ClassVar[int]
    UPTIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WATCHERS_FIELD_NUMBER: _ClassVar[int]
    IS_PAUSED_FIELD_NUMBER: _ClassVar[int]
    IS_DRAINING_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    server: _common_pb2.ServerState
    federation: str
    terms_digest: bytes
    phase: Phase
    final_version: int
    waiting_for: str
    participants: _containers.RepeatedCompositeFieldContainer[ParticipantStatus]
    uptime_seconds: float
    watchers: int
    is_paused: bool
    is_draining: bool
    scores: _containers.RepeatedCompositeFieldContainer[EvaluationScore]
    def __init__(self, server: _Optional[_Union[_common_pb2.ServerState, _Mapping]] = ..., federation: _Optional[str] = ..., terms_digest: _Optional[bytes] = ..., phase: _Optional[_Union[Phase, str]] = ..., final_version: _Optional[int] = ..., waiting_for: _Optional[str] = ..., participants: _Optional[_Iterable[_Union[ParticipantStatus, _Mapping]]] = ..., uptime_seconds: _Optional[float] = ..., watchers: _Optional[int] = ..., is_paused: _Optional[bool] = ..., is_draining: _Optional[bool] = ..., scores: _Optional[_Iterable[_Union[EvaluationScore, _Mapping]]] = ...) -> None: ...

class EvaluationScore(_message.Message):
    __slots__ = ("evaluator", "version", "accuracy", "averaged_accuracy", "examples")
    EVALUATOR_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ACCURACY_FIELD_NUMBER: _ClassVar[int]
    AVERAGED_ACCURACY_FIELD_NUMBER: _ClassVar[int]
    EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    evaluator: str
    version: int
    accuracy: float
    averaged_accuracy: float
    examples: int
    def __init__(self, evaluator: _Optional[str] = ..., version: _Optional[int] = ..., accuracy: _Optional[float] = ..., averaged_accuracy: _Optional[float] = ..., examples: _Optional[int] = ...) -> None: ...

class ReportEvaluationRequest(_message.Message):
    __slots__ = ("caller", "version", "accuracy", "averaged_accuracy", "examples")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ACCURACY_FIELD_NUMBER: _ClassVar[int]
    AVERAGED_ACCURACY_FIELD_NUMBER: _ClassVar[int]
    EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    caller: _common_pb2.Caller
    version: int
    accuracy: float
    averaged_accuracy: float
    examples: int
    def __init__(self, caller: _Optional[_Union[_common_pb2.Caller, _Mapping]] = ..., version: _Optional[int] = ..., accuracy: _Optional[float] = ..., averaged_accuracy: _Optional[float] = ..., examples: _Optional[int] = ...) -> None: ...

class ReportEvaluationResponse(_message.Message):
    __slots__ = ("verdict",)
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    verdict: _common_pb2.Verdict
    def __init__(self, verdict: _Optional[_Union[_common_pb2.Verdict, _Mapping]] = ...) -> None: ...
