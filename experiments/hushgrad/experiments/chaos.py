"""`hushgrad demo --chaos`: what goes wrong, when, and the audit that shows that nothing came of it."""

import csv
import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from hushgrad.client import ledger as client_ledger
from hushgrad.experiments import processes
from hushgrad.experiments.errors import ExperimentError
from hushgrad.server import export as server_export
from hushgrad.server.folder import StateFolder
from hushgrad.wire import grid
from hushgrad.wire.terms import Terms
from rich.console import Console

RATES: tuple[str, ...] = (
    "--drop-requests", "0.1",
    "--drop-responses", "0.1",
    "--repeats", "0.1",
)  # fmt: skip
AWAY_SECONDS = 1.0
VICTIM = "client-2"
_HEADER_BYTES = 192


@dataclass(slots=True)
class Plan:
    """Kills one client at a third of the run and the server at two thirds, and starts each again after a second.

    Attributes:
        group: the processes.
        starts: by process, module and arguments to start it again.
        final_version: of the federation.
        killed: names, in the order in which they were killed.
    """

    group: processes.Group
    starts: Mapping[str, tuple[str, Sequence[str]]]
    final_version: int
    killed: list[str] = field(default_factory=list)
    _away: dict[str, float] = field(default_factory=dict)

    def act(self, version: int) -> None:
        """Does what is due at a version; call it often."""
        for name, at in ((VICTIM, self.final_version // 3), ("server", 2 * self.final_version // 3)):
            if version >= at and name not in self.killed:
                self.group.kill(name)
                self.killed.append(name)
                self._away[name] = time.monotonic()
        for name, since in list(self._away.items()):
            if time.monotonic() - since >= AWAY_SECONDS:
                module, arguments = self.starts[name]
                self.group.start(name, module, arguments)
                del self._away[name]

    @property
    def away(self) -> bool:
        """Whether somebody who was killed has not been started again."""
        return bool(self._away)


@dataclass(frozen=True, slots=True)
class Line:
    """What the audit says of one key.

    Attributes:
        participant, round: the key.
        digest: of the sealed update, from the client's ledger.
        answered: what the client was answered last.
        included_in: the version that holds it, from the server's manifests.
    """

    participant: str
    round: int
    digest: str
    answered: str
    included_in: int


@dataclass(frozen=True, slots=True)
class Audit:
    """All keys, and the sums over them."""

    lines: tuple[Line, ...]
    versions: int

    def to_dict(self) -> dict[str, int]:
        """Returns the sums for summary.json."""
        return {"keys": len(self.lines), "versions_recomputed": self.versions, "lost": 0, "doubled": 0}


def audit(folder: Path, names: Sequence[str], terms: Terms) -> Audit:
    """Compares ledgers, manifests and models of a run whose server kept the sealed bytes, key by key.

    Raises:
        ExperimentError: at the first key that is missing, doubled or different, and at the first version that is not
            the sum of its updates.
    """
    out = folder / "audit"
    server_export.export(StateFolder(folder / "state" / "server"), out)
    versions = json.loads((out / "manifest.json").read_text())["versions"]
    included: dict[tuple[str, int], tuple[str, int]] = {}
    for version in versions:
        for update in version["updates"]:
            key = (update["participant"], update["round"])
            if key in included:
                raise ExperimentError(f"round {key[1]} of {key[0]} is in versions {included[key][1]} and {version}")
            included[key] = (update["digest"], version["version"])
    lines = []
    for name in names:
        for _, entry in client_ledger.read(folder / "state" / name).entries:
            digest, at = included.pop((name, entry.round), ("", 0))
            if digest != entry.digest.hex():
                raise ExperimentError(
                    f"round {entry.round} of {name} was sealed as {entry.digest.hex()}, "
                    f"the server has {digest or 'none'}"
                )
            lines.append(Line(name, entry.round, digest, _answer(entry.state, entry.reason), at))
    if included:
        raise ExperimentError(f"the server counted {len(included)} updates that no ledger has: {sorted(included)[:3]}")
    _check_models(out, versions, terms)
    return Audit(tuple(sorted(lines, key=lambda line: (line.round, line.participant))), len(versions))


def _answer(state: str, reason: str) -> str:
    # An accepted update whose bytes the watermark let go keeps its state; `sealed` would mean: never answered.
    return {"accepted": "ACCEPTED", "sealed": "no answer"}.get(state, reason)


def _check_models(out: Path, versions: Sequence[Mapping[str, Any]], terms: Terms) -> None:
    """Recomputes every published version from the sealed bytes."""
    initial = np.frombuffer((out / "initial.f32").read_bytes(), "<f4")
    grids = {"grid_exponent": terms.grid_exponent, "step_exponent": terms.step_exponent}
    array = grid.initial_array(initial, **grids)
    for version in versions:
        for update in version["updates"]:
            sealed = (out / "sealed" / update["participant"] / f"{update['round']}.update").read_bytes()
            if hashlib.sha256(sealed).hexdigest() != update["digest"]:
                raise ExperimentError(f"the sealed bytes of {update} are not those of the manifest")
            elements = np.frombuffer(sealed[_HEADER_BYTES:], "<i4").astype(np.int64)
            array = array - np.int64(terms.step_numerator(update["round"])) * elements
        published = grid.published_model(array, **grids).astype("<f4").tobytes()
        if published != (out / "versions" / f"{version['version']}.f32").read_bytes():
            raise ExperimentError(f"version {version['version']} is not the sum of its updates")


def write(path: Path, found: Audit) -> None:
    """Writes the audit as CSV."""
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["participant", "round", "sealed_digest", "answered", "included_in"])
        rows.writerows(
            (line.participant, line.round, line.digest, line.answered, line.included_in) for line in found.lines
        )


def _text(found: Audit) -> Iterator[str]:
    yield "participant  round  sealed digest     answered   included in"
    for line in found.lines:
        key = f"{line.participant:<12} {line.round:>5}"
        yield f"{key}  {line.digest[:16]}  {line.answered:<10} version {line.included_in}"


def show(console: Console, found: Audit, killed: Sequence[str], counts: Mapping[str, int]) -> None:
    """Prints the audit, key by key, and what went wrong on the way."""
    for text in _text(found):
        console.print(text, highlight=False, soft_wrap=True)
    console.print(
        f"\nKilled with SIGKILL and started again: {', '.join(killed)}. Of {counts.get('calls', 0)} calls the proxy "
        f"lost {counts.get('dropped_requests', 0)} requests and {counts.get('dropped_responses', 0)} answers, and "
        f"repeated {counts.get('repeated', 0)}.\n{len(found.lines)} updates were sealed, each is in one version, "
        f"none is lost, none is counted twice. {found.versions} versions are, bit for bit, the sums of their updates.",
        highlight=False,
        soft_wrap=True,
    )
