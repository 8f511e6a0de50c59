"""A small Ethernet switch between network namespaces, which loses, delays, repeats, damages and cuts frames on demand.

Every host is a namespace of its own with one TAP device; the other ends are held here, so that no frame can leave the
machine. Random choices come from one seed. Needs root, iproute2 and /dev/net/tun.
"""

import contextlib
import ctypes
import dataclasses
import fcntl
import heapq
import itertools
import os
import random
import selectors
import struct
import subprocess
import threading
import time
from collections.abc import Iterable

_SET_INTERFACE, _TAP, _NO_HEADER = 0x400454CA, 0x0002, 0x1000
_NEW_NETWORK = 0x40000000
_BURST = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Weather:
    """What happens to frames, as shares of all frames and in seconds. A frame that waits may be overtaken."""

    loss: float = 0.0
    delay: float = 0.0
    jitter: float = 0.0
    repeats: float = 0.0
    damage: float = 0.0


CALM = Weather()


@dataclasses.dataclass(slots=True)
class Counts:
    """What has happened."""

    frames: int = 0
    lost: int = 0
    repeated: int = 0
    damaged: int = 0
    overtaken: int = 0
    cut: int = 0


class Switch:
    """The network of some hosts. Use it as a context; its namespaces carry this process's id and go with it.

    Attributes:
        weather: may be replaced at any time.
        counts: so far.
    """

    def __init__(self, hosts: Iterable[str], seed: int) -> None:
        self._hosts = list(hosts)
        self._random = random.Random(seed)
        self._devices: dict[str, int] = {}
        self._by_mac = {self._mac(number): host for number, host in enumerate(self._hosts)}
        self._waiting: list[tuple[float, int, str, bytes]] = []
        self._number = itertools.count()
        self._cut: set[frozenset[str]] = set()
        self._latest: dict[str, int] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="switch", daemon=True)
        self.weather = CALM
        self.counts = Counts()

    @staticmethod
    def _mac(number: int) -> bytes:
        return bytes((2, 0, 0, 0, 0x48, number + 1))

    def namespace(self, host: str) -> str:
        """Returns the name of a host's namespace."""
        return f"hushgrad-{os.getpid()}-{host}"

    def address(self, host: str) -> str:
        """Returns a host's address, in the range that RFC 2544 sets aside for such tests."""
        return f"198.18.48.{self._hosts.index(host) + 1}"

    def on(self, host: str) -> tuple[str, ...]:
        """Returns the beginning of a command that runs on a host."""
        return ("ip", "netns", "exec", self.namespace(host))

    def part(self, some: Iterable[str], others: Iterable[str]) -> None:
        """Cuts every link between two groups of hosts, in both directions."""
        self._cut = self._cut | {frozenset(pair) for pair in itertools.product(some, others)}

    def heal(self) -> None:
        """Mends all cuts."""
        self._cut = set()

    def __enter__(self) -> "Switch":
        for number, host in enumerate(self._hosts):
            name = self.namespace(host)
            _ip("netns", "add", name)
            self._devices[host] = _tap(name)
            mac = ":".join(f"{byte:02x}" for byte in self._mac(number))
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "link", "set", "tap0", "address", mac, "up")
            _ip("-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "tap0")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)
        for device in self._devices.values():
            os.close(device)
        for host in self._hosts:
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "del", self.namespace(host))

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for host, device in self._devices.items():
                selector.register(device, selectors.EVENT_READ, host)
            while not self._stopped.is_set():
                pause = 0.05 if not self._waiting else min(0.05, max(0.0, self._waiting[0][0] - time.monotonic()))
                for key, _ in selector.select(pause):
                    self._take(key.data, key.fd)
                self._deliver()

    def _take(self, source: str, device: int) -> None:
        for _ in range(_BURST):
            try:
                frame = os.read(device, 65536)
            except BlockingIOError:
                return
            target = self._by_mac.get(frame[:6])
            for host in [target] if target else self._hosts:
                if host is not None and host != source:
                    self._pass(source, host, frame)

    def _pass(self, source: str, target: str, frame: bytes) -> None:
        weather, chance, counts = self.weather, self._random.random, self.counts
        counts.frames += 1
        if frozenset((source, target)) in self._cut:
            counts.cut += 1
            return
        if chance() < weather.loss:
            counts.lost += 1
            return
        if chance() < weather.damage and len(frame) > 14:
            damaged = bytearray(frame)
            damaged[self._random.randrange(14, len(damaged))] ^= 1 << self._random.randrange(8)
            frame = bytes(damaged)
            counts.damaged += 1
        copies = 1 + (chance() < weather.repeats)
        counts.repeated += copies - 1
        for _ in range(copies):
            due = time.monotonic() + weather.delay + weather.jitter * chance()
            heapq.heappush(self._waiting, (due, next(self._number), target, frame))

    def _deliver(self) -> None:
        now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            _, number, target, frame = heapq.heappop(self._waiting)
            self.counts.overtaken += number < self._latest.get(target, -1)
            self._latest[target] = max(number, self._latest.get(target, -1))
            # A full queue of the device is loss like any other.
            with contextlib.suppress(OSError):
                os.write(self._devices[target], frame)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def _tap(namespace: str) -> int:
    """Makes tap0 in a namespace and returns its other end. Entering a namespace counts for one thread only."""
    made: list[int | OSError] = []

    def make() -> None:
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            entry = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
            try:
                if libc.setns(entry, _NEW_NETWORK) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
            finally:
                os.close(entry)
            device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            fcntl.ioctl(device, _SET_INTERFACE, struct.pack("16sH", b"tap0", _TAP | _NO_HEADER))
            made.append(device)
        except OSError as error:
            made.append(error)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        raise made[0]
    return made[0]
