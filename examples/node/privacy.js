// What makes an update private: sampling, clipping, integer noise, and what a run costs. Knows no server and no file.
// Letters as in protos/README.md: C clip norm, G = 2^g grid step, q sampling probability, d parameters, s noise scale.
import { randomBytes } from "node:crypto";

const INT32_MAX = 2 ** 31 - 1;

// Returns true with probability q, rounded down to a multiple of 2^-53, for each of `count` records.
export function coins(q, count) {
  const bytes = randomBytes(8 * count);
  const below = BigInt(Math.floor(q * 2 ** 53));
  return Array.from({ length: count }, (_, i) => bytes.readBigUInt64LE(8 * i) >> 11n < below);
}

// The discrete Gaussian of scale s, as b X + Y with Y of scale 1.7 b, both drawn from exact tables of cumulative weights.
// Total variation from the ideal: below 6e-24 per number for s >= 2^8, of which nearly all is the convolution's.
export class Noise {
  constructor(scale) {
    this.b = 2 ** Math.ceil(Math.log2(scale) / 2);
    const yVariance = (1.7 * this.b) ** 2;
    this.tables = [table((scale ** 2 - yVariance) / this.b ** 2), table(yVariance)];
  }

  draw() {
    const [x, y] = this.tables.map((weights) => {
      const value = below(weights.at(-1));
      let low = 0;
      let high = weights.length - 1;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (value < weights[middle]) high = middle;
        else low = middle + 1;
      }
      return low - (weights.length >> 1);
    });
    return this.b * x + y;
  }
}

export const IMPERFECTION = 1e-23;

const BITS = 200n;
const ONE = 1n << BITS;

// Returns a uniform integer below a limit of at most 2^256; 384 random bits make the remainder's bias less than 2^-128.
function below(limit) {
  return BigInt(`0x${randomBytes(48).toString("hex")}`) % limit;
}

// Returns the cumulative weights of the discrete Gaussian on -14 s .. 14 s, in units of 2^-200. Weights follow each other
// by factors exp(-(2 x + 1) / (2 variance)), so one exponential is enough.
function table(variance) {
  const y = (ONE << 28n) / (2n * BigInt(Math.round(variance * 2 ** 28))); // 1 / (2 variance)
  let ratio = ONE;
  for (let n = 1n, term = ONE; term !== 0n; n++) {
    term = (-term * y) / ONE / n;
    ratio += term;
  }
  const radius = Math.ceil(14 * Math.sqrt(variance));
  const half = [ONE];
  for (let x = 0, factor = ratio; x < radius; x++) {
    half.push((half[x] * factor) >> BITS);
    factor = (((factor * ratio) >> BITS) * ratio) >> BITS;
  }
  let sum = 0n;
  return [...half.slice(1).reverse(), ...half].map((weight) => (sum += weight));
}

// Returns the noised sum of clipped gradients of a logistic model in grid steps, as d little-endian int32.
// Every record is rounded to the grid by itself, so that sums are exact and a record moves nothing but its own part.
export function update(weights, features, labels, { q, clipNorm, gridExponent, noise }) {
  const d = weights.length;
  const total = new Float64Array(d); // integers far below 2^53
  coins(q, features.length).forEach((chosen, record) => {
    if (!chosen) return;
    const x = features[record];
    let score = weights[d - 1];
    let squares = 1;
    for (let j = 0; j < d - 1; j++) {
      score += x[j] * weights[j];
      squares += x[j] * x[j];
    }
    const residual = 0.5 + 0.5 * Math.tanh(score / 2) - labels[record];
    const norm = Math.abs(residual) * Math.sqrt(squares);
    if (!Number.isFinite(norm)) return;
    const factor = (residual * clipNorm) / Math.max(clipNorm, norm) / 2 ** gridExponent;
    for (let j = 0; j < d; j++) total[j] += Math.round(factor * (j < d - 1 ? x[j] : 1));
  });
  const payload = Buffer.alloc(4 * d);
  for (let j = 0; j < d; j++) {
    const value = total[j] + noise.draw();
    payload.writeInt32LE(Math.min(Math.max(value, -INT32_MAX), INT32_MAX), 4 * j);
  }
  return payload;
}

// Returns the largest L2 norm, in grid steps, by which one record can move the sum before noise.
export function sensitivity(clipNorm, gridExponent, d) {
  return (clipNorm / 2 ** gridExponent) * (1 + 1e-9) + Math.sqrt(d) / 2;
}

// Bounds epsilon of Poisson-sampled Gaussians by Renyi divergences of integer order (Mironov et al. 2019, section 3.3).
export function epsilon(rounds, q, sigma, delta) {
  if (!(delta > 0)) return Infinity;
  const logFactorial = [0];
  for (let n = 1; n <= 256; n++) logFactorial.push(logFactorial[n - 1] + Math.log(n));
  let best = Infinity;
  for (let a = 2; a <= 256; a++) {
    const logs = [];
    for (let k = 0; k <= a; k++) {
      const binomial = logFactorial[a] - logFactorial[k] - logFactorial[a - k];
      const mixture = k * Math.log(q) + (a === k ? 0 : (a - k) * Math.log1p(-q));
      logs.push(binomial + mixture + (k * (k - 1)) / (2 * sigma ** 2));
    }
    const largest = Math.max(...logs);
    const moment = largest + Math.log(logs.reduce((sum, value) => sum + Math.exp(value - largest), 0));
    best = Math.min(best, (rounds * moment - Math.log(delta * a)) / (a - 1) + Math.log1p(-1 / a));
  }
  return best * (1 + 1e-9);
}
