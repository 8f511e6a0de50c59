"""A small client of its own making, right when FAULT is empty and wrong in one way when it names a fault.

Of ours it uses the stubs alone; beside them grpcio, protobuf and numpy. FAULTS lists its ways to be wrong; each is one
`fault(...)` beside the line that would be right. Its accounting is crude (zero-concentrated DP of the
Gaussian mechanism, no gain from sampling), which is safe.
"""

import hashlib
import json
import math
import os
import secrets
import sqlite3
import struct
import sys
import threading
import time

import grpc
import numpy as np
from hushgrad.v1 import (
    common_pb2,
    membership_pb2,
    membership_pb2_grpc,
    models_pb2,
    models_pb2_grpc,
    terms_pb2,
    terms_pb2_grpc,
    updates_pb2,
    updates_pb2_grpc,
)

FAULTS = {
    "fresh-noise-on-a-resend": "draws noise again when an answer was lost",
    "no-noise": "sends the clipped sum as it is",
    "half-noise": "adds noise of half the declared deviation",
    "seeded-noise": "draws noise from a fixed seed",
    "float-rounding": "adds and rounds in 32-bit floating point",
    "fixed-batches": "declares Poisson sampling and takes a fixed number of records",
    "clip-per-batch": "clips the sum of a batch, not each gradient",
    "realised-divisor": "divides the sum by the number of records that took part",
    "high-water-mark": "takes an accepted round as word for all earlier ones",
    "ignore-busy": "sends again at once when the server is busy",
    "send-before-seal": "writes an update down only after it was sent",
    "older-model": "takes whatever model came last",
    "ignore-budget": "never asks what a run costs",
    "big-endian": "writes its numbers in network order",
    "no-clip": "does not clip",
    "uniform-noise": "adds uniform noise of the declared deviation",
    "shared-noise": "adds one number to all coordinates",
    "carried-noise": "takes half of the last round's noise along",
    "probability-from-rows": "computes q from the rows that it has, not from the declared records",
    "wrapping": "lets large sums wrap around",
    "ignore-delay": "begins rounds before the permissible delay allows it",
    "resend-invalid": "sends refused content again",
    "ignore-conflict": "goes on after a conflict",
    "ignore-anchor": "does not look for the server's ledger row in its own ledger",
    "beyond-the-end": "begins rounds at and after the final version",
    "broken-chain": "hashes every row onto the first head",
    "wrong-crc": "computes CRC-32 in place of CRC-32C",
    "ignore-entry": "begins with round 0 whatever the server says",
    "ignore-suspension": "goes on while it is suspended",
    "unpinned-terms": "takes part in whatever federation answers at the address",
    "impatient": "sends again when it was told to wait for a newer version",
    "unchecked-model": "does not compare a model with its checksum",
    "hasty": "watches again at once when the server goes away for a while",
    "deaf": "waits for ever on a watch on which nothing comes any more",
    "ignore-epoch": "takes no notice of a server that was restored",
    "silent-about-held": "does not tell a restored server what it holds",
    "half-told": "tells a restored server what it holds, and not that this is all",
}
FAULT = os.environ.get("FAULT", "")
FINAL = {common_pb2.ANSWER_INVALID, common_pb2.ANSWER_STALE}
HALTING = {
    common_pb2.ANSWER_CONFLICT, common_pb2.ANSWER_STALE_SESSION, common_pb2.ANSWER_WRONG_TERMS,
    common_pb2.ANSWER_UNKNOWN_PARTICIPANT, common_pb2.ANSWER_UNSPECIFIED,
}  # fmt: skip
RETRYABLE = {
    grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.CANCELLED, grpc.StatusCode.ABORTED,
}  # fmt: skip


def fault(name):
    assert name in FAULTS
    return name == FAULT


def stop(code, why):
    print(why, flush=True)
    os._exit(code)


def crc32c(data):
    polynomial = 0xEDB88320 if fault("wrong-crc") else 0x82F63B78
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (polynomial if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


class Ledger:
    """Sealed updates and what became of them; a row is on the disk before `seal` returns."""

    def __init__(self, folder):
        self.database = sqlite3.connect(os.path.join(folder, "ledger.sqlite"), isolation_level=None)
        self.database.execute("PRAGMA journal_mode=WAL")
        self.database.execute("PRAGMA synchronous=FULL")
        self.database.execute("CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value BLOB)")
        self.database.execute(
            "CREATE TABLE IF NOT EXISTS rows (n INTEGER PRIMARY KEY, round INTEGER UNIQUE, header BLOB, payload BLOB, "
            "head BLOB, state TEXT, included_in INTEGER)"
        )
        self.first_head = hashlib.sha256(b"hushgrad ledger" + self.about("id", secrets.token_bytes(16))).digest()

    def about(self, name, value):
        """Returns the value written down under a name; writes this one if there is none."""
        self.database.execute("INSERT OR IGNORE INTO about VALUES (?, ?)", (name, value))
        return self.database.execute("SELECT value FROM about WHERE name = ?", (name,)).fetchone()[0]

    def last(self):
        row = self.database.execute("SELECT n, head FROM rows ORDER BY n DESC LIMIT 1").fetchone()
        return row or (0, self.first_head)

    def head_at(self, n):
        row = self.database.execute("SELECT head FROM rows WHERE n = ?", (n,)).fetchone()
        return row[0] if row else None

    def seal(self, round_, header, payload):
        n, previous = self.last()
        head = hashlib.sha256(previous + hashlib.sha256(header + payload).digest()).digest()
        self.database.execute(
            "INSERT INTO rows VALUES (?, ?, ?, ?, ?, 'open', 0)", (n + 1, round_, header, payload, head)
        )

    def mark(self, round_, state, included_in=0):
        self.database.execute(
            "UPDATE rows SET state = ?, included_in = ? WHERE round = ?", (state, included_in, round_)
        )

    def forget(self, watermark):
        self.database.execute(
            "UPDATE rows SET payload = NULL, state = 'covered' WHERE state = 'accepted' AND included_in <= ?",
            (watermark,),
        )

    def open(self):
        return self.database.execute("SELECT round, header, payload FROM rows WHERE state = 'open' ORDER BY round")

    def rounds(self):
        return {round_ for (round_,) in self.database.execute("SELECT round FROM rows")}

    def want(self, round_):
        """Makes an accepted update open again; says whether its bytes are still there."""
        found = self.database.execute("SELECT payload FROM rows WHERE round = ?", (round_,)).fetchone()
        if found is None or found[0] is None:
            return False
        self.database.execute("UPDATE rows SET state = 'open' WHERE round = ? AND state = 'accepted'", (round_,))
        return True


class Client:
    def __init__(self):
        self.name = os.environ["HUSHGRAD_PARTICIPANT"]
        self.privacy = json.loads(os.environ["HUSHGRAD_PRIVACY"])
        with np.load(os.environ["HUSHGRAD_DATA"]) as file:
            self.X, self.y = file["X"], file["y"]
        self.ledger = Ledger(os.environ["HUSHGRAD_STATE_DIR"])
        self.generator = np.random.default_rng(7 if fault("seeded-noise") else secrets.randbits(256))
        channel = grpc.insecure_channel(
            os.environ["HUSHGRAD_SERVER"],
            [("grpc.enable_retries", 0), ("grpc.initial_reconnect_backoff_ms", 200),
             ("grpc.min_reconnect_backoff_ms", 200), ("grpc.max_reconnect_backoff_ms", 1000)],
        )  # fmt: skip
        self.terms_service = terms_pb2_grpc.TermsServiceStub(channel)
        self.membership = membership_pb2_grpc.MembershipServiceStub(channel)
        self.updates = updates_pb2_grpc.UpdateServiceStub(channel)
        self.models = models_pb2_grpc.ModelServiceStub(channel)
        self.changed = threading.Condition()
        self.version, self.model, self.newest, self.watermark, self.ended = -1, None, 0, 0, False
        self.base, self.local, self.carried = -1, None, 0
        self.session, self.participation = 0, membership_pb2.Participation()
        self.epoch, self.joined, self.stream, self.heard_at, self.interval = 0, False, None, time.monotonic(), 5.0
        self.not_before, self.after_version = 0.0, {}

    # Calls.

    def caller(self):
        return common_pb2.Caller(terms_digest=self.digest, participant=self.name, session=self.session)

    def call(self, method, request, seconds=10):
        """Calls until there is an answer; BUSY is no answer."""
        wait = 0.2
        while True:
            try:
                answer = method(request, timeout=seconds)
            except grpc.RpcError as error:
                if error.code() not in RETRYABLE:
                    stop(5, f"the server refused a call: {error.code()} {error.details()}")
                time.sleep(wait)
                wait = min(2 * wait, 5.0)
                continue
            if not hasattr(answer, "verdict"):
                return answer
            self.see(answer.verdict.server)
            if answer.verdict.answer == common_pb2.ANSWER_BUSY:
                time.sleep(min(answer.verdict.retry_after_milliseconds / 1000 or wait, 60.0))
                continue
            self.check(answer.verdict)
            if answer.HasField("participation"):
                self.take(answer.participation)
            return answer

    def check(self, verdict):
        if verdict.answer in HALTING and not fault("ignore-conflict"):
            stop(5, f"the server answered {common_pb2.Answer.Name(verdict.answer)}: {verdict.detail}")
        if verdict.answer == common_pb2.ANSWER_RUN_ENDED:
            self.ended = True

    def see(self, server):
        with self.changed:
            if server.server_epoch > self.epoch and not fault("ignore-epoch"):
                self.joined = False
                self.epoch, self.newest, self.watermark = server.server_epoch, 0, 0
            if server.server_epoch == self.epoch or fault("ignore-epoch"):
                self.newest = max(self.newest, server.newest_version)
                self.watermark = max(self.watermark, server.retention_watermark)
            self.changed.notify_all()

    def take(self, participation):
        self.participation = participation
        for round_ in participation.wanted_rounds:
            if fault("high-water-mark") and round_ < max(self.ledger.rounds()):
                continue
            if not self.ledger.want(round_):
                report = membership_pb2.RoundReport(round=round_, fate=membership_pb2.RoundReport.FATE_VOID)
                self.membership.ReportRounds(
                    membership_pb2.ReportRoundsRequest(caller=self.caller(), reports=[report]), timeout=10
                )

    # The terms, before anything is drawn.

    def agree(self):
        answer = self.call(self.terms_service.GetTerms, terms_pb2.GetTermsRequest())
        self.digest = hashlib.sha256(answer.terms).digest()
        if self.digest != answer.terms_digest:
            stop(5, "the digest of the terms is not the digest of the terms")
        if self.ledger.about("terms", self.digest) != self.digest and not fault("unpinned-terms"):
            stop(5, "this ledger belongs to another federation")
        self.terms = terms = terms_pb2.Terms.FromString(answer.terms)
        self.d = sum(math.prod(array.shape) for array in terms.arrays)
        offered, mine = terms.privacy, self.privacy
        if terms.protocol != 1 or terms.model != "logistic" or self.d != self.X.shape[1] + 1:
            stop(2, "these are terms for another model")
        if offered.clip_norm != mine["clip_norm"] or terms_pb2.SAMPLER_POISSON not in offered.samplers:
            stop(2, "the terms ask for another clip norm or sampler")
        if not offered.noise_multiplier_min <= mine["noise_multiplier"] <= offered.noise_multiplier_max:
            stop(2, "the terms ask for other noise")
        if 4 * self.d > terms.limits.max_unary_bytes:
            stop(2, "updates are too large for one message, and this client has no other way")
        rho = terms.final_version / (2 * mine["noise_multiplier"] ** 2)
        cost = rho + 2 * math.sqrt(rho * math.log(1 / mine["delta"]))
        if cost > mine["epsilon"] and not fault("ignore-budget"):
            stop(3, f"the run costs epsilon {cost:.3g}, the budget is {mine['epsilon']:g}")

    def join(self):
        request = membership_pb2.JoinRequest(caller=self.caller(), join_id=secrets.token_bytes(16))
        answer = self.call(self.membership.Join, request)
        anchor = answer.ledger
        if anchor.sequence and self.ledger.head_at(anchor.sequence) != anchor.head and not fault("ignore-anchor"):
            stop(5, "the server has seen a ledger row that is not in this ledger")
        self.session, self.joined = answer.session, True
        if self.epoch > 1 and not fault("silent-about-held"):
            self.tell()

    def tell(self):
        """Tells a restored server what is held, and that this is all; what it lacks becomes open again."""
        held = self.ledger.database.execute(
            "SELECT round, header, payload FROM rows WHERE payload IS NOT NULL ORDER BY round"
        ).fetchall()
        reports = [
            membership_pb2.RoundReport(
                round=round_, fate=membership_pb2.RoundReport.FATE_HELD,
                digest=hashlib.sha256(header + payload).digest(),
            )
            for round_, header, payload in held
        ]  # fmt: skip
        request = membership_pb2.ReportRoundsRequest(caller=self.caller(), reports=reports)
        if not fault("half-told"):
            request.held_below = max(self.ledger.rounds(), default=-1) + 1
        self.call(self.membership.ReportRounds, request)

    # Watching.

    def watch(self):
        wait = 0.2
        while True:
            request = models_pb2.WatchModelsRequest(caller=self.caller())
            if self.version >= 0:
                request.after_version = self.version
            try:
                self.stream = self.models.WatchModels(request)
                for message in self.stream:
                    wait, self.heard_at = 0.2, time.monotonic()
                    self.see(message.server)
                    kind = message.WhichOneof("event")
                    if kind == "heartbeat":
                        self.interval = message.heartbeat.interval_milliseconds / 1000
                    if kind == "going_away" and not fault("hasty"):
                        wait = max(wait, min(message.going_away.retry_after_milliseconds / 1000, 60.0))
                    if kind == "published":
                        self.received(message.published)
                    elif kind == "run_ended":
                        with self.changed:
                            self.ended = True
                            self.changed.notify_all()
                        return
            except grpc.RpcError as error:
                if error.code() not in RETRYABLE:
                    stop(5, f"the watch was refused: {error.code()}")
            time.sleep(wait)
            wait, self.heard_at = min(2 * wait, 5.0), time.monotonic()

    def received(self, published):
        data = published.model
        if not data:
            request = models_pb2.GetModelRequest(caller=self.caller(), version=published.version)
            data = b"".join(chunk.data for chunk in self.models.GetModel(request, timeout=60))
        if hashlib.sha256(data).digest() != published.sha256 and not fault("unchecked-model"):
            stop(5, f"version {published.version} does not have its checksum")
        if published.version == 0 and hashlib.sha256(data).digest() != self.terms.initial_model_sha256:
            stop(5, "version 0 is not the one of the terms")
        with self.changed:
            if published.version > self.version or fault("older-model"):
                self.version, self.model = published.version, np.frombuffer(data, "<f4").astype(np.float64)
            self.changed.notify_all()

    # Training.

    def permitted(self, round_):
        k, delay = self.version, self.terms.delay
        if k >= round_ or fault("ignore-delay"):
            return True
        if delay.kind == terms_pb2.PermissibleDelay.KIND_UNBOUNDED:
            return round_ < self.newest + self.terms.window
        if delay.kind == terms_pb2.PermissibleDelay.KIND_MAX_DELAY:
            return k >= round_ - delay.max_delay and round_ < self.newest + self.terms.window
        sizes = self.terms.sample_sizes
        size = lambda j: sizes[min(j, len(sizes) - 1)]  # noqa: E731
        t = sum(size(j) for j in range(round_))
        return t >= 3 and sum(size(j) for j in range(k, round_)) <= math.sqrt(t / math.log(t))

    def clipped_sum(self, rows):
        X, y, clip = self.X[rows], self.y[rows], self.privacy["clip_norm"]
        scores = X @ self.local[:-1] + self.local[-1]
        with np.errstate(over="ignore"):
            residuals = 1 / (1 + np.exp(-scores)) - y
        gradients = np.column_stack([residuals[:, None] * X, residuals])
        if fault("no-clip"):
            return gradients.sum(axis=0)
        if fault("clip-per-batch"):
            total = gradients.sum(axis=0)
            return total * min(1, clip / max(np.linalg.norm(total), 1e-300))
        norms = np.linalg.norm(gradients, axis=1)
        return (gradients * np.minimum(1, clip / np.maximum(norms, 1e-300))[:, None]).sum(axis=0)

    def noise(self, scale):
        """Returns noise of the deviation `scale`, in grid steps."""
        if fault("no-noise"):
            return np.zeros(self.d)
        if fault("uniform-noise"):
            return self.generator.uniform(-1, 1, self.d) * scale * math.sqrt(3)
        if fault("shared-noise"):
            return np.full(self.d, self.generator.normal() * scale)
        fresh = self.generator.normal(size=self.d) * scale * (0.5 if fault("half-noise") else 1)
        if fault("carried-noise"):
            self.carried = 0.5 * self.carried + math.sqrt(0.75) * fresh
            return self.carried
        return fresh

    def train(self, round_):
        terms, mine, rows = self.terms, self.privacy, len(self.X)
        if self.version > self.base or (fault("older-model") and self.version != self.base):
            self.base, self.local = self.version, self.model.copy()
        sizes = terms.sample_sizes
        size = sizes[min(round_, len(sizes) - 1)]
        if fault("fixed-batches"):
            chosen = self.generator.permutation(rows)[:size]
        else:
            records = rows if fault("probability-from-rows") else mine["records"]
            chosen = np.flatnonzero(self.generator.random(rows) < size / records)
        total = self.clipped_sum(chosen)
        if fault("realised-divisor"):
            total = total / max(1, len(chosen))
        grid = 2.0**terms.grid_exponent
        noise = self.noise(mine["noise_multiplier"] * mine["clip_norm"] / grid)
        if fault("float-rounding"):
            update = np.rint((np.float32(total) + np.float32(noise * grid)) / np.float32(grid)).astype(np.float64)
        else:
            update = np.rint(total / grid) + np.rint(noise)
        if fault("wrapping"):
            update = update.astype(np.int64).astype(np.int32).astype(np.float64)
        update = np.clip(update, -(2**31 - 1), 2**31 - 1).astype(np.int64)
        numerators = terms.step_numerators
        step = numerators[min(round_, len(numerators) - 1)] * 2.0**-terms.step_exponent
        self.local = self.local - step * grid * update
        return update.astype(">i4" if fault("big-endian") else "<i4").tobytes()

    def header(self, round_, payload):
        n, head = self.ledger.last()
        if fault("broken-chain"):
            head = self.ledger.first_head
        return struct.pack(
            "<8sI32s64sQIIddQ32sIQ", b"HGUPDATE", 1, self.digest, self.name.encode(), round_,
            self.terms.element_type, terms_pb2.SAMPLER_POISSON, self.privacy["noise_multiplier"],
            self.privacy["clip_norm"], n + 1, head, 0, len(payload),
        )  # fmt: skip

    # Rounds.

    def next_round(self):
        spent = max(self.ledger.rounds(), default=-1) + 1
        return spent if fault("ignore-entry") else max(spent, self.participation.entry_round)

    def send(self, round_, header, payload):
        request = updates_pb2.SubmitUpdateRequest(
            caller=self.caller(), header=header, payload=payload, crc32c=crc32c(header + payload)
        )
        try:
            answer = self.updates.SubmitUpdate(request, timeout=30)
        except grpc.RpcError as error:
            if error.code() not in RETRYABLE:
                stop(5, f"the server refused an update: {error.code()} {error.details()}")
            if fault("fresh-noise-on-a-resend"):
                self.redraw(round_)
            self.not_before = time.monotonic() + 0.2
            return
        self.see(answer.verdict.server)
        self.check(answer.verdict)
        word = answer.verdict.answer
        word = answer.first_answer if word == common_pb2.ANSWER_DUPLICATE else word
        if word == common_pb2.ANSWER_ACCEPTED or (fault("ignore-conflict") and word in HALTING):
            self.ledger.mark(round_, "accepted", answer.included_in)
            if fault("high-water-mark"):
                for earlier, _, _ in list(self.ledger.open()):
                    self.ledger.mark(earlier, "final")
        elif word in FINAL and not fault("resend-invalid"):
            self.ledger.mark(round_, "final")
        elif word == common_pb2.ANSWER_TOO_FAR_AHEAD and not fault("impatient"):
            self.after_version[round_] = answer.verdict.server.newest_version
        elif word == common_pb2.ANSWER_BUSY:
            wait = answer.verdict.retry_after_milliseconds / 1000 or 0.5
            self.not_before = time.monotonic() + (0.01 if fault("ignore-busy") else min(wait, 60.0))
        if answer.HasField("participation"):
            self.take(answer.participation)

    def redraw(self, round_):
        payload = self.train(round_)
        self.ledger.database.execute("UPDATE rows SET payload = ? WHERE round = ?", (payload, round_))

    def step(self):
        """Does one thing; says whether there was one to do."""
        self.ledger.forget(self.watermark)
        if not self.joined:
            self.join()
        if time.monotonic() - self.heard_at > 3 * self.interval and self.stream is not None and not fault("deaf"):
            self.stream.cancel()
            self.heard_at = time.monotonic()
        active = self.participation.state == membership_pb2.PARTICIPATION_STATE_ACTIVE
        if self.ended and not fault("beyond-the-end"):
            stop(0, "the federation has ended")
        if time.monotonic() >= self.not_before:
            for round_, header, payload in list(self.ledger.open()):
                if self.newest > self.after_version.get(round_, -1):
                    self.send(round_, header, payload)
                    return True
        if self.version < 0:
            return False
        suspended = self.participation.state == membership_pb2.PARTICIPATION_STATE_SUSPENDED
        if not active and not (fault("ignore-suspension") and suspended):
            if self.version >= self.newest:
                request = membership_pb2.StartRequest(caller=self.caller(), next_round=self.next_round())
                self.call(self.membership.Start, request)
                return True
            return False
        round_ = self.next_round()
        last = 2**62 if fault("beyond-the-end") else self.terms.final_version
        if round_ < last and self.permitted(round_):
            payload = self.train(round_)
            header = self.header(round_, payload)
            if fault("send-before-seal"):
                self.updates.SubmitUpdate(
                    updates_pb2.SubmitUpdateRequest(
                        caller=self.caller(), header=header, payload=payload, crc32c=crc32c(header + payload)
                    ),
                    timeout=30,
                )
            self.ledger.seal(round_, header, payload)
            return True
        return False

    def run(self):
        self.agree()
        self.join()
        threading.Thread(target=self.watch, daemon=True).start()
        while True:
            if not self.step():
                with self.changed:
                    self.changed.wait(0.02)


if __name__ == "__main__":
    if FAULT and FAULT not in FAULTS:
        sys.exit(f"FAULT must be one of {', '.join(FAULTS)}, found {FAULT}")
    Client().run()
