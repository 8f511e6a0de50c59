"""An operator at this machine, who ends a run."""

import os

import grpc
from hushgrad.v1 import admin_pb2, admin_pb2_grpc, common_pb2


def end(address: str, final_version: int | None = None) -> int:
    """Ends the run of a server, at once or with a version; returns the last version there will be."""
    request = admin_pb2.EndRequest(order={"request_id": os.urandom(16)}, final_version=final_version)
    with grpc.insecure_channel(address) as channel:
        answer = admin_pb2_grpc.AdministrationServiceStub(channel).End(request, timeout=10)
    assert answer.verdict.answer == common_pb2.ANSWER_ACCEPTED, answer.verdict.detail
    return int(answer.standing.final_version)
