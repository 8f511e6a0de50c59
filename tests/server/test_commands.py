"""hushgrad-server on the command line: every mistake is one clear line with the right exit code and changes nothing."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from tests.support.federations import make_terms, senders_of
from tests.support.servers import Client, ServerProcess, configure, make_state

TERMS_TOML = """
federation = "demo"
model = "logistic"
final_version = 3
window = 4
straggler_timeout_seconds = 5.0
largest_number_of_participants = 2
arrays = [{ name = "w", shape = [4] }, { name = "b", shape = [] }]
step_size = { kind = "constant", eta0 = 0.01 }
sample_size = { kind = "constant", size = 10 }
delay = { kind = "max-delay", max_delay = 1 }
limits = { max_unary_bytes = 65536 }

[privacy]
clip_norm = 0.5
noise_multiplier_min = 2.0
noise_multiplier_max = 3.0
samplers = ["poisson"]
max_examples_per_round = 100
"""


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hushgrad.server", *arguments], cwd=root, capture_output=True, text=True, timeout=20
    )


def refused(result: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    assert result.returncode == code, result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("hushgrad-server: ")
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "server.toml").write_text('listen = "127.0.0.1:0"\n')
    (tmp_path / "terms.toml").write_text(TERMS_TOML)
    return tmp_path


def tree(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not path.name.endswith(("-shm", "-wal"))
    }


def test_init_makes_a_state_once_and_says_so_when_it_is_there(root: Path) -> None:
    first = run(root, "init", "--terms", "terms.toml", "--json")
    assert first.returncode == 0, first.stderr
    made = json.loads(first.stdout)
    assert made["was_new"] is True
    assert made["state"] == str(root / "server")
    before = tree(root)
    again = run(root, "init", "--terms", "terms.toml", "--json")
    assert json.loads(again.stdout) == {**made, "was_new": False}
    assert tree(root) == before


def test_two_federations_of_the_same_terms_file_have_different_digests(root: Path) -> None:
    digests = {
        json.loads(run(root, "init", "--terms", "terms.toml", "--json", "--state", name).stdout)["terms_digest"]
        for name in ("a", "b")
    }
    assert len(digests) == 2


def test_changed_terms_on_an_existing_state_are_refused_key_by_key(root: Path) -> None:
    assert run(root, "init", "--terms", "terms.toml").returncode == 0
    before = tree(root / "server")
    text = TERMS_TOML.replace("window = 4", "window = 6").replace("multiplier_max = 3.0", "multiplier_max = 3.5")
    (root / "terms.toml").write_text(text)
    for verb in ("init", "run"):
        result = run(root, verb, "--terms", "terms.toml")
        refused(result, 2, "window is 4, asked for 6", "privacy.noise_multiplier_max is 3.0, asked for 3.5")
        assert "federation_id" not in result.stderr
    assert tree(root / "server") == before


def test_another_initial_model_on_an_existing_state_is_refused(root: Path) -> None:
    save(root / "initial.safetensors", {"w": np.zeros(4), "b": np.float32(0.25)})
    assert run(root, "init", "--terms", "terms.toml", "--initial", "initial.safetensors").returncode == 0
    assert run(root, "init", "--terms", "terms.toml", "--initial", "initial.safetensors").returncode == 0
    refused(run(root, "init", "--terms", "terms.toml"), 2, "initial_model_sha256")
    # The terms alone are the same: run takes the initial model as it is.
    with ServerProcess(root, "--terms", "terms.toml"):
        pass


def save(path: Path, arrays: dict) -> None:
    safetensors.numpy.save_file({name: np.asarray(array, np.float32) for name, array in arrays.items()}, path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TERMS_TOML.replace("window = 4", "window = 1"), ["window must be >= max_delay + 1 = 2, found 1"]),
        (TERMS_TOML.replace("per_round = 100", "per_round = 1000000"), ["grid of 2**-16", "max_examples_per_round"]),
        (TERMS_TOML + "\ncolour = 3\n", ["unknown field `colour`"]),
        (TERMS_TOML.replace("clip_norm = 0.5\n", ""), ["missing required field `clip_norm`"]),
        ("window =", ["terms.toml"]),
    ],
)
def test_terms_that_cannot_be_are_refused(root: Path, text: str, words: list[str]) -> None:
    (root / "terms.toml").write_text(text)
    before = tree(root)
    refused(run(root, "init", "--terms", "terms.toml"), 2, *words)
    assert tree(root) == before
    assert not (root / "server").exists()


@pytest.mark.parametrize(
    ("arrays", "word"),
    [
        ({"w": np.zeros(5), "b": np.float32(0)}, "shape [4], found [5]"),
        ({"w": np.zeros(4)}, "expected arrays ['b', 'w'], found ['w']"),
        ({"w": np.array([0, 0, np.nan, 0]), "b": np.float32(0)}, "finite"),
    ],
)
def test_an_initial_model_of_another_shape_is_refused(root: Path, arrays: dict, word: str) -> None:
    save(root / "initial.safetensors", arrays)
    refused(run(root, "init", "--terms", "terms.toml", "--initial", "initial.safetensors"), 2, word)
    assert not (root / "server").exists()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("port = 3\n", "unknown field `port`"),
        ("keep_last = -1\n", "keep_last must be >= 0"),
        ("keep_every = -1\n", "keep_every must be >= 0"),
        ("keep_last = 5\nkeep_versions = 5\n", "keep_versions was the name of keep_last; write only keep_last"),
        ('listen = "here"\n', "host:port"),
        ("heartbeat_seconds = 0.0\n", "heartbeat_seconds"),
        ("listen = 3\n", "Expected `str`"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(root: Path, text: str, word: str) -> None:
    (root / "server.toml").write_text(text)
    refused(run(root, "run"), 2, word)


def test_a_missing_empty_or_foreign_state_is_refused(root: Path) -> None:
    refused(run(root, "run"), 2, "hushgrad-server init")
    refused(run(root, "run", "--config", "nowhere.toml"), 2, "nowhere.toml cannot be read")
    assert not (root / "server").exists()
    (root / "server").mkdir()
    (root / "server" / "server.sqlite").write_bytes(b"")
    refused(run(root, "run"), 2, "is empty")
    refused(run(root, "export", "out"), 2, "is empty")
    (root / "server" / "server.sqlite").write_bytes(b"something else entirely" * 50)
    refused(run(root, "run"), 2, "cannot be opened")


def test_unknown_options_and_verbs_are_bad_input(root: Path) -> None:
    refused(run(root, "run", "--colour"), 2, "--colour")
    refused(run(root, "serve"), 2, "serve")
    assert run(root, "--help").returncode == 0


def test_status_without_a_server_is_unreachable(root: Path) -> None:
    refused(run(root, "status", "127.0.0.1:1"), 4, "no server answers at 127.0.0.1:1")
    refused(run(root, "status", "nonsense"), 2, "host:port")


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    make_state(tmp_path, make_terms(parameters=70_000))
    (path,) = [path for path in (tmp_path / "server" / "arrays").iterdir() if path.name.startswith("array-0")]
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    refused(run(tmp_path, "run"), 1, "damaged", "restore")


def test_status_and_export_tell_what_happened_while_the_server_runs(tmp_path: Path) -> None:
    terms = make_terms(participants=2, final_version=5, straggler_timeout_seconds=0.3)
    make_state(tmp_path, terms)
    configure(tmp_path, keep_sealed=True)
    with ServerProcess(tmp_path) as server:
        clients = [Client(server.address, sender) for sender in senders_of(terms)]
        for client in clients:
            client.join()
            client.start()
        one, two = clients
        one.submit(one.sender.seal(0))
        two.submit(two.sender.seal(0, clip_norm=0.7))
        one.wait_for_version(1)
        one.submit(one.sender.seal(1))
        status = json.loads(run(tmp_path, "status", server.address, "--json").stdout)
        shown = run(tmp_path, "status", server.address).stdout
        exported = run(tmp_path, "export", "out", "--json")
        for client in clients:
            client.close()
    assert (status["phase"], status["newest_version"], status["federation"]) == ("running", 1, "test")
    by_name = {participant["participant"]: participant for participant in status["participants"]}
    assert by_name["client-1"]["updates_accepted"] == 2
    assert by_name["client-2"]["updates_invalid"] == 1
    assert "version 1 of 5" in shown
    assert exported.returncode == 0, exported.stderr
    out = tmp_path / "out"
    plain = json.loads((out / "terms.json").read_text())
    assert plain["step_numerators"] == list(terms.step_numerators)
    assert plain["federation_id"] == bytes(range(16)).hex()
    assert (out / "initial.f32").read_bytes() == bytes(4 * terms.parameters)
    (zero, first, *_) = json.loads((out / "manifest.json").read_text())["versions"]
    sealed = one.sender.sealed[0]
    assert (zero["version"], zero["updates"]) == (0, [])
    assert first["updates"] == [
        {
            "participant": "client-1",
            "round": 0,
            "digest": sealed.digest.hex(),
            "ledger_sequence": 1,
            "ledger_head": sealed.head.hex(),
        }
    ]
    array = [-terms.step_numerator(0) * element for element in np.frombuffer(sealed.payload, "<i4").tolist()]
    model = [np.float32(x * 2.0 ** (terms.grid_exponent - terms.step_exponent)) for x in array]
    assert np.fromfile(out / "versions" / "1.f32", "<f4").tolist() == model
    receipts = {(one["participant"], one["round"]): one for one in json.loads((out / "receipts.json").read_text())}
    assert receipts["client-2", 0]["disposition"] == "INVALID"
    assert "clip_norm" in receipts["client-2", 0]["reason"]
    assert (out / "sealed" / "client-1" / "0.update").read_bytes() == sealed.header + sealed.payload
