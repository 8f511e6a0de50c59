"""The operator: gives orders, repeats each until it is answered, and again when a restored server has forgotten it.

Every order keeps its request id through all repeats, so that repeating is what a careful or a nervous person does.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from hushgrad.server.administration import Order, Ruling
from hushgrad.server.orders import Orders
from hushgrad.server.records import Answer

from tests.faults.simulator.plan import Fault
from tests.faults.simulator.world import World

if TYPE_CHECKING:
    from tests.faults.simulator.server import Server

REPEAT_SECONDS = 2.0
NAME = "alice"

Give = Callable[[Orders, Order, float], Ruling]


class Operator:
    """One operator and what it has ordered."""

    def __init__(self, world: World, server: "Server") -> None:
        self._world = world
        self._server = server
        self._lasting: list[tuple[bytes, Give]] = []
        self._answers: dict[bytes, list[Answer]] = {}

    def strike(self, fault: Fault) -> None:
        """Gives the orders of a schedule's entry."""
        end_at = int(fault.value) or None
        match fault.kind:
            case "pause":
                self._world.until(self._world.now + fault.seconds)
                number = self._give(_pausing)
                self._world.after(fault.seconds, self._resume, number, self._server.store.epoch)
            case "evict":
                self._lasting.append((self._give(_evicting(fault.who)), _evicting(fault.who)))
            case "end":
                self._lasting.append((self._give(_ending(end_at)), _ending(end_at)))
            case _:
                self._world.until(self._world.now + fault.seconds)
                self._server.restarts_after_drain(fault.seconds)
                self._give(lambda orders, order, now: orders.drain(order))

    def _resume(self, paused: bytes, epoch: int) -> None:
        if not self._answers[paused]:  # who does not know yet whether it is paused finds that out first
            self._world.until(self._world.now + REPEAT_SECONDS)
            self._world.after(REPEAT_SECONDS, self._resume, paused, epoch)
            return
        self._lasting.append((self._give(_resuming), _resuming))
        # The answer to the pause was lost on its way, and only now it is sent again. (A restored server may take it for
        # a new one, and an operator who restores has to know that.)
        if self._server.store.epoch == epoch:
            self._try(paused, _pausing)

    def restored(self) -> None:
        """The server was put back to a time that may be before some orders: what is meant to last is said again."""
        for number, give in self._lasting:
            self._answers[number] = []
            self._world.after(1.0, self._try, number, give)

    def _give(self, give: Give) -> bytes:
        number = self._world.chance.randbytes(16)
        self._try(number, give)
        return number

    def _try(self, number: bytes, give: Give) -> None:
        answers = self._answers.setdefault(number, [])
        self._world.until(self._world.now + REPEAT_SECONDS)
        self._server.order(lambda orders, now: give(orders, Order(now, NAME, number), now), answers)
        self._world.after(REPEAT_SECONDS, self._unless_answered, number, give)

    def _unless_answered(self, number: bytes, give: Give) -> None:
        if not self._answers[number]:
            self._world.counts["an order is repeated"] += 1
            self._try(number, give)


def _pausing(orders: Orders, order: Order, now: float) -> Ruling:
    del now
    return orders.pause(order)


def _resuming(orders: Orders, order: Order, now: float) -> Ruling:
    return orders.resume(order, now)


def _evicting(name: str) -> Give:
    return lambda orders, order, now: orders.evict(order, name, now)


def _ending(version: int | None) -> Give:
    return lambda orders, order, now: orders.end(order, version, now)
