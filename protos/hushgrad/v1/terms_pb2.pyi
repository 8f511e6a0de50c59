from hushgrad.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ElementType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ELEMENT_TYPE_UNSPECIFIED: _ClassVar[ElementType]
    ELEMENT_TYPE_INT32: _ClassVar[ElementType]
    ELEMENT_TYPE_INT64: _ClassVar[ElementType]

class Sampler(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SAMPLER_UNSPECIFIED: _ClassVar[Sampler]
    SAMPLER_POISSON: _ClassVar[Sampler]
    SAMPLER_FIXED: _ClassVar[Sampler]
ELEMENT_TYPE_UNSPECIFIED: ElementType
ELEMENT_TYPE_INT32: ElementType
ELEMENT_TYPE_INT64: ElementType
SAMPLER_UNSPECIFIED: Sampler
SAMPLER_POISSON: Sampler
SAMPLER_FIXED: Sampler

class GetTermsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetTermsResponse(_message.Message):
    __slots__ = ("server", "terms", "terms_digest")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    TERMS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    server: _common_pb2.ServerState
    terms: bytes
    terms_digest: bytes
    def __init__(self, server: _Optional[_Union[_common_pb2.ServerState, _Mapping]] = ..., terms: _Optional[bytes] = ..., terms_digest: _Optional[bytes] = ...) -> None: ...

class ArraySpec(_message.Message):
    __slots__ = ("name", "shape")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ...) -> None: ...

class PermissibleDelay(_message.Message):
    __slots__ = ("kind", "max_delay")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[PermissibleDelay.Kind]
        KIND_MAX_DELAY: _ClassVar[PermissibleDelay.Kind]
        KIND_SQRT: _ClassVar[PermissibleDelay.Kind]
        KIND_UNBOUNDED: _ClassVar[PermissibleDelay.Kind]
    KIND_UNSPECIFIED: PermissibleDelay.Kind
    KIND_MAX_DELAY: PermissibleDelay.Kind
    KIND_SQRT: PermissibleDelay.Kind
    KIND_UNBOUNDED: PermissibleDelay.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    MAX_DELAY_FIELD_NUMBER: _ClassVar[int]
    kind: PermissibleDelay.Kind
    max_delay: int
    def __init__(self, kind: _Optional[_Union[PermissibleDelay.Kind, str]] = ..., max_delay: _Optional[int] = ...) -> None: ...

class PrivacyTerms(_message.Message):
    __slots__ = ("clip_norm", "noise_multiplier_min", "noise_multiplier_max", "samplers", "max_examples_per_round", "insecure_noise_allowed", "caller_clipping_forbidden")
    CLIP_NORM_FIELD_NUMBER: _ClassVar[int]
    NOISE_MULTIPLIER_MIN_FIELD_NUMBER: _ClassVar[int]
    NOISE_MULTIPLIER_MAX_FIELD_NUMBER: _ClassVar[int]
    SAMPLERS_FIELD_NUMBER: _ClassVar[int]
    MAX_EXAMPLES_PER_ROUND_FIELD_NUMBER: _ClassVar[int]
    INSECURE_NOISE_ALLOWED_FIELD_NUMBER: _ClassVar[int]
    CALLER_CLIPPING_FORBIDDEN_FIELD_NUMBER: _ClassVar[int]
    clip_norm: float
    noise_multiplier_min: float
    noise_multiplier_max: float
    samplers: _containers.RepeatedScalarFieldContainer[Sampler]
    max_examples_per_round: int
    insecure_noise_allowed: bool
    caller_clipping_forbidden: bool
    def __init__(self, clip_norm: _Optional[float] = ..., noise_multiplier_min: _Optional[float] = ..., noise_multiplier_max: _Optional[float] = ..., samplers: _Optional[_Iterable[_Union[Sampler, str]]] = ..., max_examples_per_round: _Optional[int] = ..., insecure_noise_allowed: _Optional[bool] = ..., caller_clipping_forbidden: _Optional[bool] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("max_unary_bytes", "max_chunk_bytes", "max_inline_model_bytes")
    MAX_UNARY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_CHUNK_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_INLINE_MODEL_BYTES_FIELD_NUMBER: _ClassVar[int]
    max_unary_bytes: int
    max_chunk_bytes: int
    max_inline_model_bytes: int
    def __init__(self, max_unary_bytes: _Optional[int] = ..., max_chunk_bytes: _Optional[int] = ..., max_inline_model_bytes: _Optional[int] = ...) -> None: ...

class Terms(_message.Message):
    __slots__ = ("protocol", "federation_id", "federation", "model", "arrays", "initial_model_sha256", "element_type", "grid_exponent", "step_exponent", "step_numerators", "sample_sizes", "delay", "window", "final_version", "publish_every", "participants", "largest_number_of_participants", "straggler_timeout_seconds", "start_timeout_seconds", "privacy", "limits")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    FEDERATION_ID_FIELD_NUMBER: _ClassVar[int]
    FEDERATION_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ARRAYS_FIELD_NUMBER: _ClassVar[int]
    INITIAL_MODEL_SHA256_FIELD_NUMBER: _ClassVar[int]
    ELEMENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    GRID_EXPONENT_FIELD_NUMBER: _ClassVar[int]
    STEP_EXPONENT_FIELD_NUMBER: _ClassVar[int]
    STEP_NUMERATORS_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_SIZES_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    FINAL_VERSION_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_EVERY_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANTS_FIELD_NUMBER: _ClassVar[int]
    LARGEST_NUMBER_OF_PARTICIPANTS_FIELD_NUMBER: _ClassVar[int]
    STRAGGLER_TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    START_TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PRIVACY_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    federation_id: bytes
    federation: str
    model: str
    arrays: _containers.RepeatedCompositeFieldContainer[ArraySpec]
    initial_model_sha256: bytes
    element_type: ElementType
    grid_exponent: int
    step_exponent: int
    step_numerators: _containers.RepeatedScalarFieldContainer[int]
    sample_sizes: _containers.RepeatedScalarFieldContainer[int]
    delay: PermissibleDelay
    window: int
    final_version: int
    publish_every: int
    participants: _containers.RepeatedScalarFieldContainer[str]
    largest_number_of_participants: int
    straggler_timeout_seconds: float
    start_timeout_seconds: float
    privacy: PrivacyTerms
    limits: Limits
    def __init__(self, protocol: _Optional[int] = ..., federation_id: _Optional[bytes] = ..., federation: _Optional[str] = ..., model: _Optional[str] = ..., arrays: _Optional[_Iterable[_Union[ArraySpec, _Mapping]]] = ..., initial_model_sha256: _Optional[bytes] = ..., element_type: _Optional[_Union[ElementType, str]] = ..., grid_exponent: _Optional[int] = ..., step_exponent: _Optional[int] = ..., step_numerators: _Optional[_Iterable[int]] = ..., sample_sizes: _Optional[_Iterable[int]] = ..., delay: _Optional[_Union[PermissibleDelay, _Mapping]] = ..., window: _Optional[int] = ..., final_version: _Optional[int] = ..., publish_every: _Optional[int] = ..., participants: _Optional[_Iterable[str]] = ..., largest_number_of_participants: _Optional[int] = ..., straggler_timeout_seconds: _Optional[float] = ..., start_timeout_seconds: _Optional[float] = ..., privacy: _Optional[_Union[PrivacyTerms, _Mapping]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ...) -> None: ...
