"""The page's HTML: budget, pace and promise, from a picture of a ledger. What was not written here is escaped.

Numbers are formatted by `figures` and sentences come from `overview`, so that page and command say the same.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any, Final

from hushgrad.accountant.claims import Claim
from hushgrad.client import figures, report, texts
from hushgrad.client.page import rows_part
from hushgrad.client.page.keeper import Picture
from hushgrad.client.page.rows_part import Shown

_PROCESS: Final = {
    "running": "A client is running on this ledger.",
    "not seen": "No client is seen running on this ledger from here.",
    "unknown": "Whether a client is running cannot be seen from here.",
}


def page(picture: Picture, answer: Mapping[str, Any] | None, shown: Shown, now: float) -> str:
    """Returns the whole document.

    Args:
        picture: of the ledger.
        answer: `keeper.told` of it; None: no number may be shown.
        shown: rows.
        now: seconds since 1970.
    """
    who = picture.standing.init.participant if picture.standing else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(who or "hushgrad")}: privacy ledger</title>
<link rel="icon" href="icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="page.css">
<script src="page.js" defer></script>
</head>
<body>
<header class="top">
  <p class="brand"><img src="icon.svg" alt="" width="22" height="22"> hushgrad
    <span class="who">{f"{escape(who)}&rsquo;s privacy ledger" if who else "a privacy ledger"}</span></p>
  <p id="link" class="link" data-state="still"><span class="dot" aria-hidden="true"></span>
    <span id="link-text">As of loading</span></p>
</header>
<main id="main">
  <p id="away" class="notice" role="alert" hidden>The program that serves this page has stopped.
    What you see is as it was then. Start <code>hushgrad-client page</code> again; it prints a new address.</p>
  <div id="live-top" data-live>{_top(picture, answer)}</div>
  <section class="card" aria-labelledby="ledger-title">
    <h2 id="ledger-title">The ledger, row by row</h2>
    <div id="live-rows" data-live>{rows_part.table(picture, shown)}</div>
    <nav class="pager" aria-label="Pages of the ledger">
      <span id="live-pages" class="pages" data-live>{rows_part.pages(shown)}</span>
      <form method="get" action="./#ledger-title"><label for="to">Up to row</label>
      <input id="to" name="to" type="number" min="1" value="{shown.last}" required>
      <button type="submit">Show</button></form>
    </nav>
  </section>
</main>
<footer>
  <p>This page reads the ledger and changes nothing. It is for this machine only, and for whoever has its address: treat
  the address like a password. <span id="live-read" data-live>Ledger read at {_clock(picture.read_at)}, page made at
  {_clock(now)}.</span></p>
</footer>
</body>
</html>
"""


def _top(picture: Picture, answer: Mapping[str, Any] | None) -> str:
    if answer is None:
        return _refusal(picture)
    run = answer["runs"][-1] if answer["runs"] else None
    cards = [_hero(answer, run), _tiles(answer, run)]
    if run is not None:
        points = picture.curves.get(bytes.fromhex(run["terms_digest"]), ())
        cards.append(f'<div class="pair">{_next(answer, run)}{_curve(run, points)}</div>')
    cards.append(f'<div class="pair">{_says(run)}{_not_covered(answer)}</div>')
    if len(answer["runs"]) > 1:
        cards.append(_runs(answer["runs"]))
    return "\n".join(cards)


def _refusal(picture: Picture) -> str:
    broken = picture.broken
    row = broken.row if broken else None
    title = f"Row {row:,} of this ledger does not fit." if row else "This ledger cannot be read."
    why = broken.why if broken else "there is none"
    after = (
        f" Rows 1 to {row - 1:,} fit together; nothing is known of row {row:,} and of those behind it." if row else ""
    )
    return f"""
  <section class="hero" aria-labelledby="headline">
    <p class="phase" data-tone="bad">Not to be trusted</p>
    <h1 id="headline">{title}</h1>
    <p class="detail" role="alert">Found: {escape(why)}.{after}</p>
  </section>
  <section class="card" aria-labelledby="now-title">
    <h2 id="now-title">What this means</h2>
    <p>Every row is hashed together with the row before it. Something was changed after it was written: by a person, by
    a program, or by a disk that fails. So no number of this ledger is shown here, and no client runs on it.</p>
    <p>Put the ledger back from where it was last whole, with the whole state folder. Do not make a new one in its
    place: a new ledger does not know what was spent. <code>hushgrad-client ledger verify</code> checks again.</p>
  </section>"""


def _hero(answer: Mapping[str, Any], run: Mapping[str, Any] | None) -> str:
    chain = answer["chain"]
    if chain["checked"]:
        badge, tone = f"Chain holds: {figures.count(chain['rows'], 'row')} checked", ""
    elif chain["rows_checked"]:
        new = figures.count(chain["rows"] - chain["rows_checked"], "newer row")
        badge, tone = f"Chain holds up to row {chain['rows_checked']:,}; {new} not checked yet", ""
    else:
        badge, tone = f"{figures.count(chain['rows'], 'row')}, the chain is being checked", "warn"
    if run is None:
        title, detail, course = "Nothing is promised yet, and nothing was sent.", "", ""
    else:
        used, all_rounds = run["next_round"], run["rounds_committed"]
        title = (
            f"All {all_rounds:,} promised rounds are over."
            if used >= all_rounds
            else f"{used:,} of {figures.count(all_rounds, 'promised round')} {'is' if used == 1 else 'are'} over."
        )
        detail = f"{run['next']}."
        course = f"""
    <progress max="{all_rounds}" value="{used}" aria-label="Rounds that are over, of all that were promised"></progress>
    <p class="quiet">Federation {escape(run["federation"])}: {run["rounds_spent"]:,} sealed and spent,
      {run["rounds_skipped"]:,} skipped, {run["rounds_left"]:,} to come</p>"""
    return f"""
  <section class="hero" aria-labelledby="headline">
    <p class="phase" data-tone="{tone}">{badge}</p>
    <h1 id="headline">{title}</h1>
    <p class="detail">{escape(detail)}</p>{course}
  </section>"""


def _tiles(answer: Mapping[str, Any], run: Mapping[str, Any] | None) -> str:
    committed, left, lifetime = answer["committed"], answer["left"], answer["lifetime"]
    of = f"of epsilon {lifetime['epsilon']!r} at delta {lifetime['delta']!r} for the life of this data"
    claims = "the claim of one run" if len(answer["runs"]) == 1 else f"the claims of {len(answer['runs'])} runs"
    tiles = [
        _tile(
            "Promised",
            _pair(figures.up(committed["epsilon"]), figures.up(committed["delta"])),
            f"{claims}; gone from the lifetime whatever happens",
        ),
        _tile(
            "Left for later runs",
            _pair(figures.down(left["epsilon"]), figures.down(left["delta"])),
            f"{of}{texts.fitting(answer['runs_like_the_last_that_fit'])}",
        ),
    ]
    if run is not None:
        reading, last = run["odometer"], run["last_updates"]
        updates = figures.count(reading["rounds"], "update")
        tiles.append(
            _tile(
                "Happened so far in this run",
                _pair(figures.up(reading["epsilon_so_far"]), figures.up(reading["delta"])),
                f"an odometer reading of {updates}, not a guarantee; the promise is the claim",
            )
        )
        if last is not None:
            before, after = figures.up(last["epsilon_before"]), figures.up(last["epsilon_after"])
            alone = figures.up(last["alone"]["epsilon_so_far"])
            tiles.append(
                _tile(
                    "The last update" if last["updates"] == 1 else f"The last {last['updates']} updates",
                    f"+{figures.up(last['rise'])}",
                    f"at most, on the odometer: from {before} to {after}. Seen alone they would read {alone}",
                )
            )
    return f"""
  <section aria-labelledby="numbers-title">
    <h2 id="numbers-title" class="unseen">Your budget in numbers</h2>
    <dl class="tiles">{"".join(tiles)}</dl>
  </section>"""


def _tile(name: str, value: str, note: str) -> str:
    return f'<div><dt>{name}</dt><dd>{value}</dd><dd class="quiet">{note}</dd></div>'


def _pair(epsilon: str, delta: str) -> str:
    return f"<small>&epsilon;</small>&nbsp;{epsilon} <small>at &delta;&nbsp;{delta}</small>"


def _next(answer: Mapping[str, Any], run: Mapping[str, Any]) -> str:
    found = run["pace"]
    pace, end = "Not known: when updates were sealed was not noted.", "Not known."
    if found is not None:
        steps = "one update" if found["updates"] == 1 else f"{found['updates']} updates"
        ago = figures.span(found["seconds_since_last"])
        pace = f"{steps} in {figures.span(found['seconds'])}; the last one {ago} ago."
        if found["seconds_to_end"] is None:
            end = "It has ended: every promised round is over."
        elif found["quiet"]:
            end = f"{figures.span(found['seconds_to_end'])} after it goes on at that pace; nothing was sealed lately."
        else:
            end = f"In about {figures.span(found['seconds_to_end'])} at this pace: {_date(found['ends_at'])}."
    became = (
        f"{run['updates_unanswered']:,} waiting for an answer, {run['updates_accepted']:,} accepted, "
        f"{run['updates_refused']:,} refused, {run['rounds_void']:,} void; the bytes of {run['updates_held']:,} are "
        "still here."
    )
    zeroed = (
        [("Your data", f"{escape(_sentence(texts.zeroed(run['records_zeroed'])))}.")] if run["records_zeroed"] else []
    )
    facts = (
        ("This client", escape(_PROCESS[answer["process"]])),
        ("Next", f"{escape(_sentence(run['waiting_for']))}."),
        ("Pace", pace),
        ("This run's budget ends", end),
        ("Sealed updates", became),
        *zeroed,
    )
    shown = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts)
    return f"""
  <section class="card" aria-labelledby="next-title">
    <h2 id="next-title">What comes next</h2>
    <dl class="facts">{shown}</dl>
  </section>"""


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _curve(run: Mapping[str, Any], points: Sequence[tuple[int, float]]) -> str:
    claimed, rounds = float(run["claim"]["epsilon"]), run["rounds_committed"]
    drawn = sorted({(0, 0.0), *points, (run["odometer"]["rounds"], run["odometer"]["epsilon_so_far"])})
    width, height, top = 560.0, 190.0, 22.0

    def place(updates: int, epsilon: float) -> str:
        y = height - (height - top) * (epsilon / claimed if claimed else 0.0)
        return f"{width * updates / max(1, rounds):.1f},{y:.1f}"

    line = " ".join(place(*point) for point in drawn)
    x, y = place(*drawn[-1]).split(",")
    words = (
        f"The odometer reads {figures.up(drawn[-1][1])} after {drawn[-1][0]:,} of {rounds:,} rounds; the promise is "
        f"{figures.up(claimed)}."
    )
    cells = "".join(
        f'<tr><td class="number">{updates:,}</td><td class="number">{figures.up(epsilon)}</td></tr>'
        for updates, epsilon in drawn
    )
    return f"""
  <section class="card" aria-labelledby="curve-title">
    <h2 id="curve-title">How the reading grows</h2>
    <p class="legend"><span class="key">odometer</span> <span class="key claimed">promised</span></p>
    <svg class="curve" viewBox="-4 0 568 214" role="img" aria-label="{words}">
      <line class="axis" x1="0" y1="{height}" x2="{width}" y2="{height}"/>
      <line class="claimed" x1="0" y1="{top}" x2="{width}" y2="{top}"/>
      <text x="0" y="{top - 7}">epsilon {figures.up(claimed)}</text>
      <polyline class="reading" points="{line}"/><circle class="reading" cx="{x}" cy="{y}" r="4.5"/>
      <text x="0" y="208">0</text><text x="{width}" y="208" text-anchor="end">{figures.count(rounds, "round")}</text>
    </svg>
    <details data-keep="curve"><summary>As a table</summary>
      <div class="scroll" tabindex="0" role="region" aria-label="Odometer by number of updates">
      <table><thead><tr><th scope="col" class="number">Updates</th>
      <th scope="col" class="number">Epsilon so far</th></tr></thead>
      <tbody>{cells}</tbody></table></div></details>
  </section>"""


def _says(run: Mapping[str, Any] | None) -> str:
    if run is None:
        sentence = "There is no claim yet. The first run writes its whole schedule and its claim here before it begins."
    else:
        sentence = Claim.from_dict(run["claim"]).describe(
            timing_covered=run["timing"] == report.TIMING_NOTE["covered"],
            clipped_by_caller=run["clipping"] == report.CLIPPING_NOTE[True],
        )
    return f"""
  <section class="card" aria-labelledby="says-title">
    <h2 id="says-title">What is promised</h2>
    <p>{escape(sentence)}</p>
    <p class="quiet">Whoever sees everything that this client ever sends in this run can hardly tell whether any one
    record was in its data: what they see is at most e<sup>&epsilon;</sup> times as likely with the record as without
    it, but for a chance of &delta;. The promise was made before the first round and does not depend on when you
    stop.</p>
  </section>"""


def _not_covered(answer: Mapping[str, Any]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in answer["not_covered"])
    return f"""
  <section class="card" aria-labelledby="not-title">
    <h2 id="not-title">What is not covered</h2>
    <ul>{items}</ul>
  </section>"""


def _runs(runs: Sequence[Mapping[str, Any]]) -> str:
    lines = "".join(
        f'<tr><th scope="row">{escape(run["federation"])} <span class="digest">{run["terms_digest"][:12]}</span></th>'
        f"<td>{escape(texts.claim(run['claim']))}</td>"
        f'<td class="number">{run["rounds_spent"]:,} of {run["rounds_committed"]:,}</td>'
        f'<td class="number">{figures.up(run["odometer"]["epsilon_so_far"])} at {figures.up(run["odometer"]["delta"])}'
        "</td></tr>"
        for run in runs
    )
    return f"""
  <section class="card" aria-labelledby="runs-title">
    <h2 id="runs-title">All runs on this ledger</h2>
    <div class="wide" tabindex="0" role="region" aria-label="All runs, as a table"><table>
      <thead><tr><th scope="col">Federation</th><th scope="col">Promised</th><th scope="col" class="number">Rounds</th>
      <th scope="col" class="number">Odometer</th></tr></thead>
      <tbody>{lines}</tbody></table></div>
  </section>"""


def _clock(unix_seconds: float) -> str:
    return datetime.fromtimestamp(unix_seconds).astimezone().strftime("%H:%M:%S")


def _date(moment: str | None) -> str:
    if moment is None:
        return "centuries from now"
    return datetime.fromisoformat(moment).astimezone().strftime("%A %d %B %Y, %H:%M")
