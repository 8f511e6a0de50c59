"""The experiment file: what a researcher writes, checked as far as that is possible without data.

Nothing that changes privacy or the meaning of a step has a default. In formulas: N records of a client, s the sample
size, T rounds, C the clip norm, n clients.
"""

import math
from pathlib import Path
from typing import Any, Literal

import msgspec
from hushgrad.experiments.errors import InputError
from hushgrad.wire import names
from hushgrad.wire.errors import ContractError
from hushgrad.wire.terms_file import Delay, SampleSize, StepSize

Scaling = Literal["sum", "mean"]
Noise = Literal["local", "central", "none"]
Accounting = Literal["tight", "moments"]


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of the file; unknown keys are errors."""


class Data(_Section, frozen=True):
    """Which records, and which of them are the public test set.

    set: "phishing" (in the package), "mnist" or "ijcnn1" (in the folder HUSHGRAD_DATA; their own test files are the
    test set), or the path of a .npz or .csv file, relative to the experiment file. test_records: drawn at random, anew
    for each seed; must be 0 where the set has a test file.
    """

    set: str
    test_records: int
    label: str = "y"


class Partition(_Section, frozen=True):
    """Which records a client has. records: of each client, N.

    same: all clients have the same records (a record's privacy is then spent by all of them). iid: each client draws
    its records from all, without replacement, independently of the others. disjoint: no record is at two clients.
    dirichlet: disjoint, and the classes' shares differ by client, the more the smaller alpha is.
    """

    kind: Literal["same", "iid", "disjoint", "dirichlet"]
    records: int
    alpha: float | None = None


class Model(_Section, frozen=True):
    """What is trained: a kind of `client.models` and its options, as in a client's [model] table.

    l2: the weight of |w|^2 / 2 inside each clipped gradient.
    """

    kind: str
    l2: float = 0.0
    hidden: list[int] | None = None
    activation: Literal["tanh", "relu"] | None = None
    padding: int | None = None
    image: list[int] | None = None
    feature_map: Literal["oriented-gradients"] | None = None

    def options(self) -> dict[str, Any]:
        """Returns the options that were given, for `models.make`."""
        named = {name: getattr(self, name) for name in self.__struct_fields__ if name not in ("kind", "l2")}
        return {name: value for name, value in named.items() if value is not None}


class Clients(_Section, frozen=True):
    """How many there are and how fast; all times are simulated seconds.

    compute_seconds: a round takes a uniformly random time in this range, times the client's slowdown.
    latency_seconds: so does each message. slowdown: one factor for each client; empty: all are alike.
    """

    number: int
    compute_seconds: tuple[float, float] = (0.5, 1.5)
    latency_seconds: tuple[float, float] = (0.0, 0.3)
    slowdown: list[float] = []


class Privacy(_Section, frozen=True):
    """What protects a record. Give either noise_multiplier or epsilon; with noise "none" neither.

    noise: "local", every client adds its own; "central", a trusted server would add it to the sum of all clients'
    clean sums, which is another trust model; "none", a yardstick without privacy. clipping: false only with noise
    "none"; clip_norm then is the scale of the grid. accounting: how epsilon becomes noise: "tight" by the loss
    distribution; "moments" by the moments accountant, which is what Theorem 1 of the paper rests on, for Poisson
    sampling; the claim is always the tight one. accept_large_delta: delta above 1/N is meant.
    """

    noise: Noise
    clipping: bool
    clip_norm: float
    sampler: Literal["poisson", "fixed"]
    delta: float
    noise_multiplier: float | None = None
    epsilon: float | None = None
    accounting: Accounting = "tight"
    accept_large_delta: bool = False


class Training(_Section, frozen=True):
    """How the model moves. Give either rounds, T, or grad_computations, K: as many rounds as reach K.

    sum_over_batch, sum_over_clients: "sum", as the paper's algorithms say; "mean" divides the step sizes by the nominal
    sample size, or by the number of clients. publish_every: a version is published every so many rounds, at most
    max_delay + 1, and the last always is. straggler_timeout_seconds: whoever holds a version up for
    longer is suspended.
    """

    sample_size: SampleSize
    step_size: StepSize
    delay: Delay
    sum_over_batch: Scaling
    sum_over_clients: Scaling
    rounds: int | None = None
    grad_computations: int | None = None
    window: int | None = None
    publish_every: int = 1
    straggler_timeout_seconds: float = 1e6


class Pause(_Section, frozen=True):
    """A client that does nothing for a while."""

    client: int
    at_seconds: float
    seconds: float


class Crash(_Section, frozen=True):
    """A client whose process is killed in a round, and started again after so many seconds."""

    client: int
    round: int
    seconds: float


class Faults(_Section, frozen=True):
    """What goes wrong.

    loss: a message is lost with this probability and sent again after resend_seconds; simulated only. pauses: clients
    that do nothing for a while; simulated only. crashes: see there; with crash_rate, a client also crashes in a round
    with this probability and is away for restart_seconds: which rounds these are follows from the seed. A simulated
    crash comes before the round is sealed or just after it; real processes are killed when they have sealed it.
    """

    loss: float = 0.0
    resend_seconds: float = 2.0
    pauses: list[Pause] = []
    crashes: list[Crash] = []
    crash_rate: float = 0.0
    restart_seconds: float = 5.0


class Evaluation(_Section, frozen=True):
    """How many versions are scored, evenly spread; the last always is."""

    points: int = 40


class Axis(_Section, frozen=True):
    """One axis of the sweep: the keys that vary together, such as ["privacy.epsilon"], and their values."""

    keys: list[str]
    values: list[list[Any]]


class Experiment(_Section, frozen=True):
    """A whole experiment file.

    labels: numbers or words that go into the tables as they are, such as what a paper printed.
    """

    name: str
    seeds: list[int]
    data: Data
    partition: Partition
    model: Model
    clients: Clients
    privacy: Privacy
    training: Training
    evaluation: Evaluation = Evaluation()
    faults: Faults = Faults()
    labels: dict[str, str | float] = {}
    description: str = ""
    sweep: list[Axis] = []


def load(path: Path) -> Experiment:
    """Reads an experiment file. A relative data file becomes absolute.

    Raises:
        InputError: if it cannot be read, has unknown, missing or ill-typed keys, or says what cannot be.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"the experiment file {path} cannot be read: {error.strerror}") from None
    return parse(content, where=str(path), folder=path.resolve().parent)


def parse(content: bytes, *, where: str, folder: Path) -> Experiment:
    """As `load`, from what the file holds."""
    try:
        raw = msgspec.toml.decode(content)
        experiment = convert(raw)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{where}: {error}") from None
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    if experiment.data.set.endswith((".npz", ".csv")):
        data = msgspec.structs.replace(experiment.data, set=str(folder / experiment.data.set))
        experiment = msgspec.structs.replace(experiment, data=data)
    return experiment


def convert(raw: Any) -> Experiment:
    """Returns the experiment that plain values describe.

    Raises:
        msgspec.ValidationError: for unknown, missing or ill-typed keys.
        InputError: if it says what cannot be.
    """
    experiment = msgspec.convert(raw, Experiment)
    check(experiment)
    return experiment


def check(experiment: Experiment) -> None:
    """Refuses what cannot be.

    Raises:
        InputError: names the key, what was expected and what was found.
    """
    try:
        names.check_name(experiment.name, what="name")
    except ContractError as error:
        raise InputError(str(error)) from None
    if not experiment.seeds or min(experiment.seeds) < 0 or len(set(experiment.seeds)) != len(experiment.seeds):
        raise InputError(f"seeds must be at least one number, each >= 0 and different, found {experiment.seeds}")
    _check_clients(experiment)
    _check_partition(experiment.partition)
    _check_privacy(experiment)
    _check_training(experiment.training)
    _check_faults(experiment)
    if experiment.data.test_records < 0:
        raise InputError(f"data.test_records must be >= 0, found {experiment.data.test_records}")
    if experiment.evaluation.points < 1:
        raise InputError(f"evaluation.points must be >= 1, found {experiment.evaluation.points}")


def _check_clients(experiment: Experiment) -> None:
    clients = experiment.clients
    if not 1 <= clients.number <= 10_000:
        raise InputError(f"clients.number must be 1 to 10000, found {clients.number}")
    for key, (low, high) in (
        ("compute_seconds", clients.compute_seconds),
        ("latency_seconds", clients.latency_seconds),
    ):
        if not 0 <= low <= high < math.inf:
            raise InputError(f"clients.{key} must be [least, most], 0 <= least <= most, found {[low, high]}")
    if clients.compute_seconds[1] <= 0:
        raise InputError("clients.compute_seconds must not be zero: a round takes time")
    if clients.slowdown and (len(clients.slowdown) != clients.number or not 0 < min(clients.slowdown) < math.inf):
        raise InputError(f"clients.slowdown must be {clients.number} factors > 0, found {clients.slowdown}")


def _check_partition(partition: Partition) -> None:
    if partition.records < 1:
        raise InputError(f"partition.records must be >= 1, found {partition.records}")
    if (partition.alpha is not None) != (partition.kind == "dirichlet"):
        raise InputError('partition.alpha goes with kind "dirichlet", and that needs it')
    if partition.alpha is not None and not 0 < partition.alpha < math.inf:
        raise InputError(f"partition.alpha must be finite and > 0, found {partition.alpha}")


def _check_privacy(experiment: Experiment) -> None:
    privacy = experiment.privacy
    given = [key for key in ("noise_multiplier", "epsilon") if getattr(privacy, key) is not None]
    if privacy.noise == "none":
        if given:
            raise InputError(f'privacy.{given[0]} must not be given with noise = "none"')
    elif len(given) != 1:
        raise InputError(
            f'privacy must have exactly one of noise_multiplier and epsilon with noise = "{privacy.noise}"'
        )
    if not privacy.clipping and privacy.noise != "none":
        raise InputError('privacy.clipping = false is only for noise = "none": noise without clipping protects nobody')
    for key in ("clip_norm", "noise_multiplier", "epsilon"):
        value = getattr(privacy, key)
        if value is not None and not 0 < value < math.inf:
            raise InputError(f"privacy.{key} must be finite and > 0, found {value}")
    if not 0 < privacy.delta < 1:
        raise InputError(f"privacy.delta must be above 0 and below 1, found {privacy.delta}")
    if privacy.accounting != "tight" and privacy.epsilon is None:
        raise InputError("privacy.accounting says how epsilon becomes noise; give epsilon, or leave it out")
    if privacy.noise == "central" and experiment.partition.kind in ("same", "iid"):
        raise InputError('noise = "central" needs partition.kind "disjoint" or "dirichlet": its claim is for a record '
                         "that sits at one client")  # fmt: skip


def _check_training(training: Training) -> None:
    if (training.rounds is None) == (training.grad_computations is None):
        raise InputError("training must have exactly one of rounds and grad_computations")
    for key in ("rounds", "grad_computations", "window", "publish_every"):
        value = getattr(training, key)
        if value is not None and value < 1:
            raise InputError(f"training.{key} must be >= 1, found {value}")
    if not 0 < training.straggler_timeout_seconds < math.inf:
        raise InputError(
            f"training.straggler_timeout_seconds must be finite and > 0, found {training.straggler_timeout_seconds}"
        )


def _check_faults(experiment: Experiment) -> None:
    faults = experiment.faults
    if not 0 <= faults.loss < 1:
        raise InputError(f"faults.loss must be >= 0 and < 1, found {faults.loss}")
    if not 0 <= faults.crash_rate < 1:
        raise InputError(f"faults.crash_rate must be >= 0 and < 1, found {faults.crash_rate}")
    if not 0 < faults.restart_seconds < math.inf:
        raise InputError(f"faults.restart_seconds must be finite and > 0, found {faults.restart_seconds}")
    for crash in faults.crashes:
        if not 1 <= crash.client <= experiment.clients.number:
            raise InputError(f"faults.crashes: client must be 1 to {experiment.clients.number}, found {crash.client}")
        if not (crash.round >= 0 and 0 < crash.seconds < math.inf):
            raise InputError("faults.crashes: round must be >= 0 and seconds > 0 and finite")
    if not 0 < faults.resend_seconds < math.inf:
        raise InputError(f"faults.resend_seconds must be finite and > 0, found {faults.resend_seconds}")
    for pause in faults.pauses:
        if not 1 <= pause.client <= experiment.clients.number:
            raise InputError(f"faults.pauses: client must be 1 to {experiment.clients.number}, found {pause.client}")
        if not (0 <= pause.at_seconds < math.inf and 0 < pause.seconds < math.inf):
            raise InputError("faults.pauses: at_seconds must be >= 0 and seconds > 0, both finite")
