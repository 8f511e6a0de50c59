"""Terms as values: the round trip through bytes, the digest, and what is refused."""

import dataclasses
import hashlib

import pytest
from hushgrad.v1 import terms_pb2
from hushgrad.wire import terms
from hushgrad.wire.arrays import ArraySpec
from hushgrad.wire.errors import ContractError

TERMS = terms.Terms(
    federation_id=bytes(range(16)),
    federation="phishing",
    model="logistic",
    arrays=(ArraySpec("weight", (68,)), ArraySpec("bias", ())),
    initial_model_sha256=hashlib.sha256(bytes(4 * 69)).digest(),
    grid_exponent=-16,
    step_exponent=26,
    step_numerators=(671_089, 335_544),
    sample_sizes=(26, 30),
    delay_kind="max-delay",
    max_delay=1,
    window=8,
    final_version=100,
    publish_every=1,
    participants=("client-1", "client-2", "client-3", "client-4", "client-5"),
    largest_number_of_participants=5,
    straggler_timeout_seconds=30.0,
    start_timeout_seconds=0.0,
    privacy=terms.Privacy(
        clip_norm=0.5,
        noise_multiplier_min=2.0,
        noise_multiplier_max=4.0,
        samplers=("poisson", "fixed"),
        max_examples_per_round=256,
    ),
    limits=terms.Limits(),
)


def changed(path: str, value: object) -> terms.Terms:
    """TERMS with one field changed; `privacy.clip_norm` names a field of a part."""
    part, _, field = path.rpartition(".")
    if part:
        return dataclasses.replace(TERMS, **{part: dataclasses.replace(getattr(TERMS, part), **{field: value})})
    return dataclasses.replace(TERMS, **{field: value})


def test_terms_survive_the_way_through_bytes():
    assert terms.from_bytes(TERMS.to_bytes()) == TERMS


def test_equal_terms_have_equal_bytes_and_one_digest():
    again = dataclasses.replace(TERMS)
    assert again.to_bytes() == TERMS.to_bytes()
    assert terms.digest(TERMS.to_bytes()) == hashlib.sha256(TERMS.to_bytes()).digest()


def test_golden_terms_have_the_digest_that_they_had_when_the_contract_was_made():
    # Whoever changes this number has changed how terms are written: bump PROTOCOL, or undo it.
    assert terms.digest(TERMS.to_bytes()).hex() == "49f04a01284164a6b7f078f8673799e45e6b3ff6cad940709d2644b19356c93d"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("federation_id", bytes(16)),
        ("federation", "another"),
        ("model", "softmax"),
        ("initial_model_sha256", bytes(32)),
        ("grid_exponent", -17),
        ("step_exponent", 25),
        ("step_numerators", (671_089,)),
        ("sample_sizes", (26,)),
        ("delay_kind", "unbounded"),
        ("max_delay", 2),
        ("window", 9),
        ("final_version", 99),
        ("publish_every", 2),
        ("straggler_timeout_seconds", 31.0),
        ("start_timeout_seconds", 1.0),
        ("privacy.clip_norm", 0.500001),
        ("privacy.noise_multiplier_min", 2.5),
        ("privacy.noise_multiplier_max", 4.5),
        ("privacy.samplers", ("poisson",)),
        ("privacy.max_examples_per_round", 255),
        ("privacy.insecure_noise_allowed", True),
        ("privacy.caller_clipping_forbidden", True),
        ("limits.max_unary_bytes", 1000),
        ("limits.max_chunk_bytes", 2**19),
        ("limits.max_inline_model_bytes", 0),
    ],
)
def test_every_field_is_under_the_digest(path, value):
    other = changed(path, value)
    assert terms.from_bytes(other.to_bytes()) == other
    assert terms.digest(other.to_bytes()) != terms.digest(TERMS.to_bytes())


def test_last_entry_of_a_sequence_holds_for_later_rounds():
    assert [TERMS.step_numerator(i) for i in (0, 1, 2, 99)] == [671_089, 335_544, 335_544, 335_544]
    assert [TERMS.sample_size(i) for i in (0, 1, 99)] == [26, 30, 30]
    assert TERMS.step_size(1) == 335_544 / 2**26


def test_final_version_is_published_whatever_the_interval():
    sparse = changed("publish_every", 2)
    sparse = dataclasses.replace(sparse, final_version=7)
    assert [version for version in range(8) if sparse.is_published(version)] == [0, 2, 4, 6, 7]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("federation", "Phishing", "federation"),
        ("federation_id", bytes(15), "federation_id"),
        ("initial_model_sha256", b"", "initial_model_sha256"),
        ("arrays", (), "arrays"),
        ("arrays", (ArraySpec("a", (1,)), ArraySpec("a", (2,))), "unique"),
        ("final_version", 0, "final_version"),
        ("final_version", 10**6 + 1, "final_version"),
        ("delay_kind", "sometimes", "delay"),
        ("max_delay", -1, "max_delay"),
        ("max_delay", 2**32, "max_delay"),
        ("window", 1, "window"),
        ("window", 2**64, "window"),
        ("publish_every", 0, "publish_every"),
        ("publish_every", 3, "publish_every"),
        ("participants", ("client-1",) * 5, "unique"),
        ("participants", ("client-1", "Client-2"), "participant"),
        ("participants", ("client-1", "client-2"), "largest_number_of_participants"),
        ("largest_number_of_participants", 0, "room"),
        ("straggler_timeout_seconds", 0.0, "straggler_timeout_seconds"),
        ("straggler_timeout_seconds", float("nan"), "straggler_timeout_seconds"),
        ("straggler_timeout_seconds", float("inf"), "straggler_timeout_seconds"),
        ("start_timeout_seconds", -1.0, "start_timeout_seconds"),
        ("privacy.clip_norm", 0.0, "clip_norm"),
        ("privacy.clip_norm", float("nan"), "clip_norm"),
        ("privacy.noise_multiplier_min", 0.0, "noise multipliers"),
        ("privacy.noise_multiplier_min", float("nan"), "noise multipliers"),
        ("privacy.noise_multiplier_max", 1.0, "noise multipliers"),
        ("privacy.samplers", (), "samplers"),
        ("privacy.samplers", ("shuffle",), "samplers"),
        ("privacy.max_examples_per_round", 0, "max_examples_per_round"),
        ("privacy.max_examples_per_round", 29, "sample size"),
        ("privacy.max_examples_per_round", 100_000, "holds sums up to"),  # 50,018 against 2^31 * 2^-16 = 32,768
        ("privacy.noise_multiplier_max", 1e4, "holds sums up to"),
        ("limits.max_unary_bytes", 2**20 + 1, "max_unary_bytes"),
        ("limits.max_chunk_bytes", 2**16 - 1, "max_chunk_bytes"),
        ("limits.max_inline_model_bytes", 2**18 + 1, "max_inline_model_bytes"),
        ("grid_exponent", -15, "at most -16"),
        ("grid_exponent", -40, "holds sums up to"),
        ("step_numerators", (), "step_numerators"),
        ("step_numerators", (671_089, 255), "256"),
        ("step_numerators", (671_089,) * 101, "at most final_version"),
        ("step_numerators", (2**30,), "2\\^63"),
        ("step_exponent", -1, "step_exponent"),
        ("sample_sizes", (), "sample_sizes"),
        ("sample_sizes", (26, 0), "sample size"),
        ("sample_sizes", (26,) * 101, "at most final_version"),
    ],
)
def test_inconsistent_terms_are_refused(path, value, message):
    with pytest.raises(ContractError, match=message):
        changed(path, value)


def test_steps_are_refused_exactly_where_the_array_could_overflow():
    # 5 * (2^31-1) * e * 100 < 2^63  <=>  e <= 8589934, by integer division.
    largest = (2**63 - 1) // (5 * (2**31 - 1) * 100)
    changed("step_numerators", (largest,))
    with pytest.raises(ContractError, match=r"2\^63"):
        changed("step_numerators", (largest + 1,))


@pytest.mark.parametrize("kind", ["sqrt", "unbounded"])
def test_only_a_bounded_delay_may_publish_every_other_version(kind):
    other = dataclasses.replace(TERMS, delay_kind=kind)
    with pytest.raises(ContractError, match="publish_every must be 1 to 1"):
        dataclasses.replace(other, publish_every=2)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [("protocol", 2, "protocol"), ("element_type", terms_pb2.ELEMENT_TYPE_INT64, "element_type")],
)
def test_terms_of_another_protocol_are_refused(field, value, message):
    other = terms_pb2.Terms.FromString(TERMS.to_bytes())
    setattr(other, field, value)
    with pytest.raises(ContractError, match=message):
        terms.from_bytes(other.SerializeToString())


@pytest.mark.parametrize("data", [b"", b"\xff\xff\xff", TERMS.to_bytes()[:-3]])
def test_bytes_that_are_no_terms_are_refused(data):
    with pytest.raises(ContractError):
        terms.from_bytes(data)
