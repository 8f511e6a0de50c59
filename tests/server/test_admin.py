"""The listener for people at the machine: what it answers, and that nobody else reaches it."""

import json
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from hushgrad.server import admin
from hushgrad.server.errors import InputError
from hushgrad.v1 import status_pb2, status_pb2_grpc, terms_pb2, terms_pb2_grpc

from tests.support.federations import make_terms
from tests.support.servers import ServerProcess, configure, make_state

TERMS = make_terms(participants=2)
BUF = Path(sys.executable).with_name("buf")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("admin")
    make_state(root, TERMS)
    configure(root, admin_listen="127.0.0.1:0")
    with ServerProcess(root) as running:
        yield running


@pytest.fixture(scope="module")
def address(server):
    return server.events("listening_for_admin")[0]["address"]


@pytest.fixture
def channel(address):
    with grpc.insecure_channel(address) as channel:
        yield channel


@pytest.mark.e2e
def test_it_tells_status_and_health(channel):
    status = status_pb2_grpc.StatusServiceStub(channel).GetStatus(status_pb2.GetStatusRequest(), timeout=10)
    assert status.federation == TERMS.federation
    health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
    assert health.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.e2e
def test_reflection_lists_what_is_served_there(channel):
    ask = reflection_pb2.ServerReflectionRequest(list_services="")
    (answer,) = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([ask]), timeout=10)
    names = {service.name for service in answer.list_services_response.service}
    assert {"hushgrad.v1.StatusService", "grpc.health.v1.Health"} < names
    assert "hushgrad.v1.UpdateService" not in names


@pytest.mark.e2e
def test_it_serves_no_member_of_the_federation(channel):
    with pytest.raises(grpc.RpcError) as failed:
        terms_pb2_grpc.TermsServiceStub(channel).GetTerms(terms_pb2.GetTermsRequest(), timeout=10)
    assert failed.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.e2e
def test_the_main_listener_has_no_reflection(server):
    ask = reflection_pb2.ServerReflectionRequest(list_services="")
    with grpc.insecure_channel(server.address) as channel, pytest.raises(grpc.RpcError) as failed:
        list(reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([ask]), timeout=10))
    assert failed.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.e2e
def test_buf_curl_asks_it_without_any_proto_file(address, tmp_path):
    if not BUF.exists():
        pytest.skip("buf is not installed beside this Python")
    url = f"http://{address}/hushgrad.v1.StatusService/GetStatus"
    command = [str(BUF), "curl", "--protocol", "grpc", "--http2-prior-knowledge", url]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["federation"] == TERMS.federation


@pytest.mark.parametrize("listen", ["0.0.0.0:7444", "[::]:7444", "10.0.0.1:7444", "example.org:7444", "7444"])
def test_an_address_that_others_could_reach_is_refused(listen):
    with pytest.raises(InputError):
        admin.check_address(listen)


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "127.8.0.1:7444", "[::1]:7444", "localhost:7444"])
def test_loopback_is_taken(listen):
    admin.check_address(listen)
