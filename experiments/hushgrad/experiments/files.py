"""The files that a federation starts from, as commented text: terms, server, clients, evaluator.

Text only: what the numbers are is decided in `plan`, where the files go by whoever asks for them.
"""

import math
from dataclasses import dataclass

from hushgrad.client import models
from hushgrad.experiments.plan import Plan

COMMENT_COLUMN = 32


@dataclass(frozen=True, slots=True)
class DataSource:
    """The [data] table of a client or an evaluator.

    Attributes:
        file: path of a .npz or .csv file, relative to the configuration file. Empty: given by flag or environment.
        sklearn: name of one of scikit-learn's built-in sets, instead of a file.
        label: the .csv's label column, or the .npz's label array.
        bounds: declared public [low, high] of every feature; None: values are used as they are.
        class_names: declared public names of the labels, in order; empty: labels are 0, 1, 2, ...
    """

    file: str = ""
    sklearn: str = ""
    label: str = "y"
    bounds: tuple[tuple[float, float], ...] | None = None
    class_names: tuple[str, ...] = ()


def terms(plan: Plan, *, straggler_timeout_seconds: float) -> str:
    """Returns terms.toml."""
    request, claim = plan.request, plan.claim
    arrays = "\n\n".join(
        f"[[arrays]]\nname = {_text(spec.name)}\nshape = {list(spec.shape)}" for spec in plan.model.arrays
    )
    if request.step_kind == "linear":
        values = ", ".join(_number(plan.eta0 * (1 - i / request.rounds)) for i in range(request.rounds))
        step = f'kind = "list"\nvalues = [{values}]'
    else:
        step = f'kind = "{request.step_kind}"\neta0 = {_number(plan.eta0)}'
        if request.step_kind != "constant":
            step += f"\nbeta = {_number(request.beta)}"
    return f"""\
# The terms of the federation: what all its participants agree on. `hushgrad-server init` makes them final, with a
# digest that every ledger pins. Change them before that; afterwards a change means a new federation.

federation = {_text(request.name)}
{_line("model", _text(plan.model.name), "for people; the server does not interpret it")}

# Who may take part. The federation begins when all of them have started. With names that are not known yet, write
# largest_number_of_participants = {len(plan.participants)} instead.
participants = [{", ".join(map(_text, plan.participants))}]

# Every participant does as many rounds as there are versions. It may be max_delay rounds ahead of the newest version
# (0: all wait for all in every round), and updates are taken up to `window` versions late.
final_version = {request.rounds}
window = {request.max_delay + 3}
# Then the federation goes on without whoever holds it up.
straggler_timeout_seconds = {_number(straggler_timeout_seconds)}
# 0: version 1 waits for all; else after so long a majority is enough.
start_timeout_seconds = 0.0

# Updates are integers that stand for multiples of 2^grid_exponent. The grid follows from the privacy section below:
# leave this line out, and `hushgrad-server init` computes it.
grid_exponent = {plan.grid_exponent}

# The model, {plan.parameters} parameters; initial.safetensors holds these arrays.
{arrays}

[delay]
kind = "max-delay"
max_delay = {request.max_delay}

# Step sizes are applied to the SUM of a round's clipped gradients, not to their mean, and to every participant's sum:
# a version moves the model by about eta0 * sample size * participants times a mean gradient. If the accuracy jumps up
# and down, lower eta0; if it still rises at the end, raise it. Try on public data: trying on private data costs budget.
# inverse-sqrt: eta0 / (1 + beta * sqrt(t)), where t is the sum of the sample sizes so far.
[step_size]
{step}

# The nominal number of records of a round. Privacy hardly depends on it, because the noise below was made for it.
[sample_size]
kind = "constant"
size = {plan.sample_size}

# What every participant must keep to. A stricter participant may add more noise, up to the largest below.
# With noise_multiplier_min a whole run of a participant with {request.records} records costs
#   epsilon {claim.epsilon:g} at delta {claim.delta:g} per {claim.unit}, {claim.adjacency}, {claim.sampling} sampling,
# computed by {claim.method.upper()}, version {claim.method_version}; rounding, sums and samplers included.
[privacy]
{_line("clip_norm", _number(request.clip_norm), "C: no record moves a round's sum by more, in L2 norm")}
{_line("noise_multiplier_min", _number(plan.noise_multiplier), "sigma: the noise has deviation sigma * C, each number")}
noise_multiplier_max = {_number(plan.noise_multiplier_max)}
samplers = [{_text(request.sampler)}]
{_line("max_examples_per_round", str(plan.max_examples_per_round), "a larger batch is so rare that delta covers it")}
"""


def server(
    *,
    listen: str,
    state: str,
    keep_sealed: bool,
    keep_last: int,
    linger_seconds: float,
    web_listen: str = "",
) -> str:
    """Returns server.toml; with certificates and a local listener, if other machines can reach the address.

    Args:
        web_listen: host:port of the page; empty: the line is there for whoever wants it.
    """
    is_local = listen.startswith(("127.", "localhost:", "[::1]:"))
    return f"""\
{_line("listen", _text(listen), "host:port; port 0 picks a free one and logs it")}
{_line("state", _text(state), "folder of receipts, checkpoints and published models")}
{_line("keep_sealed", str(keep_sealed).lower(), "true: also keep the sealed bytes of every update")}
{_line("backups", "false", "true: clients keep updates until hushgrad-server backup has them")}
{_line("keep_last", str(keep_last), "how many published versions stay available; 0: all")}
heartbeat_seconds = 5.0
{_line("drain_seconds", "5.0", "how long a stopping server finishes what it began")}
# How long to stay, after the end, for those who have not fetched the last model; 0: for ever.
linger_seconds = {_number(linger_seconds)}
# Health, status and gRPC reflection for people at this machine; on loopback only, off unless it is written here.
{"# " if is_local else ""}admin_listen = "127.0.0.1:7444"
# A page of how the federation does, http://127.0.0.1:7480/, and Prometheus' /metrics. From elsewhere: docs/page.md.
{"" if web_listen else "# "}web_listen = {_text(web_listen or "127.0.0.1:7480")}
{"" if is_local else _TLS}"""


_TLS = """
# Certificates on both sides, because other machines reach this address. `hushgrad certs init` makes these files.
[tls]
ca = "certificates/ca.crt"
certificate = "certificates/server.crt"
key = "certificates/server.key"
denied = "certificates/denied.txt"
authority = "certificates"        # the server signs what `hushgrad enroll new` announced
"""


def client(
    plan: Plan,
    *,
    participant: str,
    server: str,
    state: str,
    data: DataSource,
    release_interval_seconds: float,
    round_seconds: float = 0.0,
    connect_timeout_seconds: float = 60.0,
) -> str:
    """Returns client.toml.

    Args:
        plan: the federation.
        participant: its name; empty: one file serves all, and each gives its name by flag or environment.
        server: host:port.
        state: folder of ledger and outbox.
        data: where the records are.
        release_interval_seconds: the public tick on which updates leave.
        round_seconds: begin a round at most once in so many seconds; 0: as fast as possible.
        connect_timeout_seconds: how long the first contact may take.
    """
    request = plan.request
    if participant:
        who = f"participant = {_text(participant)}"
    else:
        who = (
            "# One file serves all participants: each says who it is by --participant, or HUSHGRAD_PARTICIPANT.\n"
            f"# participant = {_text(plan.participants[0])}"
        )
    pace = _line("round_seconds", _number(round_seconds), "begins a round at most once in so many seconds") + "\n"
    return f"""\
{who}
{_line("server", _text(server), "or --server, or HUSHGRAD_SERVER")}
# To a server on another machine with certificates: `hushgrad-client enroll` gets them, and adds the table [tls] here.
{_line("state", _text(state), "ledger and outbox; or --state, or HUSHGRAD_STATE")}
# How long the first contact may take; later outages are waited for without limit.
connect_timeout_seconds = {_number(connect_timeout_seconds)}
# The server is told the claim that this file gives, to be shown as declared. false: it is told nothing.
# declare_claim = true
{pace if round_seconds else ""}# Pin the federation beforehand, with the digest that `hushgrad-server init` printed.
# terms_digest = ""

# Where the records are; or --data, or HUSHGRAD_DATA.
[data]
{_data(data)}

[model]
{_model(plan)}

# What this participant promises its records. Nothing here has a default.
[privacy]
{_line("records", str(request.records), "N, declared and public: at least as many as there are")}
{_line("clip_norm", _number(request.clip_norm), "must be the terms'")}
{_line("noise_multiplier", _number(plan.noise_multiplier), "within the terms'; more noise is more privacy")}
sampler = {_text(request.sampler)}
{_line("epsilon", _number(request.epsilon), "the most that one run may cost, with delta")}
delta = {_number(request.delta)}
{_line("lifetime_epsilon", _number(request.epsilon), "the most that all runs on this ledger may cost, added up")}
lifetime_delta = {_number(request.delta)}
# Updates leave on the ticks of this public clock, so that their timing says nothing about the records. A round must
# take less than three quarters of it. 0: at once, and then the claim says "timing not covered".
release_interval_seconds = {_number(release_interval_seconds)}
"""


def evaluator(plan: Plan, *, server: str, output: str, data: DataSource) -> str:
    """Returns evaluator.toml."""
    return f"""\
# Scores each new version on a PUBLIC test set. It only watches; what it reads is no participant's data.
server = {_text(server)}
name = "evaluator"
{_line("output", _text(output), "version, accuracy, log_loss, accuracy_averaged, seconds")}
{_line("report", "true", "tell the server each accuracy, for whoever looks; false: only the file")}

[data]
{_data(data)}

[model]
{_model(plan)}
"""


def _data(data: DataSource) -> str:
    if data.sklearn:
        lines = [_line("sklearn", _text(data.sklearn), "one of scikit-learn's built-in sets")]
    elif data.file:
        lines = [f"file = {_text(data.file)}"]
    else:
        lines = [_line("# file", '"records.csv"', ".csv with a header, or .npz with arrays X and y")]
    if not data.sklearn:
        lines.append(_line("label", _text(data.label), "the label column (.csv) or array (.npz)"))
    if data.class_names:
        lines.append("# All participants declare the same names, in the same order, whatever their own records have.")
        lines.append(f"class_names = [{', '.join(map(_text, data.class_names))}]")
    lines.append(
        "# Declared, public bounds [low, high], one pair for all features or one for each: values are clipped to them\n"
        "# and scaled to [0, 1]. Take them from what features mean, or from public data; never from private records."
    )
    if data.bounds is None:
        lines.append("# bounds = [0.0, 1.0]")
    elif len(set(data.bounds)) == 1:
        low, high = data.bounds[0]
        lines.append(f"bounds = [{_number(low)}, {_number(high)}]")
    else:
        pairs = "".join(f"\n    [{_number(low)}, {_number(high)}]," for low, high in data.bounds)
        lines.append(f"bounds = [{pairs}\n]")
    return "\n".join(lines)


def _model(plan: Plan) -> str:
    request = plan.request
    takes = models.OPTIONS[request.kind]
    lines = [f"kind = {_text(request.kind)}"]
    if "l2" in takes:
        lines.append(f"l2 = {_number(request.l2)}")
    if "classes" in takes:
        lines.append(f"classes = {request.classes}")
    for name, value in request.options.items():
        lines.append(f"{name} = {_text(value) if isinstance(value, str) else value}")
    return "\n".join(lines)


def _line(key: str, value: str, comment: str) -> str:
    """Returns `key = value`, and a comment from one column on."""
    return f"{f'{key} = {value}':{COMMENT_COLUMN}}  # {comment}"


def _number(value: float) -> str:
    """Returns a TOML float that reads back as the same number.

    >>> _number(1e-05), _number(3), _number(12.11)
    ('1e-05', '3.0', '12.11')
    """
    assert math.isfinite(value)
    return repr(float(value))


def _text(value: str) -> str:
    """Returns a TOML string.

    >>> _text('a "b"')
    '"a \\\\"b\\\\""'
    """
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    if any(ord(character) < 32 or ord(character) == 127 for character in escaped):
        raise ValueError(f"text in a configuration file must not hold control characters, found {value!r}")
    return f'"{escaped}"'
