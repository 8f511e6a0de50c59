// The ledger: a folder of files that are written once. ledger.json says whose it is; 00000001.update, 00000002.update, ...
// are the rows, each a sealed update: the 192 bytes of its header, then its payload. A file gets its name only when its
// bytes are on the disk, and never takes the place of another one: a crash leaves a whole row or none, and of two
// processes that share a folder only one can seal a row. `answered` lists the rows whose fate is known; it may lag behind,
// because to send an update once more harms nobody.
import { createHash, randomBytes } from "node:crypto";
import fs from "node:fs";
import path from "node:path";

export class LedgerError extends Error {}

export function sha256(...parts) {
  const state = createHash("sha256");
  parts.forEach((part) => state.update(part));
  return state.digest();
}

export class Ledger {
  // Opens the ledger in a folder, or begins one for `identity`, an object that must never change.
  constructor(folder, identity) {
    this.folder = folder;
    const file = path.join(folder, "ledger.json");
    if (!fs.existsSync(file)) {
      this.#write("ledger.json", JSON.stringify({ id: randomBytes(16).toString("hex"), identity }));
    }
    const found = JSON.parse(fs.readFileSync(file, "utf8"));
    if (JSON.stringify(found.identity) !== JSON.stringify(identity)) {
      throw new LedgerError(`${file} belongs to ${JSON.stringify(found.identity)}, not to ${JSON.stringify(identity)}`);
    }
    this.heads = [sha256("hushgrad ledger", Buffer.from(found.id, "hex"))];
    this.rows = [];
    for (const name of fs.readdirSync(folder).filter((entry) => entry.endsWith(".update")).sort()) {
      this.#append(fs.readFileSync(path.join(folder, name)), name);
    }
    const answered = path.join(folder, "answered");
    const lines = fs.existsSync(answered) ? fs.readFileSync(answered, "utf8").split("\n") : [];
    for (const row of this.rows) row.owed = !lines.includes(String(row.sequence));
  }

  // Notes that the fate of a row is known.
  settle(row) {
    row.owed = false;
    fs.appendFileSync(path.join(this.folder, "answered"), `${row.sequence}\n`);
  }

  // Seals an update: when this returns, header and payload survive a crash.
  seal({ termsDigest, participant, round, noiseMultiplier, clipNorm }, payload) {
    const header = Buffer.alloc(192);
    header.write("HGUPDATE", 0, "ascii");
    header.writeUInt32LE(1, 8);
    termsDigest.copy(header, 12);
    header.write(participant, 44, "ascii");
    header.writeBigUInt64LE(BigInt(round), 108);
    header.writeUInt32LE(1, 116); // int32
    header.writeUInt32LE(1, 120); // Poisson
    header.writeDoubleLE(noiseMultiplier, 124);
    header.writeDoubleLE(clipNorm, 132);
    header.writeBigUInt64LE(BigInt(this.heads.length), 140);
    this.heads.at(-1).copy(header, 148);
    header.writeBigUInt64LE(BigInt(payload.length), 184);
    const name = `${String(this.heads.length).padStart(8, "0")}.update`;
    this.#write(name, Buffer.concat([header, payload]));
    this.#append(Buffer.concat([header, payload]), name);
  }

  // The first round that was never sealed.
  get nextRound() {
    return this.rows.length ? this.rows.at(-1).round + 1 : 0;
  }

  #append(bytes, name) {
    const header = bytes.subarray(0, 192);
    const intact =
      bytes.length >= 192 &&
      header.readBigUInt64LE(140) === BigInt(this.heads.length) &&
      header.subarray(148, 180).equals(this.heads.at(-1)) &&
      header.readBigUInt64LE(184) === BigInt(bytes.length - 192);
    if (!intact) throw new LedgerError(`${name} in ${this.folder} is damaged, or the row before it is missing`);
    const digest = sha256(bytes);
    this.heads.push(sha256(this.heads.at(-1), digest));
    const sequence = this.heads.length - 1;
    const round = Number(header.readBigUInt64LE(108));
    // owed: it is to be sent; afterVersion: not before a newer version than this one.
    this.rows.push({ sequence, round, digest, header, payload: bytes.subarray(192), owed: true, afterVersion: -1 });
  }

  #write(name, data) {
    const temporary = path.join(this.folder, `tmp-${process.pid}`);
    const file = fs.openSync(temporary, "w");
    fs.writeFileSync(file, data);
    fs.fsyncSync(file);
    fs.closeSync(file);
    try {
      fs.linkSync(temporary, path.join(this.folder, name));
    } catch (error) {
      if (error.code !== "EEXIST") throw error;
      throw new LedgerError(`another process has written ${name} in ${this.folder}; stop one of the two`);
    }
    fs.unlinkSync(temporary);
    const folder = fs.openSync(this.folder, "r");
    fs.fsyncSync(folder);
    fs.closeSync(folder);
  }
}
