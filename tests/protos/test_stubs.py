"""The checked-in stubs are what the .proto files say today."""

import ast
import importlib
import runpy
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

ROOT = Path(__file__).resolve().parents[2] / "protos"
PROTO_NAMES = sorted(path.stem for path in (ROOT / "hushgrad" / "v1").glob("*.proto"))


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stubs")
    runpy.run_path(str(ROOT / "generate.py"))["generate"](folder)
    return folder / "hushgrad" / "v1"


def descriptor_in(stub: Path) -> descriptor_pb2.FileDescriptorProto:
    """Reads the descriptor that a *_pb2.py registers, without importing it."""
    for node in ast.walk(ast.parse(stub.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "AddSerializedFile":
            return descriptor_pb2.FileDescriptorProto.FromString(ast.literal_eval(node.args[0]))
    raise AssertionError(f"{stub} registers no descriptor")


@pytest.mark.parametrize("name", PROTO_NAMES)
def test_imported_descriptor_equals_a_fresh_generation(fresh, name):
    imported = descriptor_pb2.FileDescriptorProto()
    importlib.import_module(f"hushgrad.v1.{name}_pb2").DESCRIPTOR.CopyToProto(imported)
    assert imported == descriptor_in(fresh / f"{name}_pb2.py"), "run `make stubs`"


def test_stub_files_equal_a_fresh_generation(fresh):
    checked_in = {path.name: path.read_text() for path in (ROOT / "hushgrad" / "v1").glob("*_pb2*.py*")}
    generated = {path.name: path.read_text() for path in fresh.iterdir()}
    assert sorted(checked_in) == sorted(generated), "run `make stubs` and remove stubs that nothing generates"
    assert [name for name in checked_in if checked_in[name] != generated[name]] == [], "run `make stubs`"
