from hushgrad.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Verb(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VERB_UNSPECIFIED: _ClassVar[Verb]
    VERB_PAUSE: _ClassVar[Verb]
    VERB_RESUME: _ClassVar[Verb]
    VERB_EVICT: _ClassVar[Verb]
    VERB_END: _ClassVar[Verb]
    VERB_DRAIN: _ClassVar[Verb]
VERB_UNSPECIFIED: Verb
VERB_PAUSE: Verb
VERB_RESUME: Verb
VERB_EVICT: Verb
VERB_END: Verb
VERB_DRAIN: Verb

class Order(_message.Message):
    __slots__ = ("request_id", "reason")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    request_id: bytes
    reason: str
    def __init__(self, request_id: _Optional[bytes] = ..., reason: _Optional[str] = ...) -> None: ...

class Act(_message.Message):
    __slots__ = ("id", "unix_seconds", "who", "verb", "changed", "participant", "final_version", "at_once", "reason")
    ID_FIELD_NUMBER: _ClassVar[int]
    UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WHO_FIELD_NUMBER: _ClassVar[int]
    VERB_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANT_FIELD_NUMBER: _ClassVar[int]
    FINAL_VERSION_FIELD_NUMBER: _ClassVar[int]
    AT_ONCE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    id: int
    unix_seconds: float
    who: str
    verb: Verb
    changed: bool
    participant: str
    final_version: int
    at_once: bool
    reason: str
    def __init__(self, id: _Optional[int] = ..., unix_seconds: _Optional[float] = ..., who: _Optional[str] = ..., verb: _Optional[_Union[Verb, str]] = ..., changed: _Optional[bool] = ..., participant: _Optional[str] = ..., final_version: _Optional[int] = ..., at_once: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class Standing(_message.Message):
    __slots__ = ("paused_by", "final_version", "ended_by", "has_ended", "evicted", "is_draining", "closed_seats")
    PAUSED_BY_FIELD_NUMBER: _ClassVar[int]
    FINAL_VERSION_FIELD_NUMBER: _ClassVar[int]
    ENDED_BY_FIELD_NUMBER: _ClassVar[int]
    HAS_ENDED_FIELD_NUMBER: _ClassVar[int]
    EVICTED_FIELD_NUMBER: _ClassVar[int]
    IS_DRAINING_FIELD_NUMBER: _ClassVar[int]
    CLOSED_SEATS_FIELD_NUMBER: _ClassVar[int]
    paused_by: Act
    final_version: int
    ended_by: Act
    has_ended: bool
    evicted: _containers.RepeatedScalarFieldContainer[str]
    is_draining: bool
    closed_seats: int
    def __init__(self, paused_by: _Optional[_Union[Act, _Mapping]] = ..., final_version: _Optional[int] = ..., ended_by: _Optional[_Union[Act, _Mapping]] = ..., has_ended: _Optional[bool] = ..., evicted: _Optional[_Iterable[str]] = ..., is_draining: _Optional[bool] = ..., closed_seats: _Optional[int] = ...) -> None: ...

class PauseRequest(_message.Message):
    __slots__ = ("order",)
    ORDER_FIELD_NUMBER: _ClassVar[int]
    order: Order
    def __init__(self, order: _Optional[_Union[Order, _Mapping]] = ...) -> None: ...

class PauseResponse(_message.Message):
    __slots__ = ("verdict", "standing", "act")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    STANDING_FIELD_NUMBER: _ClassVar[int]
    ACT_FIELD_NUMBER: _ClassVar[int]
    verdict: _common_pb2.Verdict
    standing: Standing
    act: Act
    def __init__(self, verdict: _Optional[_Union[_common_pb2.Verdict, _Mapping]] = ..., standing: _Optional[_Union[Standing, _Mapping]] = ..., act: _Optional[_Union[Act, _Mapping]] = ...) -> None: ...

class ResumeRequest(_message.Message):
    __slots__ = ("order",)
    ORDER_FIELD_NUMBER: _ClassVar[int]
    order: Order
    def __init__(self, order: _Optional[_Union[Order, _Mapping]] = ...) -> None: ...

class ResumeResponse(_message.Message):
    __slots__ = ("verdict", "standing", "act")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    STANDING_FIELD_NUMBER: _ClassVar[int]
    ACT_FIELD_NUMBER: _ClassVar[int]
    verdict: _common_pb2.Verdict
    standing: Standing
    act: Act
    def __init__(self, verdict: _Optional[_Union[_common_pb2.Verdict, _Mapping]] = ..., standing: _Optional[_Union[Standing, _Mapping]] = ..., act: _Optional[_Union[Act, _Mapping]] = ...) -> None: ...

class EvictRequest(_message.Message):
    __slots__ = ("order", "participant", "vacant_seat")
    ORDER_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANT_FIELD_NUMBER: _ClassVar[int]
    VACANT_SEAT_FIELD_NUMBER: _ClassVar[int]
    order: Order
    participant: str
    vacant_seat: bool
    def __init__(self, order: _Optional[_Union[Order, _Mapping]] = ..., participant: _Optional[str] = ..., vacant_seat: _Optional[bool] = ...) -> None: ...

class EvictResponse(_message.Message):
    __slots__ = ("verdict", "standing", "act")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    STANDING_FIELD_NUMBER: _ClassVar[int]
    ACT_FIELD_NUMBER: _ClassVar[int]
    verdict: _common_pb2.Verdict
    standing: Standing
    act: Act
    def __init__(self, verdict: _Optional[_Union[_common_pb2.Verdict, _Mapping]] = ..., standing: _Optional[_Union[Standing, _Mapping]] = ..., act: _Optional[_Union[Act, _Mapping]] = ...) -> None: ...

class EndRequest(_message.Message):
    __slots__ = ("order", "final_version")
    ORDER_FIELD_NUMBER: _ClassVar[int]
    FINAL_VERSION_FIELD_NUMBER: _ClassVar[int]
    order: Order
    final_version: int
    def __init__(self, order: _Optional[_Union[Order, _Mapping]] = ..., final_version: _Optional[int] = ...) -> None: ...

class EndResponse(_message.Message):
    __slots__ = ("verdict", "standing", "act")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    STANDING_FIELD_NUMBER: _ClassVar[int]
    ACT_FIELD_NUMBER: _ClassVar[int]
    verdict: _common_pb2.Verdict
    standing: Standing
    act: Act
    def __init__(self, verdict: _Optional[_Union[_common_pb2.Verdict, _Mapping]] = ..., standing: _Optional[_Union[Standing, _Mapping]] = ..., act: _Optional[_Union[Act, _Mapping]] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("order",)
    ORDER_FIELD_NUMBER: _ClassVar[int]
    order: Order
    def __init__(self, order: _Optional[_Union[Order, _Mapping]] = ...) -> None: ...

class DrainResponse(_message.Message):
    __slots__ = ("verdict", "standing", "act")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    STANDING_FIELD_NUMBER: _ClassVar[int]
    ACT_FIELD_NUMBER: _ClassVar[int]
    verdict: _common_pb2.Verdict
    standing: Standing
    act: Act
    def __init__(self, verdict: _Optional[_Union[_common_pb2.Verdict, _Mapping]] = ..., standing: _Optional[_Union[Standing, _Mapping]] = ..., act: _Optional[_Union[Act, _Mapping]] = ...) -> None: ...

class GetAdministrationRequest(_message.Message):
    __slots__ = ("after_id", "page_size")
    AFTER_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    after_id: int
    page_size: int
    def __init__(self, after_id: _Optional[int] = ..., page_size: _Optional[int] = ...) -> None: ...

class GetAdministrationResponse(_message.Message):
    __slots__ = ("verdict", "standing", "acts", "last_id")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    STANDING_FIELD_NUMBER: _ClassVar[int]
    ACTS_FIELD_NUMBER: _ClassVar[int]
    LAST_ID_FIELD_NUMBER: _ClassVar[int]
    verdict: _common_pb2.Verdict
    standing: Standing
    acts: _containers.RepeatedCompositeFieldContainer[Act]
    last_id: int
    def __init__(self, verdict: _Optional[_Union[_common_pb2.Verdict, _Mapping]] = ..., standing: _Optional[_Union[Standing, _Mapping]] = ..., acts: _Optional[_Iterable[_Union[Act, _Mapping]]] = ..., last_id: _Optional[int] = ...) -> None: ...
