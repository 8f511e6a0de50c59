"""Bugs that other systems had, or that were found here: each a small replacement in a copy of the tree.

What a fault test proves is what it would catch. `product` bugs are planted in the code that ships; `shell` bugs in the
simulator's own copy of what host, store and runner do around the cores, because the schedules do not run those.
"""

from dataclasses import dataclass
from typing import Literal

_SERVER = "server/hushgrad/server"
_CLIENT = "client/hushgrad/client"
_SHELL = "tests/faults/simulator"


@dataclass(frozen=True, slots=True)
class Bug:
    """One planted bug.

    Attributes:
        name: a phrase.
        where: whether the shipped code or the simulator's shell is changed.
        path: the file, below the root.
        old, new: the replacement; `old` stands there exactly once.
        seed: a seed that is known to catch it; the table says which is the first.
    """

    name: str
    where: Literal["product", "shell"]
    path: str
    old: str
    new: str
    seed: int = 0


BUGS = (
    Bug(
        "two transactions instead of one",
        "shell",
        f"{_SHELL}/server.py",
        """            self.store.transact(tuple(operations))
""",
        """            self.store.transact(tuple(one for one in operations if one[0] != "checkpoint"))
            self.store.transact(tuple((*one[:2], (), ()) for one in operations if one[0] == "checkpoint"))
            self.store.sync()
            self.world.point(self, "server", f"{what} written")
            self.store.transact(tuple(one for one in operations if one[0] == "checkpoint"))
""",
    ),
    Bug(
        "ACCEPTED before the receipt is durable",
        "shell",
        f"{_SHELL}/server.py",
        "        self._enqueue(written, None, self._reply, process, call, method, args, outcome)\n",
        "        self._enqueue(written, None, _nothing)\n        self._reply(process, call, method, args, outcome)\n",
    ),
    Bug(
        "no sync",
        "shell",
        f"{_SHELL}/server.py",
        """            self.store.sync()
            self.world.point(self, "server", f"{what} synced")
""",
        "",
    ),
    Bug(
        "a duplicate answered before its original is durable",
        "shell",
        f"{_SHELL}/server.py",
        "        if outcome.answer in _REFUSED_AS_CALLER:\n",
        "        if outcome.answer in _REFUSED_AS_CALLER or outcome.answer is Answer.DUPLICATE:\n",
    ),
    Bug(
        "dedup in memory",
        "product",
        f"{_SERVER}/participant.py",
        "        participant.remember(receipt)\n",
        "        if receipt.lacks_content:\n            participant.remember(receipt)\n",
    ),
    Bug(
        "fresh noise on a resend",
        "shell",
        f"{_SHELL}/client.py",
        "            packed, payload, digest = self.ledger.sendable(action.round)\n",
        """            packed, payload, digest = self.ledger.sendable(action.round)
            if action.round in self.ledger.wire:
                payload = struct.pack(f"<{len(self.payload())}i", *self.payload())
                digest = __import__("hashlib").sha256(packed + payload).digest()
""",
    ),
    Bug(
        "redraw of a sealed round",
        "product",
        f"{_CLIENT}/session.py",
        "        self._spent = set(spent)\n",
        "        self._spent = set(spent) - {entry.round for entry in entries}\n",
    ),
    Bug(
        "send before seal",
        "shell",
        f"{_SHELL}/stores.py",
        """        point("seal written")
        self.sync()
""",
        """        point("seal written")
""",
    ),
    Bug(
        "high-water mark instead of a set",
        "product",
        f"{_SERVER}/admission.py",
        "    if known is not None and known.digest is not None:\n",
        """    if known is None and round_ < participant.rounds_received:
        return Decision(Answer.DUPLICATE, first_answer=Answer.ACCEPTED)
    if known is not None and known.digest is not None:
""",
        seed=420,
    ),
    Bug(
        "prune before the retention watermark",
        "product",
        f"{_CLIENT}/session.py",
        "held.epoch == self._server.epoch and held.included_in <= self._server.watermark",
        "held.epoch == self._server.epoch",
    ),
    Bug(
        "publication encodes the live array",
        "product",
        f"{_SERVER}/aggregation.py",
        "            array=copy,\n",
        "            array=self._array,\n",
    ),
    Bug(
        "epoch raised on reordering",
        "product",
        f"{_SERVER}/admission.py",
        "    known = participant.find(round_, standing.remembered_from, archive)\n",
        """    if round_ + 1 < participant.rounds_received:
        participant.receipts.clear()
        participant.rounds_received = 0
    known = participant.find(round_, standing.remembered_from, archive)
""",
    ),
    Bug(
        "suspension by heartbeat",
        "product",
        f"{_SERVER}/membership.py",
        "            skipped += self._suspend(self.participants[name])\n",
        """            skipped += self._suspend(self.participants[name])
        for one in self.participants.values():
            if one.state is State.ACTIVE and one.chunk_at < now - self._terms.straggler_timeout_seconds:
                one.state = State.SUSPENDED
""",
    ),
    Bug(
        "publication with too few participants",
        "product",
        f"{_SERVER}/membership.py",
        "        return counting > 0 and 2 * counting > base\n",
        "        return counting > 0\n",
    ),
    Bug(
        "the watermark forgets what a crash broke",
        "product",
        f"{_SERVER}/participant.py",
        "            participant.reopened.add(receipt.round)\n",
        "            pass\n",
        seed=7,
    ),
    Bug(
        "a client that only waits never asks",
        "product",
        f"{_CLIENT}/session.py",
        "            if self._must_ask or (now >= self._ask_at() and not self._wants_to_train(now)):\n",
        "            if False:\n",
        seed=6,
    ),
    Bug(
        "a restored server does not wait for reports",
        "product",
        f"{_SERVER}/membership.py",
        "        self._collects_until = now + restore_wait_seconds\n",
        "        self._collects_until = now\n",
    ),
    Bug(
        "a restored server makes versions before it was told",
        "product",
        f"{_SERVER}/membership.py",
        "            and not self.unheard\n",
        "",
        seed=13,
    ),
    Bug(
        "a client that leaves never asks",
        "product",
        f"{_CLIENT}/session.py",
        "            if self._must_ask or (now >= self._ask_at() and not self._wants_to_train(now)):\n",
        "            if not self._leaving and (self._must_ask or now >= self._ask_at()):\n",
        seed=333,
    ),
    Bug(
        "dedup for the newest rounds only",
        "product",
        f"{_SERVER}/admission.py",
        "    if known is not None and known.digest is not None:\n",
        "    if known is not None and known.digest is not None and round_ >= standing.newest - 1:\n",
    ),
    Bug(
        "an end forgets what was accepted since the last version",
        "product",
        f"{_SERVER}/orders.py",
        "            is_complete = not (self._has_new_content() or membership.lacks_content or membership.unheard)\n",
        "            is_complete = True\n",
        seed=14,
    ),
    Bug(
        "an end does not wait for what a crash took",
        "product",
        f"{_SERVER}/membership.py",
        "for round_ in participant.wanted if participant.receipts[round_]",
        "for round_ in () if participant.receipts[round_]",
        seed=698,
    ),
    Bug(
        "a pause stops no version",
        "product",
        f"{_SERVER}/membership.py",
        "            and self.administration.paused_by is None\n            and self.frozen == self.newest\n",
        "            and self.frozen == self.newest\n",
        seed=8,
    ),
    Bug(
        "stragglers are suspended during a pause",
        "product",
        f"{_SERVER}/membership.py",
        "        if self.unheard or self.administration.paused_by is not None:\n            return []\n",
        "        if self.unheard:\n            return []\n",
        seed=260,
    ),
    Bug(
        "a repeated order counts again",
        "product",
        f"{_SERVER}/orders.py",
        "        if act is None:\n            return None\n        if act.verb is not verb",
        "        if act is None or verb is Verb.PAUSE:\n            return None\n        if act.verb is not verb",
        seed=8,
    ),
    Bug(
        "a restarted server forgets its orders",
        "product",
        f"{_SERVER}/federation.py",
        "        self.administration = Administration(snapshot.acts)\n",
        "        self.administration = Administration()\n",
        seed=8,
    ),
    Bug(
        "version 1 waits for closed seats",
        "product",
        f"{_SERVER}/membership.py",
        "len(administration.evicted) - administration.closed_seats\n",
        "len(administration.evicted)\n",
        seed=8,
    ),
)
