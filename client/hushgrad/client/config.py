"""client.toml and evaluator.toml: what people write, with overrides from environment and command line.

Nothing that changes privacy has a default. Relative paths are relative to the file that they stand in.
"""

import ipaddress
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec
from hushgrad.client.data import DataConfig
from hushgrad.client.errors import InputError
from hushgrad.client.models import registry
from hushgrad.wire import names
from hushgrad.wire.errors import ContractError

OWN_LOOP: Final = "own-loop"
"""The kind of a model that a loop of the user's trains: `hushgrad.client.connect` takes its arrays from the terms."""


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the file; unknown keys are errors."""


class ModelConfig(_Section, frozen=True):
    """The [model] table: which model is trained. `models.registry` says which options each kind takes.

    Attributes:
        kind: of the model.
        l2: weight of |w|^2 / 2 inside each clipped per-example gradient.
        classes: how many.
        hidden: widths of hidden layers.
        activation: of hidden layers.
        padding: zeros around an image before the first convolution.
        image: its height and width.
        feature_map: what is computed of each record before training.
        precision: in which gradients are clipped and summed.
        factory: "package.module:factory", what makes a PyTorch module.
        device: where PyTorch computes.
    """

    kind: str
    l2: float = 0.0
    classes: int = 2
    hidden: list[int] | None = None
    activation: Literal["tanh", "relu"] | None = None
    padding: int | None = None
    image: list[int] | None = None
    feature_map: Literal["oriented-gradients"] | None = None
    factory: str | None = None
    device: str | None = None
    precision: Literal["float64", "float32"] | None = None

    def options(self) -> dict[str, Any]:
        """Returns the options that were given, for `models.make`."""
        fixed = ("kind", "l2", "classes")
        named = {name: getattr(self, name) for name in self.__struct_fields__ if name not in fixed}
        return {name: value for name, value in named.items() if value is not None}


class PrivacyConfig(_Section, frozen=True):
    """The [privacy] table: what this participant does and allows. Nothing about privacy has a default.

    Attributes:
        records: N, declared and public: at least as many as there are; q and every divisor come from it.
        clip_norm: C; must be the terms'.
        noise_multiplier: sigma, within the terms'; more noise is more privacy.
        sampler: how a round's records are chosen; must be allowed by the terms.
        epsilon: the most that this run may cost, with delta.
        delta: the most that this run may cost, with epsilon.
        lifetime_epsilon: the most that all runs of this ledger may cost, added up, with lifetime_delta.
        lifetime_delta: the most that all runs of this ledger may cost, added up, with lifetime_epsilon.
        release_interval_seconds: updates leave on ticks of this public clock; a round must take less than three
            quarters of it; 0: at once, and then timing is not covered by the claim.
    """

    records: int
    clip_norm: float
    noise_multiplier: float
    sampler: Literal["poisson", "fixed"]
    epsilon: float
    delta: float
    lifetime_epsilon: float
    lifetime_delta: float
    release_interval_seconds: float = 0.0


class TlsConfig(_Section, frozen=True):
    """The [tls] table: who we are, and whom we believe. Paths are relative to the file.

    Attributes:
        ca: certificate of the authority that signs the server's, PEM; or HUSHGRAD_TLS_CA.
        certificate: our own, PEM; or HUSHGRAD_TLS_CERTIFICATE.
        key: the key of `certificate`, PEM, without a passphrase; or HUSHGRAD_TLS_KEY.
        server_name: the name that the server's certificate must have, where that is not the host in `server`, as behind
            a tunnel.
    """

    ca: str = ""
    certificate: str = ""
    key: str = ""
    server_name: str = ""


class ClientConfig(_Section, frozen=True):
    """A whole client.toml. `participant`, `server`, `state` and the data may come from elsewhere.

    Attributes:
        data: see the table.
        model: see the table.
        privacy: see the table.
        participant: its name; or --participant, or HUSHGRAD_PARTICIPANT.
        server: host:port; or --server, or HUSHGRAD_SERVER.
        state: folder of ledger and outbox, relative to the file; or --state, or HUSHGRAD_STATE.
        terms_digest: pins the federation, with the digest that `hushgrad-server init` printed.
        connect_timeout_seconds: how long the first contact may take; later outages are waited for without limit.
        declare_claim: whether the server is told the claim that this run commits, to be shown as declared. It follows
            from configuration and terms alone; whoever knows the terms can compute [privacy] records from it.
        round_seconds: this client begins a round at most once in so many seconds, a public pace; 0: as fast as it can.
        tracing: whether every update that is sent becomes a span of OpenTelemetry's; its environment variables say
            where they go. Needs the extra `tracing`.
        tls: certificates; without them the server must be on this machine.
        insecure_plaintext_to_anyone: speak without TLS to a server on another machine: whoever is on the way may answer
            in its place. What leaves is noised all the same.
    """

    model: ModelConfig
    privacy: PrivacyConfig
    data: DataConfig = DataConfig()
    participant: str = ""
    server: str = ""
    state: str = ""
    terms_digest: str | None = None
    connect_timeout_seconds: float = 60.0
    round_seconds: float = 0.0
    declare_claim: bool = True
    tracing: bool = False
    tls: TlsConfig | None = None
    insecure_plaintext_to_anyone: bool = False


class EvaluatorConfig(_Section, frozen=True):
    """A whole evaluator.toml: a watcher that scores each version on a public test set.

    Attributes:
        data: see the table; of the test set.
        model: see the table.
        server: host:port; or --server, or HUSHGRAD_SERVER.
        name: of the watcher.
        output: .csv file of the curve, relative to the file.
        report: whether the server is told the accuracy of each version, to be shown to whoever looks at the federation.
            Only for test sets that are public.
        connect_timeout_seconds: how long the first contact may take.
        tls: certificates; without them the server must be on this machine.
        insecure_plaintext_to_anyone: speak without TLS to a server on another machine: whoever is on the way may answer
            in its place. What leaves is noised all the same.
    """

    data: DataConfig
    model: ModelConfig
    server: str = ""
    name: str = "evaluator"
    output: str = "curve.csv"
    report: bool = True
    connect_timeout_seconds: float = 60.0
    tls: TlsConfig | None = None
    insecure_plaintext_to_anyone: bool = False


_T = TypeVar("_T", ClientConfig, EvaluatorConfig)


def load_client(path: Path, overrides: Mapping[str, str | None]) -> ClientConfig:
    """Reads a client.toml; all paths in what it returns are absolute.

    Args:
        path: the file.
        overrides: values for participant, server, state, data, tls_ca, tls_certificate and tls_key that win over the
            file; None or empty is no value. Their paths are relative to the current folder.

    Raises:
        InputError: if the file cannot be read, has unknown, missing or ill-typed keys, or says what cannot be.
    """
    config = _decode(path, ClientConfig)
    folder = path.resolve().parent
    given = {key: value for key, value in overrides.items() if value}
    state = given.get("state")
    config = msgspec.structs.replace(
        config,
        participant=given.get("participant", config.participant),
        server=given.get("server", config.server),
        state=str(Path(state).resolve() if state else folder / config.state) if state or config.state else "",
        data=_resolve(config.data, folder, given.get("data")),
        tls=_tls(config.tls, folder, given, path),
    )
    for key in ("participant", "server", "state"):
        if not getattr(config, key):
            raise InputError(f"{path}: {key} must be given, here, as --{key} or as HUSHGRAD_{key.upper()}")
    try:
        names.check_name(config.participant)
    except ContractError as error:
        raise InputError(f"{path}: {error}") from None
    _check_address(config, path)
    _check(config, path)
    return config


def load_evaluator(path: Path, overrides: Mapping[str, str | None]) -> EvaluatorConfig:
    """Reads an evaluator.toml; all paths in what it returns are absolute.

    Raises:
        InputError: as `load_client`.
    """
    config = _decode(path, EvaluatorConfig)
    folder = path.resolve().parent
    given = {key: value for key, value in overrides.items() if value}
    output = given.get("output")
    config = msgspec.structs.replace(
        config,
        server=given.get("server", config.server),
        output=str(Path(output).resolve() if output else folder / config.output),
        data=_resolve(config.data, folder, given.get("data")),
        tls=_tls(config.tls, folder, given, path),
    )
    if not config.server:
        raise InputError(f"{path}: server must be given, here, as --server or as HUSHGRAD_SERVER")
    try:
        names.check_name(config.name, what="name")
    except ContractError as error:
        raise InputError(f"{path}: {error}") from None
    _check_address(config, path)
    return config


def check_text(text: str, *, is_participant: bool, source: str) -> None:
    """Refuses a text that is no client.toml, or no evaluator.toml; files that it names are not looked at.

    Raises:
        InputError: as `load_client`; it names the source.
    """
    try:
        msgspec.toml.decode(text, type=ClientConfig if is_participant else EvaluatorConfig)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise InputError(f"configuration {source}: {error}") from None


def _decode(path: Path, kind: type[_T]) -> _T:
    try:
        config = msgspec.toml.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise InputError(f"configuration {path} cannot be read: {error.strerror}; name it with --config") from None
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"configuration {path}: {error}") from None
    kinds = (*registry.KINDS, OWN_LOOP)
    if config.model.kind not in kinds:
        raise InputError(
            f"configuration {path}: [model] kind must be one of {', '.join(kinds)}, found {config.model.kind!r}"
        )
    return config


def _resolve(data: DataConfig, folder: Path, override: str | None) -> DataConfig:
    if override:
        data = msgspec.structs.replace(data, file=str(Path(override).resolve()), sklearn=None, openml=None)
    if sum(name is not None for name in (data.file, data.sklearn, data.openml)) > 1:
        raise InputError("[data] must name either file or sklearn or openml, not several")
    return msgspec.structs.replace(
        data,
        file=None if data.file is None else str(folder / data.file),
        labels_file=None if data.labels_file is None else str(folder / data.labels_file),
    )


def _tls(tls: TlsConfig | None, folder: Path, given: Mapping[str, str], path: Path) -> TlsConfig | None:
    keys = ("ca", "certificate", "key")
    if tls is None and not any(f"tls_{key}" in given for key in keys):
        return None
    tls = tls or TlsConfig()
    found = {}
    for key in keys:
        override, own = given.get(f"tls_{key}"), getattr(tls, key)
        if not override and not own:
            raise InputError(f"{path}: [tls] {key} must be given, here or as HUSHGRAD_TLS_{key.upper()}")
        found[key] = str(Path(override).resolve() if override else folder / own)
    return msgspec.structs.replace(tls, **found)


def is_loopback(host: str) -> bool:
    """Says whether a host is this machine itself.

    >>> is_loopback("127.0.0.1"), is_loopback("[::1]"), is_loopback("localhost"), is_loopback("example.org")
    (True, True, True, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _check_address(config: ClientConfig | EvaluatorConfig, path: Path) -> None:
    address = config.server
    host, separator, port = address.rpartition(":")
    if not separator or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise InputError(f"server must be host:port with a port from 1 to 65535, found {address!r}")
    if config.tls is None and not config.insecure_plaintext_to_anyone and not is_loopback(host):
        raise InputError(
            f"{path}: without [tls], server must be an address on loopback, found {address}; get certificates with "
            "`hushgrad-client enroll`, or write insecure_plaintext_to_anyone = true"
        )
    if config.tls is not None and config.insecure_plaintext_to_anyone:
        raise InputError(f"{path}: [tls] and insecure_plaintext_to_anyone exclude each other")


def _check(config: ClientConfig, path: Path) -> None:
    privacy = config.privacy
    positive = {
        "privacy.clip_norm": privacy.clip_norm,
        "privacy.noise_multiplier": privacy.noise_multiplier,
        "privacy.epsilon": privacy.epsilon,
        "privacy.lifetime_epsilon": privacy.lifetime_epsilon,
        "privacy.records": privacy.records,
        "connect_timeout_seconds": config.connect_timeout_seconds,
    }
    for key, value in positive.items():
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"{path}: {key} must be finite and > 0, found {value}")
    for key, value in (("privacy.delta", privacy.delta), ("privacy.lifetime_delta", privacy.lifetime_delta)):
        if not 0 < value < 1:
            raise InputError(f"{path}: {key} must be between 0 and 1, found {value}")
    for key, value in (
        ("privacy.release_interval_seconds", privacy.release_interval_seconds),
        ("round_seconds", config.round_seconds),
        ("model.l2", config.model.l2),
    ):
        if not (math.isfinite(value) and value >= 0):
            raise InputError(f"{path}: {key} must be finite and >= 0, found {value}")
    if config.terms_digest is not None:
        try:
            length = len(bytes.fromhex(config.terms_digest))
        except ValueError:
            length = 0
        if length != 32:
            raise InputError(f"{path}: terms_digest must be 64 hexadecimal digits, found {config.terms_digest!r}")
