// A hushgrad client in JavaScript, written from protos/README.md: private logistic regression on a .csv file.
// Configured by environment variables; README.md lists them, and the exit codes.
import { randomBytes } from "node:crypto";
import fs from "node:fs";
import { fileURLToPath } from "node:url";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";
import { Ledger, LedgerError, sha256 } from "./ledger.js";
import { IMPERFECTION, Noise, epsilon, sensitivity, update } from "./privacy.js";

const EXIT = { ENDED: 0, INPUT: 2, BUDGET: 3, PERSON: 5 };
const FOR_A_PERSON = ["UNSPECIFIED", "CONFLICT", "STALE_SESSION", "UNKNOWN_PARTICIPANT", "WRONG_TERMS"];
const PASSING = ["UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "CANCELLED", "ABORTED", "DATA_LOSS"];
const OPTIONS = {
  "grpc.enable_retries": 0,
  "grpc.initial_reconnect_backoff_ms": 200,
  "grpc.max_reconnect_backoff_ms": 1000,
  "grpc.keepalive_time_ms": 30_000,
};
const PROTOS = fileURLToPath(new URL("../../protos", import.meta.url));
const SERVICES = ["terms", "membership", "updates", "models"].map((name) => `hushgrad/v1/${name}.proto`);
export const definition = loader.loadSync(SERVICES, {
  includeDirs: [PROTOS],
  keepCase: true,
  longs: Number, // versions, rounds and step numerators stay far below 2^53
  enums: String,
  defaults: true,
  oneofs: true,
});
const v1 = grpc.loadPackageDefinition(definition).hushgrad.v1;

class Stop extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

const sleep = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
const seconds = () => performance.now() / 1000;

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  for (let bit = 0; bit < 8; bit++) byte = (byte >>> 1) ^ (byte & 1 ? 0x82f63b78 : 0);
  return byte;
});

export function crc32c(...parts) {
  let crc = 0xffffffff;
  for (const part of parts) for (const byte of part) crc = (crc >>> 8) ^ CRC_TABLE[(crc ^ byte) & 255];
  return (crc ^ 0xffffffff) >>> 0;
}

// Plain text, or TLS where HUSHGRAD_TLS_CA, HUSHGRAD_TLS_KEY and HUSHGRAD_TLS_CERTIFICATE name PEM files.
function credentials() {
  const files = ["CA", "KEY", "CERTIFICATE"].map((name) => process.env[`HUSHGRAD_TLS_${name}`]);
  if (!files.some(Boolean)) return grpc.credentials.createInsecure();
  return grpc.credentials.createSsl(...files.map((file) => fs.readFileSync(file)));
}

class Client {
  #wake = () => {};

  constructor(server, participant, folder, data, own) {
    const connect = (service) => new v1[service](server, credentials(), OPTIONS);
    this.stubs = {
      terms: connect("TermsService"),
      membership: connect("MembershipService"),
      updates: connect("UpdateService"),
      models: connect("ModelService"),
    };
    Object.assign(this, { participant, folder, own, ...data, joinId: randomBytes(16), termsDigest: Buffer.alloc(0) });
    Object.assign(this, { session: 0, epoch: 0, newest: 0, version: -1, freshAt: -Infinity, refused: 0, seen: null });
  }

  async run() {
    await this.readTerms();
    this.ledger = new Ledger(this.folder, {
      terms: this.termsDigest.toString("hex"),
      participant: this.participant,
      privacy: this.own,
    });
    const watching = this.watch();
    for (;;) {
      const action = this.next();
      // Nothing is awaited between a decision to wait and the waiting, so no news is missed.
      const waiting = action ? action() : new Promise((done) => (this.#wake = done));
      await Promise.race([waiting, watching]); // the watch returns only by throwing
    }
  }

  // Decides what to do next; null: wait for news. The order is: session, sealed updates, membership, a new round.
  next() {
    const { terms, ledger, seen } = this;
    if (!this.session) return () => this.join();
    const row = ledger.rows.find((candidate) => candidate.owed);
    if (row && this.newest > row.afterVersion) return () => this.send(row);
    if (this.version < 0 || this.version < this.newest) return null;
    const active = seen.state === "PARTICIPATION_STATE_ACTIVE";
    const round = Math.max(ledger.nextRound, active ? seen.entry_round : 0);
    if (!active) return () => this.member("Start", { next_round: round }); // others need us even when no round is left
    // A server that restarted may want an update again: ask when the watch was cut, and after long silence.
    if (seconds() - this.freshAt > terms.straggler_timeout_seconds / 2) return () => this.member("GetParticipation", {});
    const exit = seen._exit_round ? seen.exit_round : Infinity;
    if (round >= Math.min(terms.final_version, exit) || !this.permits(round)) return null;
    if (round >= this.newest + terms.window) return null;
    // An update that is too old to count would cost privacy for nothing: owe it no longer, and start anew.
    if (this.newest > round + terms.window) return () => this.member("Observe", { exit_round: round });
    return () => this.train(round);
  }

  permits(round) {
    const { kind, max_delay: ahead } = this.terms.delay;
    if (this.version >= round || kind === "KIND_UNBOUNDED") return true;
    if (kind === "KIND_MAX_DELAY") return this.version >= round - ahead;
    if (kind !== "KIND_SQRT") return false;
    const sizes = Array.from({ length: round }, (_, i) => entry(this.terms.sample_sizes, i));
    const total = sum(sizes);
    return total >= 3 && sum(sizes.slice(this.version)) <= Math.sqrt(total / Math.log(total));
  }

  async readTerms() {
    const answer = await this.persist(() => call(this.stubs.terms, "GetTerms", {}));
    this.termsDigest = sha256(answer.terms);
    this.terms = definition["hushgrad.v1.Terms"].deserialize(answer.terms);
    if (!this.termsDigest.equals(answer.terms_digest) || this.terms.protocol !== 1) {
      throw new Stop(EXIT.PERSON, "the server's terms are damaged, or of another protocol");
    }
    const { terms, own, features } = this;
    const asked = terms.privacy;
    const d = sum(terms.arrays.map((array) => array.shape.reduce((size, axis) => size * axis, 1)));
    this.q = own.sample_size / own.records;
    const problems = [
      [features.some((row) => row.length !== d - 1), `the model needs ${d - 1} features in every row`],
      [features.length > own.records, `there are more rows than the ${own.records} declared records`],
      [own.sampler !== "poisson" || !asked.samplers.includes("SAMPLER_POISSON"), "only Poisson sampling is known here"],
      [!(this.q > 0 && this.q < 1), "sample_size must be above 0 and below records"],
      [own.clip_norm !== asked.clip_norm, `clip_norm must be the terms' ${asked.clip_norm}`],
      [own.noise_multiplier < asked.noise_multiplier_min, `noise_multiplier must be >= ${asked.noise_multiplier_min}`],
      [own.noise_multiplier > asked.noise_multiplier_max, `noise_multiplier must be <= ${asked.noise_multiplier_max}`],
    ].filter(([wrong]) => wrong);
    if (problems.length) throw new Stop(EXIT.INPUT, problems[0][1]);
    const g = terms.grid_exponent;
    const scale = (own.noise_multiplier * own.clip_norm) / 2 ** g;
    this.noise = new Noise(scale);
    const cost = epsilon(terms.final_version, this.q, scale / sensitivity(own.clip_norm, g, d), 0.99 * own.delta);
    // The rest of delta pays for what the noise differs from a perfect discrete Gaussian.
    const imperfection = (1 + Math.exp(cost)) * IMPERFECTION * d * terms.final_version;
    if (!(cost <= own.epsilon && imperfection <= 0.01 * own.delta)) {
      const text = `${terms.final_version} rounds may cost epsilon ${cost.toPrecision(4)}`;
      throw new Stop(EXIT.BUDGET, `${text}, the budget is ${own.epsilon}`);
    }
  }

  get caller() {
    return { terms_digest: this.termsDigest, participant: this.participant, session: this.session };
  }

  async join() {
    const answer = await this.member("Join", { join_id: this.joinId });
    if (answer === null) return;
    this.session = answer.session;
    const { sequence, head } = answer.ledger;
    if (sequence > 0 && !this.ledger.heads[sequence]?.equals(head)) {
      const text = `the server has seen row ${sequence} of another ledger`;
      throw new Stop(EXIT.PERSON, `${text}: this one was rolled back, copied or lost; nothing was drawn`);
    }
    // After its state was restored the server may know less than it has answered.
    for (const row of this.ledger.rows) row.owed ||= row.sequence > sequence;
    this.note(answer.participation);
    if (this.epoch > 1) {
      const held = this.ledger.rows.slice(-1000);
      const reports = held.map((row) => ({ round: row.round, fate: "FATE_HELD", digest: row.digest }));
      // All that is held from the first of these on is named: the server need not wait for the rest.
      const range = held.length ? { held_from: held[0].round, held_below: held.at(-1).round + 1 } : { held_below: 0 };
      await this.member("ReportRounds", { reports, ...range });
    }
  }

  async send(row) {
    const { header, payload } = row;
    const small = payload.length <= this.terms.limits.max_unary_bytes;
    const submit = () =>
      call(this.stubs.updates, "SubmitUpdate", { caller: this.caller, header, payload, crc32c: crc32c(header, payload) });
    const answer = await this.ask(small ? submit : () => this.upload(row));
    if (answer === null) return;
    const word = answer.verdict.answer === "ANSWER_DUPLICATE" ? answer.first_answer : answer.verdict.answer;
    if (word === "ANSWER_TOO_FAR_AHEAD") {
      row.afterVersion = answer.verdict.server.newest_version;
      return;
    }
    if (!["ANSWER_ACCEPTED", "ANSWER_INVALID", "ANSWER_STALE"].includes(word)) {
      throw new Stop(EXIT.PERSON, `the server answered ${word}, which this client does not know`);
    }
    this.ledger.settle(row);
    this.refused = word === "ANSWER_INVALID" ? this.refused + 1 : 0;
    if (this.refused === 3) throw new Stop(EXIT.PERSON, `three updates in a row were refused: ${answer.verdict.detail}`);
  }

  // Sends an update in chunks, from where an earlier try broke off.
  async upload({ header, payload, digest }) {
    const state = await call(this.stubs.updates, "GetUpload", { caller: this.caller, digest });
    if (state.verdict.answer !== "ANSWER_ACCEPTED") return state;
    const answered = new Promise((done, failed) => {
      const deadline = Date.now() + 3_600_000;
      const stream = this.stubs.updates.UploadUpdate({ deadline }, (error, answer) => (error ? failed(error) : done(answer)));
      const size = this.terms.limits.max_chunk_bytes;
      stream.write({ start: { caller: this.caller, header, digest, offset: state.received_bytes } });
      for (let offset = state.received_bytes; offset < payload.length; offset += size) {
        const data = payload.subarray(offset, offset + size);
        stream.write({ chunk: { offset, data, crc32c: crc32c(data) } }); // queued; a payload is in memory anyway
      }
      stream.end();
    });
    return (await answered).result;
  }

  async train(round) {
    const { terms, own, weights } = this;
    const recipe = { q: this.q, clipNorm: own.clip_norm, gridExponent: terms.grid_exponent, noise: this.noise };
    const payload = update(weights, this.features, this.labels, recipe);
    const { termsDigest, participant } = this;
    const declared = { noiseMultiplier: own.noise_multiplier, clipNorm: own.clip_norm };
    this.ledger.seal({ termsDigest, participant, round, ...declared }, payload);
    const step = entry(terms.step_numerators, round) * 2 ** (terms.grid_exponent - terms.step_exponent);
    for (let j = 0; j < weights.length; j++) weights[j] -= step * payload.readInt32LE(4 * j);
    await sleep(0); // lets the watch have its turn
  }

  // Takes every version that is newer than any seen; ends by throwing when the federation has ended.
  async watch() {
    let silence = 30_000;
    let wasCut = false;
    for (let wait = 200; ; wait = Math.min(2 * wait, 5000)) {
      const after = this.version >= 0 ? { after_version: this.version } : {};
      const stream = this.stubs.models.WatchModels({ caller: this.caller, ...after });
      let alarm = setTimeout(() => stream.cancel(), silence);
      try {
        for await (const news of stream) {
          clearTimeout(alarm);
          this.see(news.server);
          if (wasCut) [wasCut, this.freshAt] = [false, -Infinity];
          this.#wake(); // also to see whether it is time to ask
          if (news.event === "run_ended") throw new Stop(EXIT.ENDED, `ended with version ${news.run_ended.final_version}`);
          if (news.event === "heartbeat") silence = 3 * news.heartbeat.interval_milliseconds;
          if (news.event === "published") await this.take(news.published);
          wait = news.event === "going_away" ? news.going_away.retry_after_milliseconds || wait : 100;
          alarm = setTimeout(() => stream.cancel(), silence);
        }
      } catch (error) {
        if (error instanceof Stop) throw error;
        refuse(error);
      } finally {
        clearTimeout(alarm);
        stream.cancel();
      }
      wasCut = true;
      await sleep(wait / 2 + jitter(wait));
    }
  }

  async take({ version, model, sha256: expected }) {
    if (version <= this.version) return;
    let bytes = model;
    if (!bytes.length) {
      const chunks = [];
      for await (const chunk of this.stubs.models.GetModel({ caller: this.caller, version })) chunks.push(chunk.data);
      bytes = Buffer.concat(chunks);
    }
    if (!sha256(bytes).equals(expected)) throw Object.assign(new Error("damaged"), { code: grpc.status.DATA_LOSS });
    this.version = version;
    this.weights = Float64Array.from({ length: bytes.length / 4 }, (_, j) => bytes.readFloatLE(4 * j));
    this.freshAt = seconds();
    this.#wake();
  }

  member(name, fields) {
    // Built for every try, because a session may be replaced in between.
    const caller = () => (name === "Join" ? { ...this.caller, session: 0 } : this.caller);
    return this.ask(() => call(this.stubs.membership, name, { caller: caller(), ...fields }), name !== "Join");
  }

  // Asks until there is an answer other than BUSY, and does what every answer asks for.
  async ask(attempt, notes = true) {
    const answer = await this.persist(async () => {
      const found = await attempt();
      if (found.verdict.answer !== "ANSWER_BUSY") return found;
      await sleep(Math.min(found.verdict.retry_after_milliseconds, 60_000));
      return null;
    });
    const word = answer.verdict.answer.replace("ANSWER_", "");
    if (word === "RUN_ENDED") throw new Stop(EXIT.ENDED, "the federation has ended");
    const restored = answer.verdict.server.server_epoch > this.epoch && this.epoch > 0;
    if (restored && ["STALE_SESSION", "UNKNOWN_PARTICIPANT"].includes(word)) {
      this.see(answer.verdict.server); // nobody fenced us: the restored server does not know our session; join again
      return null;
    }
    if (FOR_A_PERSON.includes(word)) throw new Stop(EXIT.PERSON, `the server answered ${word}: ${answer.verdict.detail}`);
    this.see(answer.verdict.server);
    if (notes) this.note(answer.participation);
    return answer;
  }

  // Notes how the server sees us, and what it wants sent again.
  note(participation) {
    this.seen = participation;
    this.freshAt = seconds();
    for (const wanted of participation.wanted_rounds) {
      const row = this.ledger.rows.find((candidate) => candidate.round === wanted);
      if (!row) throw new Stop(EXIT.PERSON, `the server wants round ${wanted}, which this ledger never sealed`);
      row.owed = true;
    }
  }

  see({ server_epoch: epoch, newest_version: newest }) {
    if (epoch > this.epoch) {
      // At first; or the server was restored from a backup and may have forgotten us: join again.
      Object.assign(this, { epoch, newest, session: 0 });
      // What was too far ahead then was measured against versions that are gone.
      for (const row of this.ledger?.rows ?? []) row.afterVersion = -1;
      this.#wake();
    } else if (epoch === this.epoch) this.newest = Math.max(this.newest, newest);
  }

  async persist(attempt) {
    for (let wait = 200; ; wait = Math.min(2 * wait, 5000)) {
      try {
        const result = await attempt();
        if (result !== null) return result;
      } catch (error) {
        refuse(error);
      }
      await sleep(jitter(wait));
    }
  }
}

function call(stub, name, request) {
  return new Promise((done, failed) => {
    const deadline = Date.now() + (name === "SubmitUpdate" ? 30_000 : 10_000);
    stub[name](request, { deadline }, (error, answer) => (error ? failed(error) : done(answer)));
  });
}

// Lets faults pass that repeating may mend.
function refuse(error) {
  const name = grpc.status[error.code];
  if (name === undefined) throw error;
  // What a connection that breaks off under a call is called here.
  const broke = name === "INTERNAL" && error.details.includes("RST_STREAM");
  if (!PASSING.includes(name) && name !== "NOT_FOUND" && !broke) throw new Stop(EXIT.PERSON, `${name}: ${error.details}`);
}

const jitter = (milliseconds) => milliseconds * (0.5 + randomBytes(1)[0] / 512);
const entry = (list, round) => list[Math.min(round, list.length - 1)];
const sum = (list) => list.reduce((total, value) => total + value, 0);

function readTable(file) {
  const [, ...lines] = fs.readFileSync(file, "utf8").trim().split("\n");
  const rows = lines.map((line) => line.split(",").map(Number));
  const odd = rows.findIndex((row) => !row.every(Number.isFinite));
  if (odd >= 0) fail(`line ${odd + 2} of ${file} must hold finite numbers only`);
  return { features: rows.map((row) => Float64Array.from(row.slice(0, -1))), labels: rows.map((row) => row.at(-1)) };
}

async function main() {
  const [server, participant, folder, file, privacy] = ["SERVER", "PARTICIPANT", "STATE_DIR", "DATA", "PRIVACY"].map(
    (key) => process.env[`HUSHGRAD_${key}`] ?? fail(`HUSHGRAD_${key} is not set`),
  );
  const client = new Client(server, participant, folder, readTable(file.replace(/\.npz$/, ".csv")), JSON.parse(privacy));
  await client.run();
}

function fail(text) {
  throw new Stop(EXIT.INPUT, text);
}

function report(error) {
  const code = error instanceof Stop ? error.code : error instanceof LedgerError ? EXIT.PERSON : 1;
  console.error(code === 1 ? error : error.message);
  process.exit(code);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) main().catch(report);
