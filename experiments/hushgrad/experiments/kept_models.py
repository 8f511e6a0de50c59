"""Asks a running server which versions it keeps, and fetches one of them into a .safetensors file.

Takes nothing on trust that it can check: chunks, digests, and the size that the terms give. Watches nothing and joins
nothing; whoever may receive models may do this.
"""

import hashlib
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import google_crc32c
import grpc
import numpy as np
import safetensors.numpy
from hushgrad.experiments.errors import InputError
from hushgrad.server import asking
from hushgrad.server.errors import UnreachableError
from hushgrad.v1 import common_pb2, models_pb2, models_pb2_grpc, terms_pb2, terms_pb2_grpc
from hushgrad.wire import arrays, certificates
from hushgrad.wire import terms as wire_terms
from hushgrad.wire.terms import Terms

ASK_SECONDS: Final = 10.0
NAME: Final = "models"
"""Who asks on a connection without a certificate."""

_TRIES: Final = 5
_DTYPES: Final[dict[str, "np.dtype[Any]"]] = {"float32": np.dtype("<f4"), "float16": np.dtype("<f2")}
_ENCODINGS: Final = {
    "float32": models_pb2.MODEL_ENCODING_FLOAT32,
    "float16": models_pb2.MODEL_ENCODING_FLOAT16,
}
_PASSING: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED)


@dataclass(frozen=True, slots=True)
class KeptModel:
    """One version whose model the server keeps.

    Attributes:
        sha256: over its float32 bytes, in hexadecimal digits.
        published_at: by the server's clock; None: that was not noted.
        averaged_available: whether the averaged model of this version can be fetched too.
    """

    version: int
    sha256: str
    published_at: datetime | None
    averaged_available: bool

    def plain(self) -> dict[str, Any]:
        """Returns plain values, for JSON."""
        published_at = None if self.published_at is None else self.published_at.isoformat(timespec="milliseconds")
        return {
            "version": self.version,
            "sha256": self.sha256,
            "published_at": published_at,
            "averaged_available": self.averaged_available,
        }


class Shelf:
    """The models of one server.

    Args:
        address: host:port.
        ca, certificate, key: PEM files; None: plain text, which stays on this machine.

    Raises:
        InputError: if the address or a file cannot be used.
        UnreachableError: if nobody answers.
    """

    def __init__(self, address: str, *, ca: Path | None, certificate: Path | None, key: Path | None) -> None:
        self._address = address
        self.name = NAME if certificate is None else _name_in(certificate)
        self._channel = asking.channel(address, ca=ca, certificate=certificate, key=key)
        self._models = models_pb2_grpc.ModelServiceStub(self._channel)
        with self._answers():
            answer = terms_pb2_grpc.TermsServiceStub(self._channel).GetTerms(
                terms_pb2.GetTermsRequest(), timeout=ASK_SECONDS
            )
        self.terms_digest = wire_terms.digest(answer.terms)
        self.terms: Terms = wire_terms.from_bytes(answer.terms)

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    def kept(self) -> Iterator[KeptModel]:
        """Yields the versions that the server keeps, oldest first."""
        request = models_pb2.ListModelsRequest(caller=self._caller())
        more = True
        while more:
            with self._answers():
                answer = self._models.ListModels(request, timeout=ASK_SECONDS)
            for one in answer.models:
                milliseconds = one.published_at_milliseconds
                published_at = datetime.fromtimestamp(milliseconds / 1000, UTC) if milliseconds else None
                yield KeptModel(one.version, one.sha256.hex(), published_at, one.averaged_available)
                request.after_version = one.version
            more = answer.more and bool(answer.models)

    def newest(self) -> int:
        """Returns the newest version."""
        nothing = models_pb2.ListModelsRequest(caller=self._caller(), after_version=2**63 - 1)
        with self._answers():
            return int(self._models.ListModels(nothing, timeout=ASK_SECONDS).server.newest_version)

    def get(self, version: int, *, averaged: bool, encoding: str, file: Path) -> dict[str, Any]:
        """Fetches a version into a new .safetensors file; returns what it holds, as plain values.

        Args:
            averaged: the averaged model in place of the version itself.
            encoding: "float32" or "float16".

        Raises:
            InputError: if the version is not kept, or the file is there or cannot be written. There is no file then.
        """
        if file.exists():
            raise InputError(f"{file} is there already; give another name")
        kind = models_pb2.MODEL_KIND_AVERAGED if averaged else models_pb2.MODEL_KIND_PUBLISHED
        data, first = self._fetched(version, kind, encoding)
        sha256 = hashlib.sha256(data).digest()
        if sha256 != first.sha256:
            raise UnreachableError(f"version {version} arrived damaged from {self._address}; try again")
        vector = np.frombuffer(data, _DTYPES[encoding])
        whole = first.float32_sha256 or sha256
        told = {
            "version": version,
            "kind": "averaged" if averaged else "published",
            "encoding": encoding,
            "sha256": sha256.hex(),
            "float32_sha256": whole.hex(),
            "federation": self.terms.federation,
            "terms_digest": self.terms_digest.hex(),
        }
        # Copies, because safetensors writes the memory behind a view as it lies there.
        named = {
            name: np.array(array, order="C") for name, array in arrays.unflatten(vector, self.terms.arrays).items()
        }
        temporary = file.with_name(f"{file.name}.new")
        try:
            safetensors.numpy.save_file(named, temporary, metadata={key: str(value) for key, value in told.items()})
            os.link(temporary, file)
        except FileExistsError:
            raise InputError(f"{file} is there already; give another name") from None
        except (OSError, safetensors.SafetensorError) as error:
            raise InputError(f"{file} cannot be written: {error}") from error
        finally:
            temporary.unlink(missing_ok=True)
        return {**told, "file": str(file), "parameters": self.terms.parameters}

    def _fetched(self, version: int, kind: int, encoding: str) -> tuple[bytearray, models_pb2.GetModelResponse]:
        size = _DTYPES[encoding].itemsize * self.terms.parameters
        held, first = bytearray(), models_pb2.GetModelResponse()
        for left in reversed(range(_TRIES)):
            request = models_pb2.GetModelRequest(
                caller=self._caller(),
                version=version,
                kind=kind,  # type: ignore[arg-type]
                offset=len(held),
                encoding=_ENCODINGS[encoding],
            )
            try:
                for message in self._models.GetModel(request):
                    if message.sha256:
                        first = message
                        self._check(message, encoding, size)
                    if message.offset != len(held) or google_crc32c.value(message.data) != message.crc32c:
                        raise UnreachableError(f"a chunk of version {version} arrived damaged; try again")
                    held += message.data
            except grpc.RpcError as error:
                if left == 0 or error.code() not in _PASSING:
                    self._raise(error)
                continue
            if len(held) == size:
                return held, first
        raise UnreachableError(f"version {version} broke off after {len(held)} of {size} bytes; try again")

    def _check(self, message: models_pb2.GetModelResponse, encoding: str, size: int) -> None:
        sent = message.encoding or models_pb2.MODEL_ENCODING_FLOAT32
        if sent != _ENCODINGS[encoding]:
            raise InputError(f"{self._address} does not send {encoding}, it is older than that; ask for float32")
        if message.total_bytes != size:
            raise UnreachableError(
                f"{self._address} sends {message.total_bytes} bytes, where the terms' {self.terms.parameters} "
                f"parameters take {size}"
            )

    def _caller(self) -> common_pb2.Caller:
        return common_pb2.Caller(terms_digest=self.terms_digest, participant=self.name)

    @contextmanager
    def _answers(self) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as error:
            self._raise(error)

    def _raise(self, error: Any) -> None:
        said = " ".join((error.details() or "").split())
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            raise InputError(
                f"{self._address} hands out no list of models: it is older than this, or the listener for people; give "
                "the server's main address"
            ) from None
        if error.code() is grpc.StatusCode.NOT_FOUND:
            raise InputError(f"{said}; `hushgrad models list {self._address}` says which are kept") from None
        if error.code() in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED):
            raise InputError(f"{self._address} refuses: {said}") from None
        raise UnreachableError(f"{self._address} does not answer: {error.code().name}: {said}") from None


def size_text(count: int) -> str:
    """Returns a number of bytes for people.

    >>> size_text(276), size_text(40_000_000)
    ('276 B', '40.0 MB')
    """
    power = min(3, int(math.log10(max(count, 1)) // 3))
    return f"{count} B" if power == 0 else f"{count / 1000**power:.1f} {('', 'kB', 'MB', 'GB')[power]}"


def _name_in(certificate: Path) -> str:
    try:
        return certificates.read(certificate.read_bytes()).identity.name
    except OSError as error:
        raise InputError(f"--tls-certificate {certificate} cannot be read: {error.strerror}") from None
