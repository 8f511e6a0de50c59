from hushgrad.v1 import common_pb2 as _common_pb2
from hushgrad.v1 import membership_pb2 as _membership_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SubmitUpdateRequest(_message.Message):
    __slots__ = ("caller", "header", "payload", "crc32c")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    caller: _common_pb2.Caller
    header: bytes
    payload: bytes
    crc32c: int
    def __init__(self, caller: _Optional[_Union[_common_pb2.Caller, _Mapping]] = ..., header: _Optional[bytes] = ..., payload: _Optional[bytes] = ..., crc32c: _Optional[int] = ...) -> None: ...

class SubmitUpdateResponse(_message.Message):
    __slots__ = ("verdict", "first_answer", "included_in", "participation")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    FIRST_ANSWER_FIELD_NUMBER: _ClassVar[int]
    INCLUDED_IN_FIELD_NUMBER: _ClassVar[int]
    PARTICIPATION_FIELD_NUMBER: _ClassVar[int]
    verdict: _common_pb2.Verdict
    first_answer: _common_pb2.Answer
    included_in: int
    participation: _membership_pb2.Participation
    def __init__(self, verdict: _Optional[_Union[_common_pb2.Verdict, _Mapping]] = ..., first_answer: _Optional[_Union[_common_pb2.Answer, str]] = ..., included_in: _Optional[int] = ..., participation: _Optional[_Union[_membership_pb2.Participation, _Mapping]] = ...) -> None: ...

class UploadUpdateRequest(_message.Message):
    __slots__ = ("start", "chunk")
    START_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    start: UploadStart
    chunk: UploadChunk
    def __init__(self, start: _Optional[_Union[UploadStart, _Mapping]] = ..., chunk: _Optional[_Union[UploadChunk, _Mapping]] = ...) -> None: ...

class UploadStart(_message.Message):
    __slots__ = ("caller", "header", "digest", "offset")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    caller: _common_pb2.Caller
    header: bytes
    digest: bytes
    offset: int
    def __init__(self, caller: _Optional[_Union[_common_pb2.Caller, _Mapping]] = ..., header: _Optional[bytes] = ..., digest: _Optional[bytes] = ..., offset: _Optional[int] = ...) -> None: ...

class UploadChunk(_message.Message):
    __slots__ = ("offset", "data", "crc32c")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    offset: int
    data: bytes
    crc32c: int
    def __init__(self, offset: _Optional[int] = ..., data: _Optional[bytes] = ..., crc32c: _Optional[int] = ...) -> None: ...

class UploadUpdateResponse(_message.Message):
    __slots__ = ("result",)
    RESULT_FIELD_NUMBER: _ClassVar[int]
    result: SubmitUpdateResponse
    def __init__(self, result: _Optional[_Union[SubmitUpdateResponse, _Mapping]] = ...) -> None: ...

class GetUploadRequest(_message.Message):
    __slots__ = ("caller", "digest")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    caller: _common_pb2.Caller
    digest: bytes
    def __init__(self, caller: _Optional[_Union[_common_pb2.Caller, _Mapping]] = ..., digest: _Optional[bytes] = ...) -> None: ...

class GetUploadResponse(_message.Message):
    __slots__ = ("verdict", "received_bytes")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    verdict: _common_pb2.Verdict
    received_bytes: int
    def __init__(self, verdict: _Optional[_Union[_common_pb2.Verdict, _Mapping]] = ..., received_bytes: _Optional[int] = ...) -> None: ...
