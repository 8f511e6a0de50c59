"""Rounds through a real server: five sealed updates in, durable receipts, a checkpoint, one published version out."""

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import google_crc32c
import grpc
import psutil
from hushgrad.v1 import (
    common_pb2,
    membership_pb2,
    membership_pb2_grpc,
    models_pb2,
    models_pb2_grpc,
    terms_pb2,
    terms_pb2_grpc,
    updates_pb2,
    updates_pb2_grpc,
)

from benchmarks import bare_server, federation, processes
from benchmarks.federation import PARTICIPANTS, Sealed
from benchmarks.harness import Pairs, Row

BLOCK_ROUNDS = 20
BLOCKS = 15
ROUNDS = BLOCK_ROUNDS * (BLOCKS + 1)

BAR_ROUND = 12.0
"""A round waits for two commits to disk (receipts, checkpoint) and the echo for none. Where fdatasync takes 0.3 ms the
ratio is near 3; the bar allows for a disk of 4 ms."""

BAR_CPU = 5.0
"""CPU alone, which no disk blurs: parsing, checks, hashes, folding, SQL, one checkpoint, beside 5 echoes."""


def figures() -> Iterator[Row]:
    """Plays one federation of five participants and 69 parameters, in turn with an echo of the same bytes."""
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as name:
        folder = Path(name)
        config = federation.prepare(folder, rounds=ROUNDS)
        ours, bare = processes.free_address(), processes.free_address()
        run: list[str | Path] = [processes.SCRIPTS / "hushgrad-server", "run", "--config", config, "--listen", ours]
        echo: list[str | Path] = [processes.SCRIPTS / "python", "-m", "benchmarks.bare_server", bare]
        with (
            processes.running(run, folder / "server.log") as server,
            processes.running(echo, folder / "echo.log") as yardstick,
        ):
            processes.wait_until_serving(ours, server, folder / "server.log")
            processes.wait_until_serving(bare, yardstick, folder / "echo.log")
            seconds, cpu = asyncio.run(_play(ours, server.pid, bare, yardstick.pid))
    yield seconds.row(
        name="server: rounds of 5 clients, 69 parameters, durable",
        value=1 / seconds.seconds,
        unit="rounds/s",
        against="5 grpc.aio echoes of the same bytes, nothing durable",
        bar=BAR_ROUND,
    )
    # The kernel counts CPU time in ticks of 10 ms, too coarse for one block: the totals are compared.
    total = Pairs((statistics.fmean(cpu.ours),), (statistics.fmean(cpu.yardstick),))
    yield total.row(
        name="server: CPU of one such round",
        value=total.seconds * 1e3,
        unit="ms",
        against="CPU of the 5 echoes",
        bar=BAR_CPU,
    )


async def _play(ours: str, ours_pid: int, bare: str, bare_pid: int) -> tuple[Pairs, Pairs]:
    """Returns wall and CPU seconds per round of both sides."""
    wall: list[tuple[float, float]] = []
    cpu: list[tuple[float, float]] = []
    async with _federation(ours) as play_round, _echo(bare) as echo_round:
        for block in range(BLOCKS + 1):
            pair_wall, pair_cpu = [], []
            for one_round, pid in ((play_round, ours_pid), (echo_round, bare_pid)):
                process = psutil.Process(pid)
                cpu_before, before = sum(process.cpu_times()[:2]), time.perf_counter()
                for round_ in range(block * BLOCK_ROUNDS, (block + 1) * BLOCK_ROUNDS):
                    await one_round(round_)
                pair_wall.append((time.perf_counter() - before) / BLOCK_ROUNDS)
                pair_cpu.append((sum(process.cpu_times()[:2]) - cpu_before) / BLOCK_ROUNDS)
            if block > 0:  # the first one warms up
                wall.append((pair_wall[0], pair_wall[1]))
                cpu.append((pair_cpu[0], pair_cpu[1]))
    return _transpose(wall), _transpose(cpu)


def _transpose(found: list[tuple[float, float]]) -> Pairs:
    return Pairs(tuple(a for a, _ in found), tuple(b for _, b in found))


@asynccontextmanager
async def _echo(address: str) -> AsyncIterator:
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary(bare_server.ECHO)
        body = bytes(192 + 4 * federation.PARAMETERS + 60)

        async def one_round(_round: int) -> None:
            await asyncio.gather(*(call(body) for _ in PARTICIPANTS))

        yield one_round


@asynccontextmanager
async def _federation(address: str) -> AsyncIterator:
    async with grpc.aio.insecure_channel(address) as channel:
        terms = await terms_pb2_grpc.TermsServiceStub(channel).GetTerms(terms_pb2.GetTermsRequest())
        callers = [await _enter(channel, terms.terms_digest, name) for name in PARTICIPANTS]
        sealed = federation.seal(terms.terms_digest, rounds=ROUNDS, seed=1)
        submit = updates_pb2_grpc.UpdateServiceStub(channel).SubmitUpdate
        watch = models_pb2_grpc.ModelServiceStub(channel).WatchModels(models_pb2.WatchModelsRequest(caller=callers[0]))

        async def published(version: int) -> None:
            async for news in watch:
                if news.WhichOneof("event") == "published" and news.published.version >= version:
                    return
            raise RuntimeError(f"the watch ended before version {version}")

        async def hand_over(caller: common_pb2.Caller, update: Sealed) -> None:
            answer = await submit(
                updates_pb2.SubmitUpdateRequest(
                    caller=caller,
                    header=update.header,
                    payload=update.payload,
                    crc32c=google_crc32c.value(update.header + update.payload),
                )
            )
            if answer.verdict.answer != common_pb2.ANSWER_ACCEPTED:
                raise RuntimeError(f"an update was not accepted: {answer.verdict}")

        async def one_round(round_: int) -> None:
            await asyncio.gather(*map(hand_over, callers, sealed[round_]))
            await published(round_ + 1)

        yield one_round
        watch.cancel()


async def _enter(channel: grpc.aio.Channel, terms_digest: bytes, name: str) -> common_pb2.Caller:
    membership = membership_pb2_grpc.MembershipServiceStub(channel)
    caller = common_pb2.Caller(terms_digest=terms_digest, participant=name)
    joined = await membership.Join(membership_pb2.JoinRequest(caller=caller, join_id=os.urandom(16)))
    caller.session = joined.session
    started = await membership.Start(membership_pb2.StartRequest(caller=caller, next_round=0))
    if started.verdict.answer != common_pb2.ANSWER_ACCEPTED:
        raise RuntimeError(f"{name} could not start: {started.verdict}")
    return caller
