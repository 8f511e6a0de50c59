"""A whole hushgrad client after protos/README.md: private logistic regression. README.md says what it promises."""

import bisect, functools, itertools, json, math, os, secrets, sqlite3, struct, sys, time
from decimal import Context, Decimal
from hashlib import sha256

import grpc
import numpy as np
from hushgrad.v1 import common_pb2, membership_pb2, membership_pb2_grpc, models_pb2, models_pb2_grpc
from hushgrad.v1 import terms_pb2, terms_pb2_grpc, updates_pb2, updates_pb2_grpc

PASSING = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "CANCELLED", "ABORTED", "DATA_LOSS", "NOT_FOUND")
OPTIONS = [("grpc.enable_retries", 0), ("grpc.min_reconnect_backoff_ms", 200), ("grpc.max_reconnect_backoff_ms", 1000)]
SETUP = """PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA locking_mode=EXCLUSIVE; CREATE TABLE IF NOT EXISTS
    ledger (n INTEGER PRIMARY KEY, round INTEGER UNIQUE, header, payload, digest, head, owed)"""


def leave(code, sentence):  # 0: the end, 2: bad input, 3: the budget refuses, 5: a person is needed
    sys.exit(print(sentence, file=sys.stderr) or code)


def crc32c(data):
    bits = (byte >> i & 1 for byte in data for i in range(8))
    return ~functools.reduce(lambda crc, bit: crc >> 1 ^ 0x82F63B78 * ((crc ^ bit) & 1), bits, 0xFFFFFFFF) & 0xFFFFFFFF


def gaussian(s):  # returns what draws from the discrete Gaussian of scale s, cut at 14 s, with weights of 200 bits
    ratio = int(2**200 * (-Context(prec=90).divide(1, 2 * Decimal(s) ** 2)).exp(Context(prec=90)))  # exp(-1 / 2 s^2)
    steps = itertools.accumulate([ratio * ratio >> 200] * math.ceil(14 * s), lambda f, g: f * g >> 200, initial=ratio)
    half = list(itertools.accumulate(steps, lambda weight, f: weight * f >> 200, initial=1 << 200))
    table = list(itertools.accumulate(half[:0:-1] + half))
    return lambda: bisect.bisect_right(table, secrets.randbelow(table[-1])) - len(table) // 2


def epsilon(rounds, q, sigma, delta):  # Renyi divergences of integer order a: Mironov et al. 2019, section 3.3
    log_fact, best = np.cumsum(np.log(np.maximum(1, np.arange(257)))), math.inf
    for a in range(2, 257 if delta > 0 else 0):
        binomial = log_fact[a] - log_fact[k := np.arange(a + 1)] - log_fact[a - k]
        logs = binomial + k * math.log(q) + (a - k) * math.log1p(-q) + k * (k - 1) / (2 * sigma**2)
        best = min(best, (rounds * np.logaddexp.reduce(logs) - math.log(delta * a)) / (a - 1) + math.log1p(-1 / a))
    return best * (1 + 1e-9)


class Client:
    def __init__(self, server, name, folder, data, privacy):
        self.X, self.y, self.own = np.load(data)["X"], np.load(data)["y"].astype(float), json.loads(privacy)
        to, self.me = grpc.insecure_channel(server, OPTIONS), common_pb2.Caller(participant=name)
        self.peers, self.updates = membership_pb2_grpc.MembershipServiceStub(to), updates_pb2_grpc.UpdateServiceStub(to)
        self.models, terms = models_pb2_grpc.ModelServiceStub(to), terms_pb2_grpc.TermsServiceStub(to)
        self.join_id, self.news, self.version, self.fresh_at = os.urandom(16), None, -1, -math.inf
        self.epoch, self.newest, self.after, self.seen = 0, 0, -1, membership_pb2.Participation()
        answer = self.persist(lambda: terms.GetTerms(terms_pb2.GetTermsRequest(), timeout=10))
        self.me.terms_digest, self.terms = sha256(answer.terms).digest(), terms_pb2.Terms.FromString(answer.terms)
        self.check(self.own, self.terms.privacy, self.terms.grid_exponent, self.terms.final_version)
        self.sql = sqlite3.connect(f"{folder}/ledger.db", isolation_level=None).executescript(SETUP).connection.execute
        pinned, ledger_id = json.dumps([self.me.terms_digest.hex(), name, self.own], sort_keys=True), os.urandom(16)
        head_0 = sha256(b"hushgrad ledger" + ledger_id).digest()  # row 0 says what the ledger belongs to
        self.sql("INSERT OR IGNORE INTO ledger VALUES (0, -1, ?, ?, '', ?, 0)", (pinned, ledger_id, head_0))
        if self.sql("SELECT header FROM ledger").fetchone() != (pinned,) or answer.terms_digest != self.me.terms_digest:
            leave(5, f"the ledger in {folder} does not belong to {pinned}")

    def check(self, own, asked, g, rounds):  # refuses what does not fit together, and a run above the budget
        self.d, self.q = self.X.shape[1] + 1, own["sample_size"] / own["records"]
        fits = self.terms.protocol == 1 and sum(math.prod(array.shape) for array in self.terms.arrays) == self.d
        fits &= 4 * self.d <= self.terms.limits.max_unary_bytes and own["sampler"] == "poisson" and 1 in asked.samplers
        fits &= len(self.X) <= own["records"] and 0 < self.q < 1 and own["clip_norm"] == asked.clip_norm
        if not (fits and asked.noise_multiplier_min <= own["noise_multiplier"] <= asked.noise_multiplier_max):
            leave(2, f"data, configuration and terms do not fit together: {own}, {str(asked).split()}")
        scale = own["noise_multiplier"] * own["clip_norm"] * 2.0**-g  # of the noise, in grid steps
        self.b = 2 ** math.ceil(math.log2(scale) / 2)  # noise is b X + Y, with Y of scale 1.7 b
        self.draw_x, self.draw_y = gaussian(math.sqrt(scale**2 / self.b**2 - 1.7**2)), gaussian(1.7 * self.b)
        sensitivity = own["clip_norm"] * 2.0**-g * (1 + 1e-9) + math.sqrt(self.d) / 2  # of a record, in grid steps
        cost = epsilon(rounds, self.q, scale / sensitivity, 0.99 * own["delta"])
        imperfection = (1 + math.exp(min(cost, 700))) * 1e-23 * self.d * rounds  # of the noise: README.md
        if not cost <= own["epsilon"] or imperfection > 0.01 * own["delta"]:
            leave(3, f"{rounds} rounds may cost epsilon {cost:.4g}, the budget is {own['epsilon']}")

    def persist(self, attempt):  # repeats it while it gives None or fails in a way that passes
        for wait in itertools.chain((0.2, 0.4, 0.8, 1.6, 3.2), itertools.repeat(5.0)):
            try:
                if (result := attempt()) is not None:
                    at = getattr(result, "verdict", result).server
                    if at.server_epoch > self.epoch:  # at first; or it was restored and may have forgotten us
                        self.epoch, self.newest, self.after, self.me.session = at.server_epoch, at.newest_version, -1, 0
                    self.newest = max(self.newest, at.newest_version * (at.server_epoch == self.epoch))
                    return result
            except grpc.RpcError as error:
                if error.code().name not in PASSING:
                    leave(5, f"{error.code().name}: {error.details()}")
            time.sleep(wait * (0.5 + os.urandom(1)[0] / 512))

    def call(self, method, request):
        return self.persist(lambda: self.heed(method(request, timeout=30)))

    def heed(self, answer):
        word = common_pb2.Answer.Name(answer.verdict.answer).removeprefix("ANSWER_")
        restored = word in ("STALE_SESSION", "UNKNOWN_PARTICIPANT") and answer.verdict.server.server_epoch > self.epoch
        words = ("RUN_ENDED", "UNSPECIFIED", "CONFLICT", "STALE_SESSION", "UNKNOWN_PARTICIPANT", "WRONG_TERMS")
        if word in words and not restored:
            leave(0 if word == "RUN_ENDED" else 5, f"the server answered {word}: {answer.verdict.detail}")
        if word == "BUSY":
            return time.sleep(min(answer.verdict.retry_after_milliseconds / 1000, 60))  # None: again
        self.seen, self.fresh_at = answer.participation, time.monotonic()
        for wanted in self.seen.wanted_rounds:
            if not self.sql("UPDATE ledger SET owed = 1 WHERE round = ?", (wanted,)).rowcount:
                leave(5, f"the server wants round {wanted}, which this ledger never sealed")
        return answer

    def join(self):  # and look for the server's anchor in the ledger; what the server has not seen is owed
        answer = self.call(self.peers.Join, membership_pb2.JoinRequest(caller=self.me, join_id=self.join_id))
        self.me.session, n = answer.session, answer.ledger.sequence
        if n and self.sql("SELECT head FROM ledger WHERE n = ?", (n,)).fetchone() != (answer.ledger.head,):
            leave(5, f"the server has seen row {n} of another ledger; this one was rolled back, copied or lost")
        self.sql("UPDATE ledger SET owed = 1 WHERE n > ?", (n,))
        held = self.sql("SELECT round, 3, digest FROM ledger WHERE n > 0 ORDER BY n DESC LIMIT 999").fetchall()
        reports = [membership_pb2.RoundReport(round=i, fate=fate, digest=digest) for i, fate, digest in held]
        ends = {"held_from": held[-1][0], "held_below": held[0][0] + 1} if held else {"held_below": 0}  # nothing beside
        self.call(self.peers.ReportRounds, membership_pb2.ReportRoundsRequest(caller=self.me, reports=reports, **ends))

    def read(self):  # one piece of news; a stream lives for 15 s, so that a dead one is noticed
        request = models_pb2.WatchModelsRequest(caller=self.me, after_version=(None, self.version)[self.version >= 0])
        self.fresh_at = self.fresh_at if self.news else -math.inf  # whoever was cut off asks what is wanted
        stream, self.news = self.news or self.models.WatchModels(request, timeout=15), None
        news = next(stream, None)
        if news is None or news.HasField("going_away"):
            return news and time.sleep(min(news.going_away.retry_after_milliseconds / 1000, 60))  # None: again
        if news.HasField("run_ended"):
            leave(0, "the federation has ended")
        if news.HasField("published") and news.published.version > self.version:
            request = models_pb2.GetModelRequest(caller=self.me, version=news.published.version)
            data = news.published.model or b"".join(part.data for part in self.models.GetModel(request, timeout=3600))
            if sha256(data).digest() != news.published.sha256:
                return None  # damaged on the way: watch again
            self.version, self.w, self.fresh_at = news.published.version, np.frombuffer(data, "<f4"), time.monotonic()
        self.news = stream
        return news

    def train(self, i):
        C, g, total = self.own["clip_norm"], self.terms.grid_exponent, np.zeros(self.d, np.int64)
        for record in [j for j in range(len(self.X)) if secrets.randbits(53) < int(self.q * 2**53)]:  # Poisson
            x = np.append(self.X[record], 1.0)
            gradient = (0.5 + 0.5 * math.tanh(0.5 * float(x @ self.w)) - self.y[record]) * x
            norm = float(np.linalg.norm(gradient))
            if math.isfinite(norm):
                total += np.rint(gradient * (C / max(C, norm)) * 2.0**-g).astype(np.int64)
        noise = np.array([self.b * self.draw_x() + self.draw_y() for _ in range(self.d)])
        update = np.clip(total + noise, -(2**31) + 1, 2**31 - 1).astype("<i4")
        n, head = self.sql("SELECT n + 1, head FROM ledger ORDER BY n DESC LIMIT 1").fetchone()
        who, sigma = (b"HGUPDATE", 1, self.me.terms_digest, self.me.participant.encode()), self.own["noise_multiplier"]
        header = struct.pack("<8sI32s64sQIIddQ32sIQ", *who, i, 1, 1, sigma, C, n, head, 0, 4 * self.d)
        digest = sha256(header + update.tobytes()).digest()
        row = (n, i, header, update.tobytes(), digest, sha256(head + digest).digest())
        self.sql("INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?, 1)", row)  # the seal: durable when it returns
        numerator = self.terms.step_numerators[min(i, len(self.terms.step_numerators) - 1)]
        self.w = self.w - numerator * 2.0 ** (g - self.terms.step_exponent) * update

    def send(self, i, header, payload):
        sealed = {"header": header, "payload": payload, "crc32c": crc32c(header + payload)}
        answer = self.call(self.updates.SubmitUpdate, updates_pb2.SubmitUpdateRequest(caller=self.me, **sealed))
        fate = answer.first_answer if answer.verdict.answer == common_pb2.ANSWER_DUPLICATE else answer.verdict.answer
        if fate == common_pb2.ANSWER_TOO_FAR_AHEAD:
            self.after = self.newest
        elif fate in (common_pb2.ANSWER_ACCEPTED, common_pb2.ANSWER_INVALID, common_pb2.ANSWER_STALE):
            self.sql("UPDATE ledger SET owed = 0 WHERE round = ?", (i,))
        elif self.me.session:
            leave(5, f"an answer that this client does not know: {answer}")

    def step(self):  # does the next thing that is to be done, or waits for news
        owed = self.sql("SELECT round, header, payload FROM ledger WHERE owed ORDER BY round LIMIT 1").fetchone()
        i = max(self.sql("SELECT MAX(round) + 1 FROM ledger").fetchone()[0], self.seen.entry_round)
        k, rule, nominal = self.version, self.terms.delay, [*self.terms.sample_sizes]
        t = sum(sizes := (nominal + nominal[-1:] * i)[:i])  # of s_0 .. s_(i-1)
        root_rule = t > 2 and sum(sizes[k:]) ** 2 * math.log(t) <= t
        permitted = k >= i or (k >= i - rule.max_delay, root_rule, True)[rule.kind - 1]
        last = min(self.terms.final_version, self.seen.exit_round if self.seen.HasField("exit_round") else math.inf)
        if not self.me.session:
            self.join()
        elif owed and self.newest > self.after:
            self.send(*owed)
        elif k < max(self.newest, 0):
            self.persist(self.read)
        elif self.seen.state != membership_pb2.PARTICIPATION_STATE_ACTIVE:  # others need us even when no round is left
            self.call(self.peers.Start, membership_pb2.StartRequest(caller=self.me, next_round=i))
        elif time.monotonic() - self.fresh_at > self.terms.straggler_timeout_seconds / 2:
            self.call(self.peers.GetParticipation, membership_pb2.GetParticipationRequest(caller=self.me))
        elif i >= last or not permitted or i >= self.newest + self.terms.window:
            self.persist(self.read)
        elif self.newest > i + self.terms.window:  # too late to count: owe it no longer, and start anew
            self.call(self.peers.Observe, membership_pb2.ObserveRequest(caller=self.me, exit_round=i))
        else:
            self.train(i)


if __name__ == "__main__":
    try:
        client = Client(*(os.environ["HUSHGRAD_" + key] for key in "SERVER PARTICIPANT STATE_DIR DATA PRIVACY".split()))
    except (KeyError, OSError, ValueError, sqlite3.Error) as error:  # "database is locked": a second process
        leave(2, f"environment, data or ledger cannot be used: {type(error).__name__}: {error}")
    while True:
        client.step()
