"""Judges what operators order of one federation, and carries it out on its membership.

Sans-I/O like `federation`, whose part it is: an order is taken in one step, and its records must be durable before it
is answered. What each order means is written in admin.proto.
"""

from collections.abc import Callable

from hushgrad.server import administration as administration_module
from hushgrad.server.administration import Order, Ruling
from hushgrad.server.membership import Membership
from hushgrad.server.records import Act, Answer, Record, Verb
from hushgrad.wire.terms import Terms


class Orders:
    """The orders of one federation.

    Args:
        terms: of the federation.
        membership: its participants; its `administration` is what the orders add up to.
        has_new_content: whether an update was accepted that no frozen version holds.
    """

    def __init__(self, terms: Terms, membership: Membership, has_new_content: Callable[[], bool]) -> None:
        self._terms = terms
        self._membership = membership
        self._administration = membership.administration
        self._has_new_content = has_new_content
        self._drains_with: int | None = None
        self._may_stop = False

    # What others may read

    @property
    def is_draining(self) -> bool:
        """Whether this process takes nobody new and stops after the next version."""
        return self._drains_with is not None

    @property
    def is_closing(self) -> bool:
        """Whether this process fixes no content of any version any more."""
        return self._may_stop or (self._drains_with is not None and self._membership.frozen >= self._drains_with)

    @property
    def has_drained(self) -> bool:
        """Whether the version that a drain waits for is published."""
        return self._drains_with is not None and self._membership.newest >= self._drains_with

    def may_stop(self) -> bool:
        """Says whether a drain is done; once it is, it stays so."""
        membership = self._membership
        if self._drains_with is not None and membership.frozen == membership.newest:
            self._may_stop |= self.has_drained or not membership.expects_a_version
        return self._may_stop

    # Orders

    def pause(self, order: Order) -> Ruling:
        """Stops the making of versions."""
        return self._judged(order, Verb.PAUSE) or self._taken(
            _act(order, Verb.PAUSE, changed=self._administration.paused_by is None)
        )

    def resume(self, order: Order, now: float) -> Ruling:
        """Goes on after a pause."""
        if ruling := self._judged(order, Verb.RESUME):
            return ruling
        is_paused = self._administration.paused_by is not None
        ruling = self._taken(_act(order, Verb.RESUME, changed=is_paused))
        if is_paused:
            self._membership.resumed(now)
        return ruling

    def evict(self, order: Order, name: str, now: float) -> Ruling:
        """Lets nobody wait for a participant any more; with an empty name: for one that has never joined."""
        if ruling := self._judged(order, Verb.EVICT, participant=name):
            return ruling
        participants = self._membership.participants
        if not name and not self._membership.has_vacant_seats:
            return Ruling(
                Answer.INVALID,
                "no seat is vacant: name somebody"
                + (f", the terms have {', '.join(self._terms.participants)}" if self._terms.participants else ""),
            )
        if name and name not in participants and name not in self._terms.participants:
            return Ruling(Answer.UNKNOWN_PARTICIPANT, self._nobody_like(name))
        is_new = name not in self._administration.evicted
        if is_new and not self._membership.has_room_without:
            return Ruling(
                Answer.INVALID, "that would leave nobody who could take part; order the end of the federation instead"
            )
        act = _act(order, Verb.EVICT, changed=is_new, participant=name)
        if not is_new:
            return self._taken(act)
        self._administration.apply(act)
        records: list[Record] = [act, *self._membership.evict(name, now)]
        if name in participants:
            records.append(participants[name].record())
        return Ruling(Answer.ACCEPTED, act=act, records=tuple(records))

    def end(self, order: Order, final_version: int | None, now: float) -> Ruling:
        """Ends the federation before its terms do.

        Args:
            final_version: the last version there will be; None: at once, with all that was accepted.
        """
        if found := self._repeated(order, Verb.END):
            return found
        membership = self._membership
        current, earliest = membership.final_version, membership.following(membership.frozen)
        if final_version is not None and final_version > current:
            return Ruling(
                Answer.INVALID,
                f"final_version must be at most {current}, found {final_version}: it cannot be raised, because the "
                "terms are what participants fixed their privacy budgets by; more rounds need a new federation",
            )
        is_over = membership.frozen >= current or self._administration.ends_at_once
        if final_version is not None and final_version < current and (is_over or final_version < earliest):
            return Ruling(
                Answer.INVALID,
                f"final_version must be {current if is_over else earliest} to {current}, found {final_version}: what "
                "is published or being written stays",
            )
        if is_over or final_version == current:
            return self._taken(_act(order, Verb.END, changed=False, final_version=current))
        at_once = final_version is None
        if final_version is None:
            is_complete = not (self._has_new_content() or membership.lacks_content or membership.unheard)
            final_version = membership.frozen if is_complete else earliest
        act = _act(order, Verb.END, final_version=final_version, at_once=at_once)
        self._administration.apply(act)
        return Ruling(Answer.ACCEPTED, act=act, records=(act, *membership.ended(now)))

    def drain(self, order: Order) -> Ruling:
        """Lets this process stop after the next version."""
        if found := self._repeated(order, Verb.DRAIN):
            return found
        ruling = self._taken(_act(order, Verb.DRAIN, changed=not self.is_draining))
        if self._drains_with is None:
            self._drains_with = self._membership.following(self._membership.frozen)
        return ruling

    # Parts of the above

    def _repeated(self, order: Order, verb: Verb, participant: str = "") -> Ruling | None:
        act = self._administration.find(order.request_id)
        if act is None:
            return None
        if act.verb is not verb or act.participant != participant:
            return Ruling(
                Answer.INVALID,
                f"request_id {order.request_id.hex()} was another order ({act.verb.value}, by "
                f"{administration_module.said(act)}); make 16 new random bytes for each order",
            )
        return Ruling(Answer.ACCEPTED, act=act)

    def _judged(self, order: Order, verb: Verb, participant: str = "") -> Ruling | None:
        """Returns what becomes of an order that is known, or comes too late; None: it has to be judged."""
        if found := self._repeated(order, verb, participant):
            return found
        if self._membership.has_ended:
            return Ruling(Answer.RUN_ENDED, f"the federation has ended with version {self._membership.newest}")
        if self._administration.ends_at_once:
            return Ruling(Answer.RUN_ENDED, f"the federation is ending with version {self._membership.final_version}")
        return None

    def _taken(self, act: Act) -> Ruling:
        self._administration.apply(act)
        return Ruling(Answer.ACCEPTED, act=act, records=(act,))

    def _nobody_like(self, name: str) -> str:
        if self._terms.participants:
            return f"the terms name {', '.join(self._terms.participants)}, found {name}"
        joined = ", ".join(sorted(self._membership.participants)) or "nobody"
        return (
            f"only who has joined can be evicted by name where the terms name nobody ({joined} so far), found {name}; "
            "close a vacant seat for somebody who never came"
        )


def _act(
    order: Order,
    verb: Verb,
    *,
    changed: bool = True,
    participant: str = "",
    final_version: int | None = None,
    at_once: bool = False,
) -> Act:
    return Act(order.at, order.who, verb, order.request_id, changed, participant, final_version, at_once, order.reason)
