from hushgrad.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ModelKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODEL_KIND_UNSPECIFIED: _ClassVar[ModelKind]
    MODEL_KIND_PUBLISHED: _ClassVar[ModelKind]
    MODEL_KIND_AVERAGED: _ClassVar[ModelKind]

class ModelEncoding(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODEL_ENCODING_UNSPECIFIED: _ClassVar[ModelEncoding]
    MODEL_ENCODING_FLOAT32: _ClassVar[ModelEncoding]
    MODEL_ENCODING_FLOAT16: _ClassVar[ModelEncoding]
MODEL_KIND_UNSPECIFIED: ModelKind
MODEL_KIND_PUBLISHED: ModelKind
MODEL_KIND_AVERAGED: ModelKind
MODEL_ENCODING_UNSPECIFIED: ModelEncoding
MODEL_ENCODING_FLOAT32: ModelEncoding
MODEL_ENCODING_FLOAT16: ModelEncoding

class WatchModelsRequest(_message.Message):
    __slots__ = ("caller", "after_version", "encoding")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    AFTER_VERSION_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    caller: _common_pb2.Caller
    after_version: int
    encoding: ModelEncoding
    def __init__(self, caller: _Optional[_Union[_common_pb2.Caller, _Mapping]] = ..., after_version: _Optional[int] = ..., encoding: _Optional[_Union[ModelEncoding, str]] = ...) -> None: ...

class WatchModelsResponse(_message.Message):
    __slots__ = ("server", "published", "heartbeat", "going_away", "run_ended")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    GOING_AWAY_FIELD_NUMBER: _ClassVar[int]
    RUN_ENDED_FIELD_NUMBER: _ClassVar[int]
    server: _common_pb2.ServerState
    published: Published
    heartbeat: Heartbeat
    going_away: GoingAway
    run_ended: RunEnded
    def __init__(self, server: _Optional[_Union[_common_pb2.ServerState, _Mapping]] = ..., published: _Optional[_Union[Published, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., going_away: _Optional[_Union[GoingAway, _Mapping]] = ..., run_ended: _Optional[_Union[RunEnded, _Mapping]] = ...) -> None: ...

class Published(_message.Message):
    __slots__ = ("version", "total_bytes", "sha256", "model", "averaged_available", "encoding", "float32_sha256")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    AVERAGED_AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    FLOAT32_SHA256_FIELD_NUMBER: _ClassVar[int]
    version: int
    total_bytes: int
    sha256: bytes
    model: bytes
    averaged_available: bool
    encoding: ModelEncoding
    float32_sha256: bytes
    def __init__(self, version: _Optional[int] = ..., total_bytes: _Optional[int] = ..., sha256: _Optional[bytes] = ..., model: _Optional[bytes] = ..., averaged_available: _Optional[bool] = ..., encoding: _Optional[_Union[ModelEncoding, str]] = ..., float32_sha256: _Optional[bytes] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("interval_milliseconds",)
    INTERVAL_MILLISECONDS_FIELD_NUMBER: _ClassVar[int]
    interval_milliseconds: int
    def __init__(self, interval_milliseconds: _Optional[int] = ...) -> None: ...

class GoingAway(_message.Message):
    __slots__ = ("retry_after_milliseconds",)
    RETRY_AFTER_MILLISECONDS_FIELD_NUMBER: _ClassVar[int]
    retry_after_milliseconds: int
    def __init__(self, retry_after_milliseconds: _Optional[int] = ...) -> None: ...

class RunEnded(_message.Message):
    __slots__ = ("final_version", "reason")
    FINAL_VERSION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    final_version: int
    reason: str
    def __init__(self, final_version: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class GetModelRequest(_message.Message):
    __slots__ = ("caller", "version", "kind", "offset", "encoding")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    caller: _common_pb2.Caller
    version: int
    kind: ModelKind
    offset: int
    encoding: ModelEncoding
    def __init__(self, caller: _Optional[_Union[_common_pb2.Caller, _Mapping]] = ..., version: _Optional[int] = ..., kind: _Optional[_Union[ModelKind, str]] = ..., offset: _Optional[int] = ..., encoding: _Optional[_Union[ModelEncoding, str]] = ...) -> None: ...

class GetModelResponse(_message.Message):
    __slots__ = ("server", "version", "total_bytes", "sha256", "offset", "data", "crc32c", "encoding", "float32_sha256")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    FLOAT32_SHA256_FIELD_NUMBER: _ClassVar[int]
    server: _common_pb2.ServerState
    version: int
    total_bytes: int
    sha256: bytes
    offset: int
    data: bytes
    crc32c: int
    encoding: ModelEncoding
    float32_sha256: bytes
    def __init__(self, server: _Optional[_Union[_common_pb2.ServerState, _Mapping]] = ..., version: _Optional[int] = ..., total_bytes: _Optional[int] = ..., sha256: _Optional[bytes] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ..., crc32c: _Optional[int] = ..., encoding: _Optional[_Union[ModelEncoding, str]] = ..., float32_sha256: _Optional[bytes] = ...) -> None: ...

class ListModelsRequest(_message.Message):
    __slots__ = ("caller", "after_version")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    AFTER_VERSION_FIELD_NUMBER: _ClassVar[int]
    caller: _common_pb2.Caller
    after_version: int
    def __init__(self, caller: _Optional[_Union[_common_pb2.Caller, _Mapping]] = ..., after_version: _Optional[int] = ...) -> None: ...

class KeptModel(_message.Message):
    __slots__ = ("version", "sha256", "published_at_milliseconds", "averaged_available")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_AT_MILLISECONDS_FIELD_NUMBER: _ClassVar[int]
    AVERAGED_AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    version: int
    sha256: bytes
    published_at_milliseconds: int
    averaged_available: bool
    def __init__(self, version: _Optional[int] = ..., sha256: _Optional[bytes] = ..., published_at_milliseconds: _Optional[int] = ..., averaged_available: _Optional[bool] = ...) -> None: ...

class ListModelsResponse(_message.Message):
    __slots__ = ("server", "models", "more", "total_bytes")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    server: _common_pb2.ServerState
    models: _containers.RepeatedCompositeFieldContainer[KeptModel]
    more: bool
    total_bytes: int
    def __init__(self, server: _Optional[_Union[_common_pb2.ServerState, _Mapping]] = ..., models: _Optional[_Iterable[_Union[KeptModel, _Mapping]]] = ..., more: _Optional[bool] = ..., total_bytes: _Optional[int] = ...) -> None: ...

class GetManifestRequest(_message.Message):
    __slots__ = ("caller", "version")
    CALLER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    caller: _common_pb2.Caller
    version: int
    def __init__(self, caller: _Optional[_Union[_common_pb2.Caller, _Mapping]] = ..., version: _Optional[int] = ...) -> None: ...

class ManifestEntry(_message.Message):
    __slots__ = ("participant", "round", "digest")
    PARTICIPANT_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    participant: str
    round: int
    digest: bytes
    def __init__(self, participant: _Optional[str] = ..., round: _Optional[int] = ..., digest: _Optional[bytes] = ...) -> None: ...

class GetManifestResponse(_message.Message):
    __slots__ = ("server", "version", "previous_version", "entries")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_VERSION_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    server: _common_pb2.ServerState
    version: int
    previous_version: int
    entries: _containers.RepeatedCompositeFieldContainer[ManifestEntry]
    def __init__(self, server: _Optional[_Union[_common_pb2.ServerState, _Mapping]] = ..., version: _Optional[int] = ..., previous_version: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[ManifestEntry, _Mapping]]] = ...) -> None: ...
