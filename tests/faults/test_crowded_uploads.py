"""Fifty participants hand over 40 MB each to a server that has 400 MB: it says BUSY, lives, and loses nothing."""

import contextlib
import dataclasses
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from hushgrad.v1 import common_pb2

from tests.support.federations import make_terms, senders_of
from tests.support.servers import Client, ServerProcess, configure, make_state

pytestmark = pytest.mark.faults

LIMIT_BYTES = 400_000_000
PARAMETERS, PARTICIPANTS = 10_000_000, 50
ACCEPTED, BUSY = common_pb2.ANSWER_ACCEPTED, common_pb2.ANSWER_BUSY


@contextlib.contextmanager
def limited() -> Iterator[Path]:
    """Makes a control group with so much memory; yields the file that takes its processes."""
    root, name = Path("/sys/fs/cgroup"), f"hushgrad-test-{os.getpid()}"
    is_first = (root / "memory").is_dir()
    group = (root / "memory" if is_first else root) / name
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if is_first else "memory.max")).write_text(str(LIMIT_BYTES))
    except OSError as error:
        pytest.skip(f"no control group with a limit of memory can be made here: {error}")
    try:
        yield group / "cgroup.procs"
    finally:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.1)


@pytest.mark.timeout(300)
def test_a_server_with_400_mb_answers_busy_to_50_uploads_of_40_mb_and_takes_them_all(tmp_path: Path) -> None:
    terms = make_terms(parameters=PARAMETERS, participants=PARTICIPANTS, final_version=2)
    terms = dataclasses.replace(terms, limits=dataclasses.replace(terms.limits, max_chunk_bytes=2**20))
    make_state(tmp_path, terms)
    configure(tmp_path, limits={"upload_bytes_per_second": 1e9})
    payload = np.random.default_rng(1).integers(-(2**31) + 1, 2**31, PARAMETERS).astype("<i4").tobytes()
    with limited() as processes:
        server = ServerProcess(tmp_path, preexec=lambda: processes.write_text(str(os.getpid())))
        clients = [Client(server.address, sender) for sender in senders_of(terms)]
        sealed = []
        for client in clients:
            assert client.join().verdict.answer == ACCEPTED
            assert client.start().verdict.answer == ACCEPTED
            sealed.append(client.sender.seal(0, payload))
        answers: Counter[int] = Counter()

        def hand_over(at: int) -> None:
            while True:
                pieces = clients[at].pieces(sealed[at], size=2**20)
                verdict = clients[at].updates.UploadUpdate(pieces, timeout=250).result.verdict
                answers[verdict.answer] += 1
                if verdict.answer != BUSY:
                    return
                assert verdict.retry_after_milliseconds > 0
                time.sleep(verdict.retry_after_milliseconds / 1000)

        threads = [threading.Thread(target=hand_over, args=(at,)) for at in range(PARTICIPANTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert server.process.poll() is None
        assert answers[ACCEPTED] == PARTICIPANTS
        assert answers[BUSY] > 0
        clients[0].wait_for_version(1, 60)
        resident = psutil.Process(server.process.pid).memory_info().rss
        assert resident < LIMIT_BYTES
        model = b"".join(chunk.data for chunk in clients[0].model(1))
        numerator = PARTICIPANTS * terms.step_numerator(0)
        exact = -np.frombuffer(payload, "<i4")[:1000].astype(object) * numerator
        scale = 2.0 ** (terms.grid_exponent - terms.step_exponent)
        expected = (exact.astype(np.int64).astype(np.float64) * scale).astype("<f4")
        assert np.frombuffer(model, "<f4")[:1000].tolist() == expected.tolist()
        for client in clients:
            client.close()
        server.stop()
