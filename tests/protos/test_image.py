"""The contract as it was released: what clients of strangers rely on stays."""

import hashlib
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from hushgrad.wire import terms

PROTOS = Path(__file__).resolve().parents[2] / "protos"
BUF = Path(sys.executable).with_name("buf")


def breaking(folder: Path) -> subprocess.CompletedProcess[str]:
    if not BUF.exists():
        pytest.skip("buf is not installed beside this Python")
    command = [str(BUF), "breaking", str(folder), "--against", str(PROTOS / "buf-image.binpb")]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def copied_contract(folder: Path) -> Path:
    shutil.copy(PROTOS / "buf.yaml", folder)
    (folder / "hushgrad" / "v1").mkdir(parents=True)
    for path in (PROTOS / "hushgrad" / "v1").glob("*.proto"):
        shutil.copy(path, folder / "hushgrad" / "v1")
    return folder


def test_the_image_is_the_one_of_the_recorded_version():
    recorded = tomllib.loads((PROTOS / "buf-image.toml").read_text())
    image = (PROTOS / "buf-image.binpb").read_bytes()
    assert hashlib.sha256(image).hexdigest() == recorded["sha256"], "a new image needs a new version: protos/README.md"
    assert int(recorded["version"].partition(".")[0]) == terms.PROTOCOL


def test_the_image_holds_every_file_of_the_contract():
    # An image of buf is a FileDescriptorSet with extensions.
    image = descriptor_pb2.FileDescriptorSet.FromString((PROTOS / "buf-image.binpb").read_bytes())
    files = {f"hushgrad/v1/{path.name}" for path in (PROTOS / "hushgrad" / "v1").glob("*.proto")}
    assert files <= {file.name for file in image.file}


def test_the_contract_breaks_nobody():
    done = breaking(PROTOS)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("terms.proto", "sint32 grid_exponent = 8;", "int32 grid_exponent = 8;"),  # other bytes, same source
        ("common.proto", "uint64 session = 3;", "uint64 session = 4;"),
        ("models.proto", "bytes sha256 = 3;", "bytes digest = 3;"),  # same bytes, other source
        ("common.proto", "ANSWER_BUSY = 11;", "ANSWER_BUSY = 12;"),
    ],
)
def test_a_change_that_breaks_somebody_is_found(tmp_path, file, old, new):
    changed = copied_contract(tmp_path) / "hushgrad" / "v1" / file
    text = changed.read_text()
    assert old in text
    changed.write_text(text.replace(old, new))
    assert breaking(tmp_path).returncode != 0


def test_an_added_field_breaks_nobody(tmp_path):
    changed = copied_contract(tmp_path) / "hushgrad" / "v1" / "common.proto"
    old = "  uint64 session = 3;\n"
    changed.write_text(changed.read_text().replace(old, old + "\n  // Added.\n  uint64 added = 4;\n"))
    done = breaking(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
