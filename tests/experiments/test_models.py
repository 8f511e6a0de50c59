"""Kept versions, listed and fetched by people and by programs, in float32 and in float16."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hushgrad.cli import entry
from hushgrad.v1 import models_pb2

from tests.support.federations import make_terms, senders_of
from tests.support.pki import Pki
from tests.support.servers import Client, ServerProcess, configure, make_state

PARAMETERS = 40_000  # 160 kB in float32, 80 kB in float16: neither fits into an event of at most 64 KiB
TERMS = make_terms(parameters=PARAMETERS, participants=1, final_version=12)
FLOAT16 = models_pb2.MODEL_ENCODING_FLOAT16


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Client]]:
    """A server at version 11 of 12 that keeps the last two, and every fourth for ever."""
    root = tmp_path_factory.mktemp("models")
    make_state(root, TERMS)
    configure(root, keep_last=2, keep_every=4)
    (sender,) = senders_of(TERMS)
    with ServerProcess(root) as process:
        client = Client(process.address, sender)
        client.join()
        client.start()
        for round_ in range(11):
            client.submit(sender.seal(round_))
            client.wait_for_version(round_ + 1)
        yield process.address, client
        client.close()


def fetched(client: Client, version: int, **more: Any) -> tuple[models_pb2.GetModelResponse, bytes]:
    request = models_pb2.GetModelRequest(caller=client.caller, version=version, **more)
    messages = list(client.models.GetModel(request, timeout=10))
    return messages[0], b"".join(message.data for message in messages)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = entry.run(["models", *arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_what_is_kept_is_listed_and_every_one_of_it_can_be_fetched(
    server: tuple[str, Client], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    address, client = server
    code, out, _ = run(capsys, "list", address, "--json")
    listed = json.loads(out)
    assert code == 0
    assert listed["bytes_each"] == 4 * PARAMETERS
    assert [one["version"] for one in listed["models"]] == [0, 4, 8, 10, 11]
    assert [one["averaged_available"] for one in listed["models"]] == [False] * 4 + [True]
    times = [one["published_at"] for one in listed["models"]]
    assert times[0] is None
    assert times[1:] == sorted(times[1:])
    for one in listed["models"]:
        first, data = fetched(client, one["version"])
        assert hashlib.sha256(data).hexdigest() == one["sha256"] == first.sha256.hex()
        assert (first.encoding, first.float32_sha256) == (0, b"")
        file = tmp_path / f"{one['version']}.safetensors"
        assert run(capsys, "get", address, str(one["version"]), "-o", str(file))[0] == 0
        assert safetensors.numpy.load_file(file)["w"].tobytes() == data
    code, out, _ = run(capsys, "list", address)
    assert code == 0
    assert out.splitlines()[0] == "test: 5 kept, 160.0 kB each"
    assert out.splitlines()[-1].split()[-2:] == ["also", "averaged"]


def test_float16_is_the_version_rounded_and_says_so(
    server: tuple[str, Client], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    address, client = server
    for version in (4, 11):
        _, whole = fetched(client, version)
        first, data = fetched(client, version, encoding=FLOAT16)
        # numpy's own conversion: to nearest, ties to even, as IEEE 754 has it.
        with np.errstate(over="ignore"):
            assert data == np.frombuffer(whole, "<f4").astype("<f2").tobytes()
        assert (first.encoding, first.total_bytes) == (FLOAT16, 2 * PARAMETERS)
        assert first.sha256 == hashlib.sha256(data).digest()
        assert first.float32_sha256 == hashlib.sha256(whole).digest()
        # From an odd offset, as a link that broke off leaves it.
        assert fetched(client, version, encoding=FLOAT16, offset=70_001)[1] == data[70_001:]
    file = tmp_path / "half.safetensors"
    code, out, _ = run(capsys, "get", address, "11", "--encoding", "float16", "-o", str(file), "--json")
    told = json.loads(out)
    assert (code, told["encoding"], told["float32_sha256"]) == (0, "float16", first.float32_sha256.hex())
    with safetensors.safe_open(str(file), "np") as opened:
        assert opened.get_tensor("w").dtype == np.float16
        assert opened.metadata()["terms_digest"] == told["terms_digest"] == client.sender.terms_digest.hex()


def test_watchers_of_both_encodings_hear_of_the_same_version(server: tuple[str, Client]) -> None:
    _, client = server
    seen = {}
    for encoding in (0, FLOAT16, 77):
        request = models_pb2.WatchModelsRequest(caller=client.caller, encoding=encoding)
        watch = client.models.WatchModels(request, timeout=10)
        seen[encoding] = next(watch).published
        watch.cancel()
    assert seen[0] == seen[77]  # what is not known is float32, as the answer says
    assert seen[FLOAT16].version == seen[0].version == 11
    assert seen[FLOAT16].float32_sha256 == seen[0].sha256
    assert (seen[FLOAT16].total_bytes, seen[0].total_bytes) == (2 * PARAMETERS, 4 * PARAMETERS)


def test_the_averaged_model_is_fetched_with_the_newest_version_only(
    server: tuple[str, Client], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, client = server
    monkeypatch.chdir(tmp_path)
    assert run(capsys, "get", address, "--averaged")[0] == 0
    _, data = fetched(client, 11, kind=models_pb2.MODEL_KIND_AVERAGED)
    assert safetensors.numpy.load_file("version-11-averaged.safetensors")["w"].tobytes() == data
    code, _, err = run(capsys, "get", address, "8", "--averaged")
    assert code == 2
    assert "averaged model of version 8 is not kept" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["version-11-averaged.safetensors"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["get", "{address}", "9", "-o", "9.safetensors"], "version 9 is not kept; the newest is 11"),
        (["get", "{address}", "500", "-o", "500.safetensors"], "version 500 is not kept"),
        (["get", "{address}", "4", "-o", "there"], "there is there already; give another name"),
        (["get", "{address}", "4", "-o", "no/such/folder"], "no/such/folder cannot be written"),
        (["list", "192.0.2.1:7443"], "192.0.2.1:7443 is another machine"),
        (["list", "{address}", "--tls-ca", "ca.pem"], "all three files are needed"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line_and_leaves_nothing_behind(
    server: tuple[str, Client],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    word: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there").write_text("something of mine")
    code, out, err = run(capsys, *(one.format(address=server[0]) for one in arguments))
    assert (code, out) == (2, "")
    assert word in err
    assert len(err.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    assert Path("there").read_text() == "something of mine"


def test_nobody_at_the_address_is_exit_code_4(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "list", "127.0.0.1:1")
    assert code == 4
    assert "127.0.0.1:1" in err


def test_with_certificates_whoever_may_receive_models_may_list_and_fetch_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "server"
    root.mkdir()
    make_state(root, make_terms(names=("client-1",)))
    pki = Pki(root)
    with open(root / "server.toml", "a") as file:
        file.write(pki.table())
    monkeypatch.chdir(tmp_path)
    with ServerProcess(root) as process:
        for role, code in (("watcher", 0), ("evaluator", 0), ("participant", 0), ("operator", 0), ("observer", 2)):
            member = pki.member("client-1", role)
            certificate, key = member.save(tmp_path, role)
            options = [
                "--tls-ca",
                str(pki.folder / "ca.crt"),
                "--tls-certificate",
                str(certificate),
                "--tls-key",
                str(key),
            ]
            found, _, err = run(capsys, "get", process.address, "-o", f"{role}.safetensors", *options)
            assert (found, "refuses" in err) == (code, code == 2), err
            assert Path(f"{role}.safetensors").exists() == (code == 0)
        assert run(capsys, "list", process.address)[0] == 4  # plain text is no answer to it
