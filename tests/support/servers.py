"""Real server processes on loopback, and a plain client that speaks the contract to them."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import google_crc32c
import grpc
import numpy as np
from hushgrad.server import database
from hushgrad.server.folder import StateFolder
from hushgrad.v1 import (
    common_pb2,
    membership_pb2,
    membership_pb2_grpc,
    models_pb2,
    models_pb2_grpc,
    status_pb2,
    status_pb2_grpc,
    terms_pb2,
    terms_pb2_grpc,
    updates_pb2,
    updates_pb2_grpc,
)
from hushgrad.wire.terms import Terms

from tests.support.federations import Sealed, Sender

START_SECONDS = 20.0


def make_state(root: Path, terms: Terms) -> None:
    """Makes the state of a federation with zeros as version 0, and a server.toml, in a folder."""
    folder = StateFolder(root / "server")
    folder.make()
    database.create(folder, terms, terms.to_bytes(), np.zeros(terms.parameters, np.float32))
    configure(root)


def configure(root: Path, **keys: object) -> None:
    """Writes a server.toml. Tests' updates are random numbers of all sizes, which no honest participant sends."""
    keys = {
        "listen": "127.0.0.1:0",
        "heartbeat_seconds": 0.2,
        "linger_seconds": 20.0,
        "improbable_updates": "accept-and-flag",
        **keys,
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items() if not isinstance(value, dict)]
    for name, table in keys.items():
        if isinstance(table, dict):
            lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    (root / "server.toml").write_text("\n".join(lines) + "\n")


class ServerProcess:
    """One `hushgrad-server run` in a folder.

    Attributes:
        address: where it listens.
        ready_seconds: from the start of the process to the line that says so.
    """

    def __init__(
        self,
        root: Path,
        *arguments: str,
        preexec: Callable[[], None] | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        """Args: prefix is a command that runs the server."""
        self.log_path = root / f"server-{time.monotonic_ns()}.log"
        started = time.monotonic()
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                [*prefix, sys.executable, "-m", "hushgrad.server", "run", "--log-format", "json", *arguments],
                cwd=root,
                stderr=log,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
                preexec_fn=preexec,
            )
        while not (events := self.events("listening")):
            if self.process.poll() is not None or time.monotonic() - started > START_SECONDS:
                self.process.kill()
                raise AssertionError(f"the server did not start: {self.log_path.read_text()}")
            time.sleep(0.01)
        self.ready_seconds = time.monotonic() - started
        self.address = events[0]["address"]

    def events(self, name: str) -> list[dict]:
        """Returns the log events with a name."""
        found = []
        for line in self.log_path.read_text().splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                event = json.loads(line)
                if event.get("event") == name:
                    found.append(event)
        return found

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Sends a signal and returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.process.wait(timeout=20)

    def __enter__(self) -> "ServerProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(signal.SIGKILL)


class Client:
    """Speaks for one sender."""

    def __init__(self, address: str, sender: Sender) -> None:
        self.sender = sender
        self.use(grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]))

    def use(self, channel: grpc.Channel) -> None:
        """Speaks over another channel from now on."""
        self.channel = channel
        self.terms = terms_pb2_grpc.TermsServiceStub(self.channel)
        self.membership = membership_pb2_grpc.MembershipServiceStub(self.channel)
        self.updates = updates_pb2_grpc.UpdateServiceStub(self.channel)
        self.models = models_pb2_grpc.ModelServiceStub(self.channel)
        self.status_stub = status_pb2_grpc.StatusServiceStub(self.channel)

    @property
    def caller(self) -> common_pb2.Caller:
        """Who calls."""
        sender = self.sender
        return common_pb2.Caller(terms_digest=sender.terms_digest, participant=sender.name, session=sender.session)

    def close(self) -> None:
        """Closes the channel."""
        self.channel.close()

    def get_terms(self) -> terms_pb2.GetTermsResponse:
        """Asks for the terms."""
        return self.terms.GetTerms(terms_pb2.GetTermsRequest(), timeout=10)

    def status(self) -> status_pb2.GetStatusResponse:
        """Asks for a snapshot."""
        return self.status_stub.GetStatus(status_pb2.GetStatusRequest(), timeout=10)

    def join(self, join_id: bytes = bytes(16)) -> membership_pb2.JoinResponse:
        """Joins."""
        answer = self.membership.Join(membership_pb2.JoinRequest(caller=self.caller, join_id=join_id), timeout=10)
        self.sender.session = answer.session
        return answer

    def start(self, next_round: int = 0) -> membership_pb2.StartResponse:
        """Starts."""
        request = membership_pb2.StartRequest(caller=self.caller, next_round=next_round)
        return self.membership.Start(request, timeout=10)

    def request(self, sealed: Sealed) -> updates_pb2.SubmitUpdateRequest:
        """Returns the message for a sealed update."""
        return updates_pb2.SubmitUpdateRequest(
            caller=self.caller,
            header=sealed.header,
            payload=sealed.payload,
            crc32c=google_crc32c.value(sealed.header + sealed.payload),
        )

    def submit(self, sealed: Sealed) -> updates_pb2.SubmitUpdateResponse:
        """Submits."""
        return self.updates.SubmitUpdate(self.request(sealed), timeout=10)

    def pieces(
        self, sealed: Sealed, offset: int = 0, end: int | None = None, size: int = 2**16
    ) -> Iterator[updates_pb2.UploadUpdateRequest]:
        """Yields the messages of an upload from an offset on, up to `end`."""
        yield updates_pb2.UploadUpdateRequest(
            start=updates_pb2.UploadStart(caller=self.caller, header=sealed.header, digest=sealed.digest, offset=offset)
        )
        end = len(sealed.payload) if end is None else end
        for at in range(offset, end, size):
            data = sealed.payload[at : min(at + size, end)]
            yield updates_pb2.UploadUpdateRequest(
                chunk=updates_pb2.UploadChunk(offset=at, data=data, crc32c=google_crc32c.value(data))
            )

    def received(self, sealed: Sealed) -> int:
        """Asks how much of an upload arrived."""
        request = updates_pb2.GetUploadRequest(caller=self.caller, digest=sealed.digest)
        return self.updates.GetUpload(request, timeout=10).received_bytes

    def watch(self, after: int | None = None) -> Iterator[models_pb2.WatchModelsResponse]:
        """Watches."""
        return self.models.WatchModels(models_pb2.WatchModelsRequest(caller=self.caller, after_version=after))

    def model(
        self, version: int, kind: int = models_pb2.MODEL_KIND_PUBLISHED, offset: int = 0
    ) -> list[models_pb2.GetModelResponse]:
        """Fetches one version."""
        request = models_pb2.GetModelRequest(caller=self.caller, version=version, kind=kind, offset=offset)
        return list(self.models.GetModel(request, timeout=20))

    def manifest(self, version: int) -> models_pb2.GetManifestResponse:
        """Asks which updates a version added."""
        return self.models.GetManifest(models_pb2.GetManifestRequest(caller=self.caller, version=version), timeout=10)

    def wait_for_version(self, version: int, seconds: float = 10.0) -> None:
        """Waits until a version is published."""
        deadline = time.monotonic() + seconds
        while self.status().server.newest_version < version:
            if time.monotonic() > deadline:
                raise AssertionError(f"version {version} did not come: {self.status().waiting_for}")
            time.sleep(0.01)
