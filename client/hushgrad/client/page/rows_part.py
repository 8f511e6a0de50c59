"""The page's HTML: the ledger row by row, and where each row stands in the chain.

A row is shown as it lies in the file, also where the chain is broken: that is when somebody needs to see it.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from hushgrad.client import figures, report, rows, texts
from hushgrad.client.errors import LedgerError
from hushgrad.client.outbox import Entry
from hushgrad.client.page.keeper import Picture
from hushgrad.client.rows import Committed, Row
from hushgrad.wire import header

ROWS_SHOWN: Final = 50

_WHAT: Final = {
    "update": "Update sealed: its round is spent",
    "skipped": "Round skipped: nothing was released, and nothing ever will be",
    "void": "A sealed update that cannot be sent any more; its round stays spent",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """The rows of one page of the ledger.

    Attributes:
        rows: with what became of their updates; one more than is shown where there is one before them.
        first: number of the first row to show.
        last: number of the last one.
        newest: whether the page follows the newest row.
        trouble: why they cannot be shown; empty when they can.
    """

    rows: Sequence[tuple[Row, Entry | None]]
    first: int
    last: int
    newest: bool
    trouble: str = ""


def table(picture: Picture, shown: Shown) -> str:
    """Returns the table of one page of rows, newest first."""
    if shown.trouble:
        return f'<p class="empty">The rows cannot be shown: {escape(shown.trouble)}</p>'
    runs = {run.committed.terms_digest: run.committed for run in picture.standing.runs} if picture.standing else {}
    lines = []
    before: Row | None = None
    for row, entry in shown.rows:
        if row.sequence >= shown.first:
            lines.append(_line(row, entry, before, runs, picture))
        before = row
    body = "".join(reversed(lines))
    return f"""
    <p class="quiet">{_chain_words(picture)}</p>
    <table class="rows" role="table" aria-labelledby="ledger-title">
      <thead role="rowgroup"><tr role="row"><th role="columnheader" scope="col" class="number">Row</th>
      <th role="columnheader" scope="col">What it records</th><th role="columnheader" scope="col">Charged as</th>
      <th role="columnheader" scope="col">Became</th><th role="columnheader" scope="col">Chain</th></tr></thead>
      <tbody role="rowgroup">{body}</tbody>
    </table>"""


def _line(row: Row, entry: Entry | None, before: Row | None, runs: Mapping[bytes, Committed], picture: Picture) -> str:
    run = runs.get(row.terms_digest or b"")
    word, tone = _fits(row, before, picture)
    mark = ' data-tone="bad"' if tone == "bad" else ""
    fate = escape(report.fate(entry)) if row.kind == "update" else ""
    return (
        f'<tr role="row"{mark}><td role="cell" class="number row">{row.sequence:,}</td>'
        f'<td role="cell" class="what">{_what(row, run)}</td>'
        f'<td role="cell" class="charge" data-label="Charged as">{_charge(row, run)}</td>'
        f'<td role="cell" class="fate" data-label="Became">{fate}</td>'
        f'<td role="cell" class="chain"><span class="badge" data-tone="{tone}">{word}</span> '
        f'<span class="digest" title="the row&rsquo;s head, as it stands in the ledger">{row.head.hex()[:12]}</span>'
        "</td></tr>"
    )


def _what(row: Row, run: Committed | None) -> str:
    if row.kind in _WHAT:
        which = f"<strong>Round {row.round:,}</strong> " if row.round is not None else ""
        name = f'<span class="quiet">of {escape(run.federation)}</span> ' if run is not None else ""
        return f"{which}{name}<br>{_WHAT[row.kind]}"
    try:
        if row.kind == "init":
            init = rows.read_init(row)
            return (
                f"<strong>Ledger made</strong> for {escape(init.participant)}: all runs together at most epsilon "
                f"{float(init.lifetime_epsilon)!r} at delta {float(init.lifetime_delta)!r}"
            )
        committed = rows.read_commit(row)
        return (
            f"<strong>Promised</strong>, before anything was drawn: {escape(committed.federation)}, "
            f"{figures.count(committed.rounds, 'round')}, {escape(texts.claim(committed.claim))}"
        )
    except (LedgerError, ValueError, TypeError, KeyError):
        return f"A row of kind {escape(repr(row.kind))} that cannot be read"


def _charge(row: Row, run: Committed | None) -> str:
    group = run.group(row.round) if run is not None and row.kind == "update" and row.round is not None else None
    if group is None:
        return ""
    return (
        f"each record with chance {group.sampling_probability:.4g}, noise "
        f"{figures.down(group.charged_noise_multiplier)} times what one record can move"
    )


def _fits(row: Row, before: Row | None, picture: Picture) -> tuple[str, str]:
    """Returns what is known of a row's place in the chain, in a word or two, and its tone."""
    broken = picture.broken.row if picture.broken else None
    own = row.kind == "update" or hashlib.sha256(row.body).digest() == row.digest
    linked = before is None or (
        row.sequence == before.sequence + 1 and row.head == header.next_head(before.head, row.digest)
    )
    if not own or not linked or row.sequence == broken:
        return "does not fit", "bad"
    if picture.broken is not None and (broken is None or row.sequence > broken):
        return "behind the break" if broken else "not known", "bad"
    if picture.broken is not None or (picture.checked is not None and row.sequence <= picture.checked.rows):
        return "fits", "good"
    return "not checked yet", ""


def _chain_words(picture: Picture) -> str:
    if picture.broken is not None:
        return "The chain is broken. Rows are shown as they stand in the file, to find out what happened."
    checked = picture.checked
    if checked is None:
        return "The chain is being checked from the first row on; this takes some seconds for a large ledger."
    return (
        f"Every row is hashed together with the one before it. Rows 1 to {checked.rows:,} were checked, with all "
        f'headers, and fit; the head of row {checked.rows:,} is <span class="digest">{checked.head.hex()}</span>.'
    )


def pages(shown: Shown) -> str:
    """Returns the links to other pages of rows."""
    links = []
    if not shown.newest:
        links.append('<a href="./#ledger-title">Newest rows</a>')
        links.append(f'<a rel="prev" href="?to={shown.last + ROWS_SHOWN}#ledger-title">Newer</a>')
    if shown.first > 1:
        links.append(f'<a rel="next" href="?to={shown.first - 1}#ledger-title">Older</a>')
        links.append(f'<a href="?to={ROWS_SHOWN}#ledger-title">First rows</a>')
    return " ".join(links)
