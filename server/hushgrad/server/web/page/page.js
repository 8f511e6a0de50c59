// Draws what the server says, once a second, and says so when it says nothing. Keeps no state of its own but the curves.
"use strict";

const SILENCE_MS = 5000;        // the server speaks once a second
const RETRY_MS = 2000;
const REST_MS = 60000;
const ANNOUNCE_MS = 8000;       // a screen reader is not told every version
const HELD_UP_SECONDS = 3;
const TABLE_ROWS = 24;

const REASONS = {
  conflict: "another update is known for the same round, or another ledger: a copy or an old ledger is in use",
  invalid: "the content was refused for ever: shape, range, digest, or no honest mechanism makes it",
  stale: "the round has left the window",
  stale_session: "a newer process of the same participant has joined",
  too_far_ahead: "the round is beyond the window; sent again later",
  unknown_participant: "the terms do not admit the name, or it has not joined",
  wrong_terms: "the caller means another federation",
  run_ended: "the federation has ended",
  busy: "asked to try again later",
  too_fast: "calls came faster than allowed",
  too_many: "too many calls were open at once",
  malformed: "the request was no message of the contract",
  unauthenticated: "no certificate, or one that does not hold",
  not_permitted: "the certificate is not for this call",
};

const $ = (id) => document.getElementById(id);
let curves = { versions: [], scores: {} };
let latest = null;
let sort = { key: "name", descending: false };

// Words

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

function percent(share) {
  return share == null ? "\u2013" : `${(100 * share).toFixed(1)}\u202f%`;
}

function rate(value) {
  return value === 0 ? "0" : value >= 100 ? whole.format(value) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

function bytes(value) {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (value < 1000 || unit === "GB") return `${unit === "B" ? whole.format(value) : value.toFixed(1)} ${unit}`;
    value /= 1000;
  }
  return "";
}

function duration(seconds) {
  if (seconds < 10) return `${Math.max(0, seconds).toFixed(0)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

function milliseconds(seconds) {
  return seconds == null ? "\u2013" : `${(1000 * seconds).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
}

function count(number, one, many) {
  return `${whole.format(number)} ${number === 1 ? one : many}`;
}

function sentence(text) {
  return text ? `${text[0].toUpperCase()}${text.slice(1)}.` : "";
}

function clock(seconds) {
  return new Date(1000 * seconds).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
}

// The document is touched only where something changed: selections, focus and screen readers stay where they are.

function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function mark(element, name, value) {
  if (value == null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

function show(element, visible) {
  if (element.hidden === visible) element.hidden = !visible;
}

// The sentence

let announced = "";
let announcedAt = 0;

function announce(text) {
  // Only what is of another kind is news: version 9 after version 8 is not.
  const kind = text.replace(/\d+/g, "#");
  if (kind === announced || Date.now() - announcedAt < ANNOUNCE_MS) return;
  announced = kind;
  announcedAt = Date.now();
  say($("announcer"), text);
}

function isHeldUp(overview, rates) {
  const usual = rates.versions > 0 ? 1 / rates.versions : 0;
  return overview.phase === "running" && overview.waiting_seconds > Math.max(HELD_UP_SECONDS, 4 * usual);
}

function drawSentence(overview, rates) {
  const held = isHeldUp(overview, rates);
  const phase = overview.store.failed ? "Stopping" : held ? `Waiting for ${duration(overview.waiting_seconds)}` :
    { gathering: "Gathering participants", running: "Running", paused: "Paused", ended: "Ended" }[overview.phase];
  say($("phase"), phase);
  mark($("phase"), "data-tone", overview.store.failed ? "bad" : held || overview.phase === "paused" ? "warn" : null);
  const text = overview.store.failed ? "The store has failed; this server is stopping." :
    overview.phase === "ended" ? `The federation has ended with version ${overview.newest_version}.` :
    sentence(overview.waiting_for);
  say($("headline"), text);
  let detail = "";
  if (overview.phase === "ended") {
    detail = "No round is begun any more.";
  } else if (overview.phase === "running" && !held) {
    detail = overview.waiting_seconds < 1 ? "The last version came just now." : `The last version came ${duration(overview.waiting_seconds)} ago.`;
  } else if (overview.deadline_seconds != null && overview.phase === "running" && overview.holding_up.length) {
    detail = `${listed(overview.holding_up)}: suspended in ${duration(overview.deadline_seconds)} if nothing comes; the others then go on.`;
  } else if (overview.deadline_seconds != null && overview.phase === "gathering") {
    detail = `In ${duration(overview.deadline_seconds)} a majority will be enough.`;
  }
  say($("detail"), detail || "\u00a0");
  const done = overview.final_version ? overview.newest_version / overview.final_version : 0;
  $("course").value = done;
  const left = overview.final_version - overview.newest_version;
  const pace = !held && overview.phase === "running" && rates.versions > 0 ? `, about ${duration(left / rates.versions)} at this pace` : "";
  say($("course-text"), `${percent(done)} of ${count(overview.final_version, "version", "versions")}${left ? `; ${whole.format(left)} to go${pace}` : ""}`);
  announce(held ? `${phase}. ${text}` : text);
}

function listed(names) {
  return names.length > 3 ? `${names.slice(0, 3).join(", ")} and ${names.length - 3} more` : names.join(", ");
}

// Numbers

function newestScore(overview) {
  return overview.scores.reduce((best, one) => (!best || one.version > best.version ? one : best), null);
}

function drawNumbers(overview, rates) {
  say($("federation"), overview.federation);
  say($("t-version"), whole.format(overview.newest_version));
  say($("t-version-note"), `of ${whole.format(overview.final_version)}, ${duration(overview.waiting_seconds)} old`);
  const score = newestScore(overview);
  say($("t-accuracy"), score ? percent(score.accuracy) : "\u2013");
  say($("t-accuracy-note"), score ? `${score.averaged_accuracy == null ? "" : `averaged model ${percent(score.averaged_accuracy)}; `}version ${whole.format(score.version)}, ${count(score.examples, "public record", "public records")}, by ${score.evaluator}` : "no evaluator has reported");
  const over = `over ${duration(rates.seconds)}`;
  const accepted = overview.participants.reduce((sum, one) => sum + one.accepted, 0);
  const repeats = overview.participants.reduce((sum, one) => sum + one.duplicates, 0);
  say($("t-updates"), rate(rates.accepted));
  say($("t-updates-note"), `${over}; ${whole.format(accepted)} counted, ${count(repeats, "repeat", "repeats")}`);
  say($("t-versions"), rate(rates.versions));
  say($("t-versions-note"), `${over}; ${count(overview.totals.versions, "version", "versions")} since the server started`);
}

function drawFacts(overview, rates) {
  const store = overview.store;
  say($("f-store"), store.failed ? "has failed; the server is stopping" : "healthy");
  mark($("f-store"), "data-tone", store.failed ? "bad" : null);
  say($("f-commits"), store.commits ? `${whole.format(store.commits)}, ${milliseconds(store.commit_seconds)} each${store.slow_commits ? `; ${whole.format(store.slow_commits)} above 100 ms` : ""}` : "none yet");
  say($("f-checkpoints"), store.checkpoint_seconds == null ? "none yet" : `${milliseconds(store.checkpoint_seconds)} each`);
  say($("f-waiting"), store.waiting_jobs ? count(store.waiting_jobs, "job", "jobs") : "nothing");
  say($("f-watermark"), `version ${whole.format(store.watermark)}${store.backup_version == null ? "" : ` (backed up: ${whole.format(store.backup_version)})`}`);
  say($("f-received"), `${bytes(overview.totals.received_bytes)}, now ${bytes(rates.received_bytes)}/s`);
  say($("f-sent"), `${bytes(overview.totals.sent_bytes)}, now ${bytes(rates.sent_bytes)}/s`);
  say($("f-watchers"), whole.format(overview.watchers));
  say($("f-uptime"), `${duration(overview.uptime_seconds)}${overview.server_epoch > 1 ? `; restored, epoch ${overview.server_epoch}` : ""}`);
  say($("f-terms"), overview.terms_digest);
  const refused = Object.entries(overview.totals.refusals).filter(([, number]) => number > 0).sort((a, b) => b[1] - a[1]);
  show($("refusals"), refused.length > 0);
  show($("refusals-empty"), refused.length === 0);
  rows($("refusal-rows"), refused, ([reason]) => reason, ([reason, number], row) => {
    if (!row.cells.length) {
      row.insertCell().textContent = reason.replaceAll("_", " ");
      row.insertCell().textContent = REASONS[reason] || "";
      row.insertCell().className = "number";
    }
    say(row.cells[2], whole.format(number));
  });
}

// Rows keep their element as long as their key is there.
function rows(body, items, keyOf, fill) {
  const known = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  items.forEach((item, place) => {
    const key = keyOf(item);
    let row = known.get(key);
    if (!row) {
      row = document.createElement("tr");
      row.dataset.key = key;
    }
    known.delete(key);
    fill(item, row);
    if (body.rows[place] !== row) body.insertBefore(row, body.rows[place] || null);
  });
  for (const row of known.values()) row.remove();
}

// Participants

const COLUMNS = {
  name: (one) => one.name,
  state: (one) => one.state,
  round: (one) => one.round ?? -1,
  staleness: (one) => one.staleness,
  behind: (one) => one.behind,
  since: (one) => one.seconds_since_update ?? Infinity,
  accepted: (one) => one.accepted,
  duplicates: (one) => one.duplicates,
  invalid: (one) => one.invalid,
  budget: (one) => one.budget_used ?? -1,
};

const byName = new Intl.Collator("en", { numeric: true }).compare;

function sorted(participants) {
  const value = COLUMNS[sort.key];
  const found = [...participants].sort((a, b) => {
    const x = value(a), y = value(b);
    return (typeof x === "string" ? byName(x, y) : x < y ? -1 : x > y ? 1 : 0) || byName(a.name, b.name);
  });
  return sort.descending ? found.reverse() : found;
}

function cell(row, className, label) {
  const made = row.insertCell();
  made.className = className;
  made.setAttribute("role", "cell");
  if (label) made.dataset.label = label;
  return made;
}

function claimWords(claim) {
  const notes = claim.timing_covered ? "" : ", timing not covered";
  const delta = claim.delta < 0.001 ? claim.delta.toExponential() : String(claim.delta);
  return `\u03b5 ${claim.epsilon}, \u03b4 ${delta} for each ${claim.unit}, ${claim.adjacency}, ${claim.sampler} sampling, by ${claim.method.toUpperCase()}${notes}: declared, not verified`;
}

function drawParticipant(one, row, nextVersion) {
  if (!row.cells.length) {
    row.setAttribute("role", "row");
    cell(row, "name");
    const state = cell(row, "state");
    state.append(Object.assign(document.createElement("span"), { className: "badge" }));
    state.append(Object.assign(document.createElement("span"), { className: "badge holds", hidden: true }));
    for (const label of ["Round", "Staleness", "Behind", "Updated", "Counted", "Repeats", "Refused"]) cell(row, "number", label);
    const budget = cell(row, "budget", "Budget used, as declared");
    const bar = document.createElement("progress");
    bar.max = 1;
    budget.append(Object.assign(document.createElement("span"), { className: "share" }), bar, Object.assign(document.createElement("span"), { className: "quiet" }));
  }
  const [name, state, round, staleness, behind, since, accepted, repeats, refused, budget] = row.cells;
  say(name, one.name);
  mark(name, "title", one.name);
  const [badge, holds] = state.children;
  const standing = one.is_evicted ? "evicted" : one.state;
  say(badge, one.suspensions ? `${standing}, ${count(one.suspensions, "suspension", "suspensions")}` : standing);
  mark(badge, "data-state", standing);
  show(holds, one.holds_up);
  say(holds, `holds up version ${nextVersion}`);
  say(round, one.round == null ? "\u2013" : whole.format(one.round));
  say(staleness, whole.format(one.staleness));
  say(behind, whole.format(one.behind));
  say(since, one.seconds_since_update == null ? "\u2013" : one.seconds_since_update < 1.5 ? "now" : `${duration(one.seconds_since_update)} ago`);
  say(accepted, whole.format(one.accepted));
  say(repeats, whole.format(one.duplicates));
  say(refused, whole.format(one.invalid));
  const [share, bar, claim] = budget.children;
  show(bar, one.claim != null);
  if (one.claim == null) {
    say(share, "nothing declared");
    say(claim, "");
  } else {
    say(share, `${percent(one.budget_used)} of ${count(one.claim.planned_rounds, "round", "rounds")}`);
    bar.value = one.budget_used;
    mark(bar, "aria-label", `Budget used by ${one.name}, as declared`);
    say(claim, claimWords(one.claim));
  }
}

function drawParticipants(overview) {
  show($("participants"), overview.participants.length > 0);
  show($("participants-empty"), overview.participants.length === 0);
  const next = nextVersionOf(overview);
  rows($("participant-rows"), sorted(overview.participants), (one) => one.name, (one, row) => drawParticipant(one, row, next));
}

function nextVersionOf(overview) {
  const found = /version (\d+)/.exec(overview.waiting_for);
  return found ? found[1] : String(overview.newest_version + 1);
}

function sortBy(button) {
  const key = button.dataset.sort;
  sort = { key, descending: sort.key === key && !sort.descending };
  for (const header of document.querySelectorAll("#participants th")) {
    const chosen = header.contains(button);
    mark(header, "aria-sort", chosen ? (sort.descending ? "descending" : "ascending") : null);
  }
  if (latest) drawParticipants(latest.overview);
}

// Curves

const charts = {};

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function chartOptions(id, series, axisValues, below) {
  const axis = { stroke: color("--quiet"), grid: { stroke: color("--grid"), width: 1 }, ticks: { show: false }, font: "13px system-ui, sans-serif" };
  const box = $(id);
  return {
    width: Math.max(200, box.clientWidth), height: box.clientHeight, legend: { show: false }, padding: [12, 14, 0, 0],
    cursor: { drag: { x: false, y: false }, points: { size: 7 } },
    scales: { x: { time: false } },
    axes: [{ ...axis, size: 34, space: 84, ...below }, { ...axis, size: 58, values: axisValues }],
    series: [{}, ...series],
  };
}

// The library's own times would be in one country's way of writing them.
const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800, 2592000];
const WHOLE_STEPS = [1, 2, 5].flatMap((step) => [0, 1, 2, 3, 4, 5, 6, 7, 8].map((power) => step * 10 ** power)).sort((a, b) => a - b);

function times(_, ticks, place, space, step) {
  const options = step < 60 ? { hour: "2-digit", minute: "2-digit", second: "2-digit" } : step < 86400 ? { hour: "2-digit", minute: "2-digit" } : { day: "numeric", month: "short" };
  return ticks.map((tick) => new Date(1000 * tick).toLocaleString([], { ...options, hourCycle: "h23" }));
}

function line(name, dash) {
  return { stroke: color(name), width: 2, dash, points: { show: false }, spanGaps: true };
}

const KINDS = {
  accuracy: {
    options: () => chartOptions("accuracy", [line("--accent"), line("--second", [7, 5])], (_, ticks) => ticks.map((tick) => `${Number((100 * tick).toFixed(2))} %`), { space: 60, incrs: WHOLE_STEPS }),
    points: () => scorePoints(),
  },
  versions: {
    options: () => chartOptions("versions", [line("--accent")], (_, ticks) => ticks.map((tick) => whole.format(tick)), { incrs: TIME_STEPS, values: times }),
    points: () => curves.versions.filter((point) => point[1] != null).map(([version, at]) => [at, version]),
  },
};

function scorePoints() {
  const names = Object.keys(curves.scores).sort();
  const score = latest && newestScore(latest.overview);
  return curves.scores[score && curves.scores[score.evaluator] ? score.evaluator : names[0]] || [];
}

function columns(points) {
  return points.length ? points[0].map((_, column) => points.map((point) => point[column])) : [];
}

function drawChart(id, describe) {
  const points = KINDS[id].points();
  const enough = points.length > 1;
  show($(id), enough);
  show($(`${id}-empty`), !enough);
  if (!enough) return;
  const data = columns(points);
  if (!charts[id]) charts[id] = new uPlot(KINDS[id].options(), data, $(id));
  else charts[id].setData(data);
  mark($(id), "aria-label", describe(points));
}

function drawCurves() {
  drawChart("accuracy", (points) => {
    const [version, last, averaged] = points[points.length - 1];
    return `Curve of the test accuracy over ${count(points.length, "version", "versions")}. Newest, version ${version}: ${percent(last)}${averaged == null ? "" : `, averaged model ${percent(averaged)}`}. The same follows as a table.`;
  });
  drawChart("versions", (points) => `Curve of versions over time, from version ${points[0][1]} at ${clock(points[0][0])} to version ${points[points.length - 1][1]} at ${clock(points[points.length - 1][0])}. The same follows as a table.`);
  drawTable("accuracy-rows", scorePoints(), ([version, last, averaged]) => [whole.format(version), percent(last), percent(averaged)]);
  drawTable("versions-rows", curves.versions, ([version, at]) => [whole.format(version), at == null ? "not known" : `${new Date(1000 * at).toLocaleDateString()} ${clock(at)}`]);
}

// The newest first, and others evenly.
function drawTable(id, points, words) {
  const body = $(id);
  if (!body.closest("details").open) return;
  const step = Math.max(1, Math.ceil(points.length / TABLE_ROWS));
  const chosen = points.filter((_, place) => (points.length - 1 - place) % step === 0).reverse();
  rows(body, chosen, (point) => String(point[0]), (point, row) => words(point).forEach((text, place) => say(row.cells[place] || row.insertCell(), text)));
}

function redrawCharts() {
  for (const id of Object.keys(charts)) {
    charts[id].destroy();
    delete charts[id];
  }
  drawCurves();
}

function take(news, into) {
  into.length = news.keep;
  into.push(...news.points);
}

function takeCurves(news) {
  if (!news) return false;
  if (news.versions) take(news.versions, curves.versions);
  for (const [name, found] of Object.entries(news.scores || {})) take(found, (curves.scores[name] ??= []));
  return true;
}

// The connection

let source = null;
let heardAt = 0;
let drawn = false;

function draw(event) {
  heardAt = Date.now();
  const news = JSON.parse(event.data);
  latest = news;
  present();
  const { overview, rates } = news;
  document.title = `${overview.newest_version} of ${overview.final_version} \u00b7 ${overview.federation} \u00b7 hushgrad`;
  drawSentence(overview, rates);
  drawNumbers(overview, rates);
  drawFacts(overview, rates);
  drawParticipants(overview);
  if (takeCurves(news.curves) || !drawn) drawCurves();
  if (!drawn) performance.mark("drawn");
  drawn = true;
}

function present() {
  mark($("link"), "data-state", "live");
  say($("link-text"), "Live");
  show($("away"), false);
  document.querySelector("main").removeAttribute("data-stale");
}

function away() {
  mark($("link"), "data-state", "away");
  say($("link-text"), "Not connected");
  document.querySelector("main").setAttribute("data-stale", "");
  const over = latest && latest.overview.phase === "ended";
  const seen = heardAt ? ` What you see is from ${clock(heardAt / 1000)}.` : "";
  show($("away"), true);
  mark($("away"), "data-tone", over ? "calm" : null);
  say($("away"), over ? "The federation has ended and its server has stopped. What you see is how it ended." :
    `The server does not answer.${seen} This page tries again by itself.`);
}

function connect() {
  if (source) source.close();
  source = new EventSource("events");
  // Each connection begins with whole curves; what an earlier server drew may be of another federation.
  source.onopen = () => { curves = { versions: [], scores: {} }; };
  source.onmessage = draw;
  source.onerror = () => {
    away();
    // A browser comes back by itself from a lost connection, and not from an answer such as 503.
    if (source && source.readyState === EventSource.CLOSED) setTimeout(connect, RETRY_MS);
  };
}

setInterval(() => {
  if (source && heardAt && Date.now() - heardAt > SILENCE_MS && !document.hidden) {
    away();
    if (Date.now() - heardAt > 3 * SILENCE_MS) {
      heardAt = Date.now() - SILENCE_MS;
      connect();
    }
  }
}, 1000);

// A page that nobody sees lets its connection go: browsers allow only a few to one server.
let rest = 0;
document.addEventListener("visibilitychange", () => {
  clearTimeout(rest);
  if (document.hidden) {
    rest = setTimeout(() => {
      source.close();
      source = null;
    }, REST_MS);
  } else if (!source) {
    heardAt = Date.now();
    connect();
  }
});

for (const button of document.querySelectorAll("[data-sort]")) button.addEventListener("click", () => sortBy(button));
for (const details of document.querySelectorAll(".charts details")) details.addEventListener("toggle", drawCurves);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawCharts);
new ResizeObserver(() => {
  for (const [id, chart] of Object.entries(charts)) {
    if ($(id).clientWidth) chart.setSize({ width: $(id).clientWidth, height: $(id).clientHeight });
  }
}).observe(document.querySelector(".charts"));
connect();
