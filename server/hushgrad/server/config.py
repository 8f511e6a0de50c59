"""server.toml: how people configure one server."""

import ipaddress
from pathlib import Path

import msgspec
from hushgrad.server.content import Policy
from hushgrad.server.errors import InputError
from hushgrad.server.limits import LimitsConfig


class TlsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The [tls] table; paths are relative to the file.

    Attributes:
        ca: certificate of the authority that signs members' certificates, PEM; several may stand in one file.
        certificate: the server's own, PEM, its authority's after it where clients do not know that one.
        key: the key of `certificate`, PEM, without a passphrase.
        denied: the deny list; empty: there is none, and a certificate holds until it expires.
        authority: folder of `hushgrad certs init`; with it the server signs what `hushgrad enroll new` announced, and
            renewals. Empty: it signs nothing and holds no authority's key.
    """

    ca: str
    certificate: str
    key: str
    denied: str = ""
    authority: str = ""


class ServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole server.toml. Nothing in it changes what the federation computes or promises; that is in the terms.

    Attributes:
        listen: host:port; port 0 picks a free one.
        state: folder of the server's state, relative to the file.
        keep_sealed: also keep the sealed bytes of every update; then all versions are kept.
        backups: whether `hushgrad-server backup` is run regularly. Clients then keep their sealed updates until a
            verified backup holds them; without it, until a checkpoint does.
        restore_wait_seconds: after a restore, how long to wait for every participant to say what it still holds, before
            versions are made without those that have not come back.
        keep_last: how many of the newest published versions stay available; 0: all.
        keep_every: of the older ones, the first from each multiple of this number on stays available for ever; 0: none.
        keep_versions: what `keep_last` was called before; write that instead.
        heartbeat_seconds: how often an idle watch hears from the server.
        drain_seconds: how long calls in progress may take when the server stops.
        linger_seconds: after the end, how long to stay for those who have not fetched the last model; 0 for ever.
        admin_listen: host:port on loopback for health, status, orders and reflection; empty: off.
        web_listen: host:port of the page, live events and metrics, for people and for Prometheus; empty: off. Needs the
            extra `web`. On loopback whoever is at the machine may look; elsewhere it takes [tls], and the
            certificate of an operator or observer.
        tracing: whether every update that is received becomes a span of OpenTelemetry's, below its sender's; its
            environment variables say where they go. Needs the extra `tracing`.
        improbable_updates: what becomes of an update that the declared mechanism cannot have produced: "refuse", for
            ever, or "accept-and-flag". It is no part of the terms: honest participants never meet it, it asks nothing
            of clients, and whatever is decided of an update stays decided when it changes.
        limits: how much anybody may ask of this server.
        tls: certificates; without them the server listens on loopback only.
        insecure_plaintext_to_anyone: also listen elsewhere without certificates: then whoever reaches the address may
            take part under any name, and whoever is on the way may change what travels.
    """

    listen: str = "127.0.0.1:7443"
    state: str = "server"
    keep_sealed: bool = False
    backups: bool = False
    restore_wait_seconds: float = 120.0
    keep_last: int = 100
    keep_every: int = 0
    keep_versions: int | None = None
    heartbeat_seconds: float = 5.0
    drain_seconds: float = 5.0
    linger_seconds: float = 30.0
    admin_listen: str = ""
    web_listen: str = ""
    tracing: bool = False
    improbable_updates: Policy = "refuse"
    limits: LimitsConfig = LimitsConfig()
    tls: TlsConfig | None = None
    insecure_plaintext_to_anyone: bool = False


def load(path: Path, *, listen: str | None = None, state: Path | None = None) -> ServerConfig:
    """Reads a server.toml; `state` of the result is absolute.

    Args:
        listen: takes the place of the file's.
        state: takes the place of the file's; relative to the working directory.

    Raises:
        InputError: if the file cannot be read, or a key is unknown, ill-typed or out of range.
    """
    try:
        content = path.read_bytes()
        config = msgspec.toml.decode(content, type=ServerConfig)
    except OSError as error:
        raise InputError(f"configuration {path} cannot be read: {error.strerror}") from error
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise InputError(f"configuration {path}: {error}") from error
    if config.keep_versions is not None:
        if "keep_last" in msgspec.toml.decode(content):
            raise InputError(f"configuration {path}: keep_versions was the name of keep_last; write only keep_last")
        config = msgspec.structs.replace(config, keep_last=config.keep_versions)
    folder = state.absolute() if state is not None else path.absolute().parent / config.state
    tls = config.tls
    if tls is not None:
        keys = {key: value for key, value in msgspec.structs.asdict(tls).items() if value}
        tls = TlsConfig(**{key: str(path.absolute().parent / value) for key, value in keys.items()})
    config = msgspec.structs.replace(config, listen=listen or config.listen, state=str(folder), tls=tls)
    _check(config, path)
    return config


def _check(config: ServerConfig, path: Path) -> None:
    host, _ = split_address(config.listen)
    if config.tls is None and not config.insecure_plaintext_to_anyone and not is_loopback(host):
        raise InputError(
            f"configuration {path}: without [tls], listen must be an address on loopback such as 127.0.0.1:7443, found "
            f"{config.listen}; make certificates with `hushgrad certs init`, or write "
            "insecure_plaintext_to_anyone = true"
        )
    if config.web_listen:
        web_host, _ = split_address(config.web_listen)
        if config.tls is None and not config.insecure_plaintext_to_anyone and not is_loopback(web_host):
            raise InputError(
                f"configuration {path}: without [tls], web_listen must be an address on loopback such as "
                f"127.0.0.1:7480, found {config.web_listen}; reach it from elsewhere through ssh, or make certificates "
                "with `hushgrad certs init`"
            )
    if config.tls is not None and config.insecure_plaintext_to_anyone:
        raise InputError(f"configuration {path}: [tls] and insecure_plaintext_to_anyone exclude each other")
    if not 0 <= config.restore_wait_seconds < float("inf"):
        raise InputError(
            f"configuration {path}: restore_wait_seconds must be >= 0 and finite, found {config.restore_wait_seconds}"
        )
    for what, number in (("keep_last", config.keep_last), ("keep_every", config.keep_every)):
        if number < 0:
            raise InputError(f"configuration {path}: {what} must be >= 0, found {number}")
    if not 0.05 <= config.heartbeat_seconds <= 3600:
        raise InputError(
            f"configuration {path}: heartbeat_seconds must be 0.05 to 3600, found {config.heartbeat_seconds}"
        )
    for what, value in (("drain_seconds", config.drain_seconds), ("linger_seconds", config.linger_seconds)):
        if not 0 <= value < float("inf"):
            raise InputError(f"configuration {path}: {what} must be finite and >= 0, found {value}")


def is_loopback(host: str) -> bool:
    """Says whether a host is this machine to itself, so that nobody else reaches it.

    >>> is_loopback("127.0.0.1"), is_loopback("[::1]"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def split_address(address: str) -> tuple[str, int]:
    """Returns (host, port) of host:port; an IPv6 host keeps its brackets.

    Raises:
        InputError: if it is no such address.

    >>> split_address("127.0.0.1:7443")
    ('127.0.0.1', 7443)
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise InputError(f"an address must be host:port with port 0 to 65535, found {address!r}")
    return host, int(port)
