"""Random bits: known answers, lanes that never meet, and misuse that would repeat noise."""

import os
import pickle

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hushgrad.client import stream
from hushgrad.client.stream import RandomStream, StreamError

KEY = bytes(range(32))


def _keystream(counter: int, blocks: int) -> bytes:
    """AES-256 of successive counters, block by block: the definition of counter mode, without using it."""
    encryptor = Cipher(algorithms.AES(KEY), modes.ECB()).encryptor()
    return b"".join(encryptor.update((counter + i).to_bytes(16, "big")) for i in range(blocks))


def test_the_cipher_gives_the_answer_of_fips_197():
    """FIPS 197, appendix C.3: AES-256 of 00112233..ff under the key 00 01 .. 1f; read here from a counter."""
    block = bytes.fromhex("00112233445566778899aabbccddeeff")
    encryptor = Cipher(algorithms.AES(KEY), modes.CTR(block)).encryptor()
    assert encryptor.update(bytes(16)).hex() == "8ea2b7ca516745bfeafc49904b496089"


def test_lanes_start_at_counters_0_and_2_to_the_127():
    random = RandomStream(KEY)
    assert random.take("noise", 100) + random.take("noise", 60) == _keystream(0, 10)
    assert random.take("mask", 160) == _keystream(2**127, 10)


def test_a_lane_does_not_depend_on_what_the_other_gave():
    first, second = RandomStream(KEY), RandomStream(KEY)
    second.take("mask", 1000)
    assert first.take("noise", 500) == second.take("noise", 500)


def test_words_are_little_endian_bytes_of_the_lane():
    words, halves, plain = RandomStream(KEY), RandomStream(KEY), RandomStream(KEY).take("noise", 80)
    assert words.uint64("noise", 10).tobytes() == plain
    assert int(halves.uint16("noise", 40)[1]) == plain[2] + 256 * plain[3]


def test_a_stream_without_a_key_is_fresh_below_and_above_the_direct_bytes():
    small = [RandomStream().take("noise", 32) for _ in range(50)]
    large = [RandomStream().take("noise", stream.DIRECT_BYTES + 1)[:32] for _ in range(50)]
    assert len(set(small + large)) == 100


def test_the_first_bytes_come_from_the_operating_system_and_later_ones_from_one_fresh_key(monkeypatch):
    asked = []
    monkeypatch.setattr(stream.os, "urandom", lambda count: asked.append(count) or bytes(range(32))[:count] * 1)
    random = RandomStream()
    random.take("noise", 20)
    assert asked == [20]
    assert random.take("noise", stream.DIRECT_BYTES) == _keystream(0, stream.DIRECT_BYTES // 16)
    random.take("mask", stream.DIRECT_BYTES)
    assert asked == [20, 32]


def test_no_key_is_kept():
    random = RandomStream()
    random.take("noise", 10_000)
    kept = [getattr(random, name) for name in RandomStream.__slots__]
    assert not any(isinstance(value, bytes) for value in kept)


def test_a_stream_says_whether_its_key_was_given():
    assert RandomStream(KEY).injected
    assert not RandomStream().injected


def test_a_lane_ends_long_before_the_other_begins(monkeypatch):
    assert stream.MAX_LANE_BYTES < 2**127 * 16
    monkeypatch.setattr(stream, "MAX_LANE_BYTES", 100)
    random = RandomStream(KEY)
    random.take("noise", 96)
    with pytest.raises(StreamError, match="4 of 100 bytes left"):
        random.take("noise", 5)
    assert random.take("noise", 4) == _keystream(0, 7)[96:100]  # refused means nothing was used up


def test_a_forked_child_cannot_use_the_stream_of_its_parent():
    random = RandomStream()
    random.take("noise", 8)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            random.take("noise", 8)
            outcome = b"drew"
        except StreamError:
            outcome = b"refused"
        os.write(writer, outcome)
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 20) == b"refused"
    random.take("noise", 8)
    os.close(reader)
    os.close(writer)


def test_a_stream_cannot_be_copied():
    with pytest.raises(StreamError, match="copied"):
        pickle.dumps(RandomStream())


def test_a_key_of_the_wrong_length_is_refused():
    with pytest.raises(ValueError, match="32 bytes"):
        RandomStream(b"short")


def test_bits_are_balanced():
    """Each of 64 bit positions over 20,000 words: 5.5 sigma, false alarm 64 * 4e-8 = 3e-6 (and the key is fixed)."""
    words = RandomStream(KEY).uint64("noise", 20_000)
    ones = np.unpackbits(words.view(np.uint8).reshape(-1, 8), axis=1).sum(axis=0, dtype=np.int64)
    assert (abs(ones - 10_000) < 5.5 * np.sqrt(5_000)).all()
