from hushgrad.v1 import common_pb2 as _common_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EnrollRequest(_message.Message):
    __slots__ = ("token", "signing_request")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    SIGNING_REQUEST_FIELD_NUMBER: _ClassVar[int]
    token: str
    signing_request: bytes
    def __init__(self, token: _Optional[str] = ..., signing_request: _Optional[bytes] = ...) -> None: ...

class EnrollResponse(_message.Message):
    __slots__ = ("server", "certificate")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    server: _common_pb2.ServerState
    certificate: bytes
    def __init__(self, server: _Optional[_Union[_common_pb2.ServerState, _Mapping]] = ..., certificate: _Optional[bytes] = ...) -> None: ...

class RenewRequest(_message.Message):
    __slots__ = ("signing_request",)
    SIGNING_REQUEST_FIELD_NUMBER: _ClassVar[int]
    signing_request: bytes
    def __init__(self, signing_request: _Optional[bytes] = ...) -> None: ...

class RenewResponse(_message.Message):
    __slots__ = ("server", "certificate")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    server: _common_pb2.ServerState
    certificate: bytes
    def __init__(self, server: _Optional[_Union[_common_pb2.ServerState, _Mapping]] = ..., certificate: _Optional[bytes] = ...) -> None: ...
