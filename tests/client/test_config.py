"""What configuration files may say, and what wins over them."""

from pathlib import Path

import pytest
from hushgrad.client import config
from hushgrad.client.errors import InputError

CLIENT = """
participant = "client-1"
server = "127.0.0.1:7443"
state = "state"
[data]
file = "data.npz"
[model]
kind = "logistic"
[privacy]
records = 100
clip_norm = 0.5
noise_multiplier = 4.0
sampler = "poisson"
epsilon = 0.5
delta = 1e-5
lifetime_epsilon = 0.5
lifetime_delta = 1e-5
"""


def load(folder: Path, text: str = CLIENT, **overrides: str | None) -> config.ClientConfig:
    path = folder / "client.toml"
    path.write_text(text)
    return config.load_client(path, overrides)


def test_paths_are_relative_to_the_file_and_overrides_to_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner, here = tmp_path / "inner", tmp_path / "here"
    inner.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    found = load(inner)
    assert (found.state, found.data.file) == (str(inner / "state"), str(inner / "data.npz"))
    found = load(inner, state="other", data="other.csv")
    assert (found.state, found.data.file) == (str(here / "other"), str(here / "other.csv"))


def test_overrides_win_and_none_is_no_value(tmp_path: Path) -> None:
    found = load(tmp_path, participant="client-2", server="localhost:1", state=None)
    assert (found.participant, found.server) == ("client-2", "localhost:1")
    assert found.state == str(tmp_path / "state")


@pytest.mark.parametrize("key", ["participant", "server", "state"])
def test_what_may_come_from_elsewhere_must_come_from_somewhere(tmp_path: Path, key: str) -> None:
    text = "\n".join(line for line in CLIENT.splitlines() if not line.startswith(f"{key} ="))
    with pytest.raises(InputError, match=f"{key} must be given, here, as --{key} or as HUSHGRAD_{key.upper()}"):
        load(tmp_path, text)


@pytest.mark.parametrize(
    "key",
    [
        "records",
        "clip_norm",
        "noise_multiplier",
        "sampler",
        "epsilon",
        "delta",
        "lifetime_epsilon",
        "lifetime_delta",
    ],
)
def test_nothing_that_changes_privacy_has_a_default(tmp_path: Path, key: str) -> None:
    text = "\n".join(line for line in CLIENT.splitlines() if not line.startswith(f"{key} ="))
    with pytest.raises(InputError, match=f"missing required field `{key}`"):
        load(tmp_path, text)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("[model]", "[model]\nlayers = 3", "unknown field `layers`"),
        ('kind = "logistic"', 'kind = "tree"', "kind must be one of .*found 'tree'"),
        ('sampler = "poisson"', 'sampler = "shuffle"', "Invalid enum value 'shuffle'"),
        ("delta = 1e-5", "delta = 0.0", "privacy.delta must be between 0 and 1, found 0.0"),
        ("clip_norm = 0.5", "clip_norm = nan", "privacy.clip_norm must be finite and > 0, found nan"),
        ("clip_norm = 0.5", "clip_norm = -1.0", "privacy.clip_norm must be finite and > 0, found -1.0"),
        ("records = 100", "records = 0", "privacy.records must be finite and > 0, found 0"),
        ("records = 100", "records = 100\nrelease_interval_seconds = -1.0", "release_interval_seconds must be"),
        ('"127.0.0.1:7443"', '"127.0.0.1"', "server must be host:port"),
        ('"127.0.0.1:7443"', '"127.0.0.1:99999"', "server must be host:port"),
        ('"client-1"', '"Client 1"', "participant must be 1 to 63 characters"),
        ('file = "data.npz"', 'file = "data.npz"\nsklearn = "digits"', "must name either file or sklearn or openml"),
        ('state = "state"', 'state = "state"\nterms_digest = "abc"', "terms_digest must be 64 hexadecimal digits"),
        ("[data]", "[data", "configuration"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    assert CLIENT.count(old) == 1 or old == "delta = 1e-5"
    with pytest.raises(InputError, match=complaint) as caught:
        load(tmp_path, CLIENT.replace(old, new, 1))
    assert caught.value.exit_code == 2


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.toml cannot be read: No such file"):
        config.load_client(tmp_path / "none.toml", {})


def test_an_evaluator_needs_only_server_data_and_model(tmp_path: Path) -> None:
    path = tmp_path / "evaluator.toml"
    path.write_text('server = "127.0.0.1:1"\n[data]\nsklearn = "digits"\n[model]\nkind = "softmax"\nclasses = 10\n')
    found = config.load_evaluator(path, {})
    assert (found.name, found.output) == ("evaluator", str(tmp_path / "curve.csv"))
    with pytest.raises(InputError, match="host:port"):
        config.load_evaluator(path, {"server": "nowhere"})
