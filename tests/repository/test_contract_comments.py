"""Every word of the contract is explained: a stranger must be able to write a client from the .proto files alone."""

from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from grpc_tools import protoc

PROTOS = Path(__file__).resolve().parents[2] / "protos"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    output = tmp_path_factory.mktemp("descriptors") / "contract.binpb"
    names = sorted(str(path.relative_to(PROTOS)) for path in (PROTOS / "hushgrad" / "v1").glob("*.proto"))
    arguments = [f"-I{PROTOS}", "--include_source_info", f"--descriptor_set_out={output}", *names]
    assert protoc.main(["protoc", *arguments]) == 0
    return descriptor_pb2.FileDescriptorSet.FromString(output.read_bytes()).file


def declarations(file: descriptor_pb2.FileDescriptorProto):
    """Yields (path in the descriptor, full name) of everything that needs a comment.

    A path is alternately a field number of descriptor.proto and an index, as SourceCodeInfo has it.
    """

    def enum(path, scope, declared):
        yield path, f"{scope}{declared.name}"
        for index, value in enumerate(declared.value):
            yield (*path, 2, index), f"{scope}{declared.name}.{value.name}"

    def message(path, scope, declared):
        yield path, f"{scope}{declared.name}"
        for index, field in enumerate(declared.field):
            yield (*path, 2, index), f"{scope}{declared.name}.{field.name}"
        for index, nested in enumerate(declared.nested_type):
            yield from message((*path, 3, index), f"{scope}{declared.name}.", nested)
        for index, nested in enumerate(declared.enum_type):
            yield from enum((*path, 4, index), f"{scope}{declared.name}.", nested)

    for index, declared in enumerate(file.message_type):
        yield from message((4, index), "", declared)
    for index, declared in enumerate(file.enum_type):
        yield from enum((5, index), "", declared)
    for index, service in enumerate(file.service):
        yield (6, index), service.name
        for rpc_index, rpc in enumerate(service.method):
            yield (6, index, 2, rpc_index), f"{service.name}.{rpc.name}"


def test_every_message_field_value_service_and_call_has_a_comment(files):
    bare = []
    for file in files:
        comments = {tuple(place.path): place.leading_comments.strip() for place in file.source_code_info.location}
        bare += [f"{file.name}: {name}" for path, name in declarations(file) if not comments.get(path)]
    assert bare == []


def test_comments_are_sentences(files):
    loose = []
    for file in files:
        comments = {tuple(place.path): place.leading_comments.strip() for place in file.source_code_info.location}
        loose += [name for path, name in declarations(file) if comments.get(path, ".")[-1] not in ".:"]
    assert loose == []


def test_every_answer_and_every_message_of_a_watch_says_how_far_the_servers_memory_reaches(files):
    messages = {message.name: message for file in files for message in file.message_type}
    calls = [rpc for file in files for service in file.service for rpc in service.method]

    def carries_state(name):
        types = {field.type_name.rpartition(".")[2] for field in messages[name].field}
        return "ServerState" in types or any(
            carries_state(part) for part in types & {"Verdict", "SubmitUpdateResponse"}
        )

    assert len(calls) >= 12
    assert [rpc.name for rpc in calls if not carries_state(rpc.output_type.rpartition(".")[2])] == []
