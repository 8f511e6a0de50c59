from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Answer(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ANSWER_UNSPECIFIED: _ClassVar[Answer]
    ANSWER_ACCEPTED: _ClassVar[Answer]
    ANSWER_DUPLICATE: _ClassVar[Answer]
    ANSWER_CONFLICT: _ClassVar[Answer]
    ANSWER_INVALID: _ClassVar[Answer]
    ANSWER_STALE: _ClassVar[Answer]
    ANSWER_STALE_SESSION: _ClassVar[Answer]
    ANSWER_TOO_FAR_AHEAD: _ClassVar[Answer]
    ANSWER_UNKNOWN_PARTICIPANT: _ClassVar[Answer]
    ANSWER_WRONG_TERMS: _ClassVar[Answer]
    ANSWER_RUN_ENDED: _ClassVar[Answer]
    ANSWER_BUSY: _ClassVar[Answer]
ANSWER_UNSPECIFIED: Answer
ANSWER_ACCEPTED: Answer
ANSWER_DUPLICATE: Answer
ANSWER_CONFLICT: Answer
ANSWER_INVALID: Answer
ANSWER_STALE: Answer
ANSWER_STALE_SESSION: Answer
ANSWER_TOO_FAR_AHEAD: Answer
ANSWER_UNKNOWN_PARTICIPANT: Answer
ANSWER_WRONG_TERMS: Answer
ANSWER_RUN_ENDED: Answer
ANSWER_BUSY: Answer

class Caller(_message.Message):
    __slots__ = ("terms_digest", "participant", "session")
    TERMS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANT_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    terms_digest: bytes
    participant: str
    session: int
    def __init__(self, terms_digest: _Optional[bytes] = ..., participant: _Optional[str] = ..., session: _Optional[int] = ...) -> None: ...

class ServerState(_message.Message):
    __slots__ = ("server_epoch", "retention_watermark", "newest_version")
    SERVER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    RETENTION_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    NEWEST_VERSION_FIELD_NUMBER: _ClassVar[int]
    server_epoch: int
    retention_watermark: int
    newest_version: int
    def __init__(self, server_epoch: _Optional[int] = ..., retention_watermark: _Optional[int] = ..., newest_version: _Optional[int] = ...) -> None: ...

class Verdict(_message.Message):
    __slots__ = ("answer", "detail", "retry_after_milliseconds", "server")
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MILLISECONDS_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    answer: Answer
    detail: str
    retry_after_milliseconds: int
    server: ServerState
    def __init__(self, answer: _Optional[_Union[Answer, str]] = ..., detail: _Optional[str] = ..., retry_after_milliseconds: _Optional[int] = ..., server: _Optional[_Union[ServerState, _Mapping]] = ...) -> None: ...

class LedgerPosition(_message.Message):
    __slots__ = ("sequence", "head")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    head: bytes
    def __init__(self, sequence: _Optional[int] = ..., head: _Optional[bytes] = ...) -> None: ...
