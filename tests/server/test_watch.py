"""News of versions: one copy for all, no queue for anybody, and herds that are sent away come back one by one."""

import asyncio
import hashlib
import itertools
import threading
from collections.abc import AsyncGenerator

import numpy as np
import pytest
from hushgrad.server import watch
from hushgrad.server.aggregation import Published
from hushgrad.server.watch import Model, Publisher
from hushgrad.v1 import models_pb2

FLOAT16 = models_pb2.MODEL_ENCODING_FLOAT16
WATCHERS = 1000


def publisher(final_version: int = 9) -> Publisher:
    return Publisher(
        server_epoch=1,
        final_version=final_version,
        max_inline_model_bytes=2**16,
        max_chunk_bytes=2**16,
        heartbeat_seconds=60.0,
    )


def published(version: int, parameters: int = 3) -> Published:
    model = np.full(parameters, version + 1 / 3, "<f4").tobytes()
    return Published(version, model, hashlib.sha256(model).digest(), np.zeros(parameters, np.int64), None, 0, None)


def watches(of: Publisher, encoding: int = 0, count: int = WATCHERS) -> list[AsyncGenerator[bytes, None]]:
    return [of.watch(None, lambda: None, encoding) for _ in range(count)]


def read(message: bytes) -> models_pb2.WatchModelsResponse:
    return models_pb2.WatchModelsResponse.FromString(message)


async def closed(watching: list[AsyncGenerator[bytes, None]]) -> None:
    for one in watching:
        await one.aclose()


@pytest.mark.parametrize("encoding", [0, FLOAT16])
def test_a_thousand_watchers_are_sent_the_same_bytes_object(encoding: int) -> None:
    async def scenario() -> None:
        one = publisher()
        one.publish(published(0), b"")
        watching = watches(one, encoding)
        messages = await asyncio.gather(*(anext(each) for each in watching))
        assert all(message is messages[0] for message in messages)
        assert read(messages[0]).published.encoding == encoding
        assert one.watchers == WATCHERS
        await closed(watching)

    asyncio.run(scenario())


def test_who_was_slow_is_sent_the_newest_version_and_nothing_between() -> None:
    async def scenario() -> None:
        one = publisher()
        one.publish(published(0), b"")
        watching = watches(one, count=2)
        assert [read(await anext(each)).published.version for each in watching] == [0, 0]
        for version in range(1, 8):
            one.publish(published(version), b"")
            assert read(await anext(watching[0])).published.version == version
        assert read(await anext(watching[1])).published.version == 7
        await closed(watching)

    asyncio.run(scenario())


def test_a_version_that_is_overtaken_while_it_is_rounded_is_not_sent_as_the_newer_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    went_on, halved = threading.Event(), watch.halved

    def slow(model: Model) -> Model:
        if model.version == 0:
            assert went_on.wait(10)
        return halved(model)

    async def scenario() -> None:
        one = publisher()
        one.publish(published(0), b"")
        (watching,) = watches(one, FLOAT16, count=1)
        first = asyncio.ensure_future(anext(watching))
        await asyncio.sleep(0.01)
        one.publish(published(1), b"")
        went_on.set()
        event = read(await first).published
        assert event.version == 1
        assert event.float32_sha256 == published(1).sha256
        assert event.model == np.frombuffer(published(1).model, "<f4").astype("<f2").tobytes()
        await closed([watching])

    monkeypatch.setattr(watch, "halved", slow)
    asyncio.run(scenario())


def test_a_herd_that_is_sent_away_is_told_to_come_back_one_after_the_other() -> None:
    async def scenario() -> list[int]:
        one = publisher()
        one.publish(published(0), b"")
        watching = watches(one)
        for each in watching:
            await anext(each)
        one.go_away()
        waits = [read(await anext(each)).going_away.retry_after_milliseconds for each in watching]
        await closed(watching)
        return waits

    waits = asyncio.run(scenario())
    assert min(waits) >= 0
    # 2 ms for each of a thousand. Uniform on 2000 values, a tenth of that time holds 100 of them on the average; 160 in
    # any of ten tenths come about by chance once in 3 * 10^7 runs (binomial tail, summed over the tenths).
    assert max(waits) < 2000
    assert max(sum(low <= wait < low + 200 for wait in waits) for low in range(0, 2000, 200)) < 160


def test_float16_says_infinity_where_the_version_is_too_large() -> None:
    # IEEE 754: 65504 is the largest; 65519 is nearer to it than to 65536, 65520 is a tie that goes to even: infinity.
    values = np.array([65504.0, 65519.0, 65520.0, -1e6, 2.0**-25, 1.0 + 2.0**-11], "<f4")
    half = watch.halved(Model(3, values.tobytes(), b"whole"))
    assert np.frombuffer(half.data[:], "<f2").tolist() == [65504.0, 65504.0, np.inf, -np.inf, 0.0, 1.0]
    assert (half.version, half.encoding, half.float32_sha256) == (3, FLOAT16, b"whole")
    with np.errstate(over="ignore"):
        whole = values.astype("<f2").tobytes()
    for start, stop in itertools.combinations(range(13), 2):
        assert half.data[start:stop] == whole[start:stop]
