from hushgrad.v1 import common_pb2 as _common_pb2
from hushgrad.v1 import terms_pb2 as _terms_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ParticipationState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PARTICIPATION_STATE_UNSPECIFIED: _ClassVar[ParticipationState]
    PARTICIPATION_STATE_OBSERVING: _ClassVar[ParticipationState]
    PARTICIPATION_STATE_ACTIVE: _ClassVar[ParticipationState]
    PARTICIPATION_STATE_SUSPENDED: _ClassVar[ParticipationState]
    PARTICIPATION_STATE_LEFT: _ClassVar[ParticipationState]
PARTICIPATION_STATE_UNSPECIFIED: ParticipationState
PARTICIPATION_STATE_OBSERVING: ParticipationState
PARTICIPATION_STATE_ACTIVE: ParticipationState
PARTICIPATION_STATE_SUSPENDED: ParticipationState
PARTICIPATION_STATE_LEFT: ParticipationState

class Participation(_message.Message):
    __slots__ = ("state", "entry_round", "exit_round", "wanted_rounds", "suspensions", "evicted")
    STATE_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ROUND_FIELD_NUMBER: _ClassVar[int]
    EXIT_ROUND_FIELD_NUMBER: _ClassVar[int]
    WANTED_ROUNDS_FIELD_NUMBER: _ClassVar[int]
    SUSPENSIONS_FIELD_NUMBER: _ClassVar[int]
    EVICTED_FIELD_NUMBER: _ClassVar[int]
    state: ParticipationState
    entry_round: int
    exit_round: int
    wanted_rounds: _containers.RepeatedScalarFieldContainer[int]
    suspensions: int
    evicted: bool
    def __init__(self, state: _Optional[_Union[ParticipationState, str]] = ..., entry_round: _Optional[int] = ..., exit_round: _Optional[int] = ..., wanted_rounds: _Optional[_Iterable[int]] = ..., suspensions: _Optional[int] = ..., evicted: _Optional[bool] = ...) -> None: ...

class JoinRequest(_message.Message):
    __slots__ = ("caller", "join_id")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    JOIN_ID_FIELD_NUMBER: _ClassVar[int]
    caller: _common_pb2.Caller
    join_id: bytes
    def __init__(self, caller: _Optional[_Union[_common_pb2.Caller, _Mapping]] = ..., join_id: _Optional[bytes] = ...) -> None: ...

class JoinResponse(_message.Message):
    __slots__ = ("verdict", "session", "participation", "ledger")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    PARTICIPATION_FIELD_NUMBER: _ClassVar[int]
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    verdict: _common_pb2.Verdict
    session: int
    participation: Participation
    ledger: _common_pb2.LedgerPosition
    def __init__(self, verdict: _Optional[_Union[_common_pb2.Verdict, _Mapping]] = ..., session: _Optional[int] = ..., participation: _Optional[_Union[Participation, _Mapping]] = ..., ledger: _Optional[_Union[_common_pb2.LedgerPosition, _Mapping]] = ...) -> None: ...

class StartRequest(_message.Message):
    __slots__ = ("caller", "next_round", "claim")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    NEXT_ROUND_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    caller: _common_pb2.Caller
    next_round: int
    claim: DeclaredClaim
    def __init__(self, caller: _Optional[_Union[_common_pb2.Caller, _Mapping]] = ..., next_round: _Optional[int] = ..., claim: _Optional[_Union[DeclaredClaim, _Mapping]] = ...) -> None: ...

class DeclaredClaim(_message.Message):
    __slots__ = ("epsilon", "delta", "adjacency", "sampler", "unit", "method", "method_version", "planned_rounds", "timing_covered")
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    ADJACENCY_FIELD_NUMBER: _ClassVar[int]
    SAMPLER_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    METHOD_VERSION_FIELD_NUMBER: _ClassVar[int]
    PLANNED_ROUNDS_FIELD_NUMBER: _ClassVar[int]
    TIMING_COVERED_FIELD_NUMBER: _ClassVar[int]
    epsilon: float
    delta: float
    adjacency: str
    sampler: _terms_pb2.Sampler
    unit: str
    method: str
    method_version: str
    planned_rounds: int
    timing_covered: bool
    def __init__(self, epsilon: _Optional[float] = ..., delta: _Optional[float] = ..., adjacency: _Optional[str] = ..., sampler: _Optional[_Union[_terms_pb2.Sampler, str]] = ..., unit: _Optional[str] = ..., method: _Optional[str] = ..., method_version: _Optional[str] = ..., planned_rounds: _Optional[int] = ..., timing_covered: _Optional[bool] = ...) -> None: ...

class StartResponse(_message.Message):
    __slots__ = ("verdict", "participation")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    PARTICIPATION_FIELD_NUMBER: _ClassVar[int]
    verdict: _common_pb2.Verdict
    participation: Participation
    def __init__(self, verdict: _Optional[_Union[_common_pb2.Verdict, _Mapping]] = ..., participation: _Optional[_Union[Participation, _Mapping]] = ...) -> None: ...

class ObserveRequest(_message.Message):
    __slots__ = ("caller", "exit_round")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    EXIT_ROUND_FIELD_NUMBER: _ClassVar[int]
    caller: _common_pb2.Caller
    exit_round: int
    def __init__(self, caller: _Optional[_Union[_common_pb2.Caller, _Mapping]] = ..., exit_round: _Optional[int] = ...) -> None: ...

class ObserveResponse(_message.Message):
    __slots__ = ("verdict", "participation")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    PARTICIPATION_FIELD_NUMBER: _ClassVar[int]
    verdict: _common_pb2.Verdict
    participation: Participation
    def __init__(self, verdict: _Optional[_Union[_common_pb2.Verdict, _Mapping]] = ..., participation: _Optional[_Union[Participation, _Mapping]] = ...) -> None: ...

class LeaveRequest(_message.Message):
    __slots__ = ("caller", "exit_round")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    EXIT_ROUND_FIELD_NUMBER: _ClassVar[int]
    caller: _common_pb2.Caller
    exit_round: int
    def __init__(self, caller: _Optional[_Union[_common_pb2.Caller, _Mapping]] = ..., exit_round: _Optional[int] = ...) -> None: ...

class LeaveResponse(_message.Message):
    __slots__ = ("verdict", "participation")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    PARTICIPATION_FIELD_NUMBER: _ClassVar[int]
    verdict: _common_pb2.Verdict
    participation: Participation
    def __init__(self, verdict: _Optional[_Union[_common_pb2.Verdict, _Mapping]] = ..., participation: _Optional[_Union[Participation, _Mapping]] = ...) -> None: ...

class GetParticipationRequest(_message.Message):
    __slots__ = ("caller",)
    CALLER_FIELD_NUMBER: _ClassVar[int]
    caller: _common_pb2.Caller
    def __init__(self, caller: _Optional[_Union[_common_pb2.Caller, _Mapping]] = ...) -> None: ...

class GetParticipationResponse(_message.Message):
    __slots__ = ("verdict", "participation")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    PARTICIPATION_FIELD_NUMBER: _ClassVar[int]
    verdict: _common_pb2.Verdict
    participation: Participation
    def __init__(self, verdict: _Optional[_Union[_common_pb2.Verdict, _Mapping]] = ..., participation: _Optional[_Union[Participation, _Mapping]] = ...) -> None: ...

class RoundReport(_message.Message):
    __slots__ = ("round", "fate", "digest")
    class Fate(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        FATE_UNSPECIFIED: _ClassVar[RoundReport.Fate]
        FATE_SKIPPED: _ClassVar[RoundReport.Fate]
        FATE_VOID: _ClassVar[RoundReport.Fate]
        FATE_HELD: _ClassVar[RoundReport.Fate]
    FATE_UNSPECIFIED: RoundReport.Fate
    FATE_SKIPPED: RoundReport.Fate
    FATE_VOID: RoundReport.Fate
    FATE_HELD: RoundReport.Fate
    ROUND_FIELD_NUMBER: _ClassVar[int]
    FATE_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    round: int
    fate: RoundReport.Fate
    digest: bytes
    def __init__(self, round: _Optional[int] = ..., fate: _Optional[_Union[RoundReport.Fate, str]] = ..., digest: _Optional[bytes] = ...) -> None: ...

class ReportRoundsRequest(_message.Message):
    __slots__ = ("caller", "reports", "held_from", "held_below")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    HELD_FROM_FIELD_NUMBER: _ClassVar[int]
    HELD_BELOW_FIELD_NUMBER: _ClassVar[int]
    caller: _common_pb2.Caller
    reports: _containers.RepeatedCompositeFieldContainer[RoundReport]
    held_from: int
    held_below: int
    def __init__(self, caller: _Optional[_Union[_common_pb2.Caller, _Mapping]] = ..., reports: _Optional[_Iterable[_Union[RoundReport, _Mapping]]] = ..., held_from: _Optional[int] = ..., held_below: _Optional[int] = ...) -> None: ...

class ReportRoundsResponse(_message.Message):
    __slots__ = ("verdict", "participation")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    PARTICIPATION_FIELD_NUMBER: _ClassVar[int]
    verdict: _common_pb2.Verdict
    participation: Participation
    def __init__(self, verdict: _Optional[_Union[_common_pb2.Verdict, _Mapping]] = ..., participation: _Optional[_Union[Participation, _Mapping]] = ...) -> None: ...
