"""protos/README.md says what the code does: its worked numbers and bytes, its answers, its calls."""

import re
from pathlib import Path

import google_crc32c
import grpc
import numpy as np
import pytest
from hushgrad.v1 import common_pb2, membership_pb2, models_pb2, terms_pb2, updates_pb2
from hushgrad.wire import grid, header

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "protos" / "README.md").read_text()


def worked(name: str) -> dict[str, list[str]]:
    """Returns the words of a worked example by their key; lines that begin with blanks go on with the key before."""
    (block,) = re.findall(rf"```text {name}\n(.*?)```", TEXT, flags=re.DOTALL)
    found: dict[str, list[str]] = {}
    key = ""
    for line in block.splitlines():
        if line.startswith("#"):
            continue
        words = line.split()
        if not line.startswith(" "):
            key, words = words[0], words[1:]
        found.setdefault(key, []).extend(words)
    return found


def numbers(words: list[str]) -> list[float]:
    return [float(word) for word in words]


def test_worked_header_and_chain_are_what_the_code_makes():
    words = {key: bytes.fromhex("".join(parts)) for key, parts in worked("worked-header").items() if key != "crc32c_1"}
    packed, payload = words["header_1"], words["payload_1"]
    declared = header.unpack(packed)
    assert declared.pack() == packed
    assert header.first_head(words["ledger_id"]) == words["head_0"] == declared.ledger_previous_head
    assert header.digest(packed, payload) == words["digest_1"]
    assert header.next_head(words["head_0"], words["digest_1"]) == words["head_1"]
    assert np.frombuffer(payload, "<i4").tolist() == [1, -2, 2**31 - 1]
    assert [str(google_crc32c.value(packed + payload))] == worked("worked-header")["crc32c_1"]
    assert f"0x{google_crc32c.value(b'123456789'):X}" in TEXT


def test_the_header_table_has_the_offsets_of_the_layout():
    rows = re.findall(r"^\| (\d+) \| (\d+) \| ", TEXT, flags=re.MULTILINE)
    at = 0
    for offset, size in rows:
        assert int(offset) == at
        at += int(size)
    assert at == header.HEADER_BYTES


def test_worked_arithmetic_is_what_the_code_computes():
    say = worked("worked-arithmetic")
    (clip_norm,), (sigma,) = numbers(say["clip_norm"]), numbers(say["noise_multiplier"])
    parameters = int(say["parameters"][0])
    g = grid.grid_exponent(clip_norm=clip_norm, noise_multiplier_min=sigma, parameters=parameters)
    assert [g] == numbers(say["grid_exponent"])
    assert [sigma * clip_norm * 2.0**-g] == numbers(say["noise_in_grid_steps"])
    assert np.rint(np.array(numbers(say["clipped_sum"])) * 2.0**-g).tolist() == numbers(say["on_the_grid"])
    steps = [0.006 / (1 + 0.001 * (300 * i) ** 0.5) for i in range(100)]
    p = grid.step_exponent(steps, initial_max=1.0, grid_exponent=g, participants=5)
    assert [p] == numbers(say["step_exponent"])
    numerators = grid.step_numerators(steps, p)
    assert numerators[:2] == numbers(say["step_numerators"])
    model = np.array(numbers(say["initial_model"]), np.float32)
    array = grid.initial_array(model, grid_exponent=g, step_exponent=p)
    assert array.tolist() == [int(word) for word in say["initial_array"]]
    array = array - numerators[0] * np.array([int(word) for word in say["update_of_round_0"]])
    assert array.tolist() == [int(word) for word in say["array_after_it"]]
    published = grid.published_model(array, grid_exponent=g, step_exponent=p)
    assert published.astype("<f4").tobytes() == bytes.fromhex(say["published_bytes"][0])


def test_every_answer_and_every_status_has_a_row():
    answers = {value.removeprefix("ANSWER_") for value in common_pb2.Answer.keys()} - {"UNSPECIFIED"}  # noqa: SIM118
    assert [answer for answer in answers if f"| `{answer}` |" not in TEXT] == []
    named = re.findall(r"^\| (`[A-Z_`, ]+) \|", TEXT, flags=re.MULTILINE)
    statuses = {word for row in named for word in re.findall(r"`([A-Z_]+)`", row)} - answers
    assert statuses <= {code.name for code in grpc.StatusCode}
    assert {"UNAVAILABLE", "DATA_LOSS", "NOT_FOUND"} <= statuses


@pytest.mark.parametrize("module", [terms_pb2, membership_pb2, updates_pb2, models_pb2])
def test_every_call_is_told_of(module):
    for service in module.DESCRIPTOR.services_by_name.values():
        assert [method.name for method in service.methods if method.name not in TEXT] == []


def test_files_and_make_targets_that_are_named_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", TEXT)) <= targets
    paths = re.findall(r"`((?:hushgrad/v1|examples|tests)/[a-zA-Z0-9_./-]+)`", TEXT)
    assert paths
    missing = [path for path in paths if not (ROOT / path).exists() and not (ROOT / "protos" / path).exists()]
    assert missing == []


def test_it_can_be_read_in_an_hour():
    assert len(TEXT.splitlines()) <= 500
