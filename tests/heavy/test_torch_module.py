"""Any PyTorch module as a model: right sums, one record's influence bounded and independent of others, or a refusal."""

import numpy as np
import pytest
from hushgrad.accountant import Mechanism
from hushgrad.client import data, dpsgd, models
from hushgrad.client.models import ModelError
from hushgrad.client.stream import RandomStream

torch = pytest.importorskip("torch", reason="the heavy tests run in an environment of their own: make test-heavy")

from hushgrad.client.models import torch_module  # noqa: E402
from hushgrad.client.models.torch_module import TorchModule  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

pytestmark = pytest.mark.heavy
torch.set_num_threads(1)

IMAGE = 12


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(20, 15), nn.ReLU(), nn.Linear(15, 4, bias=False))


def lenet() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)), nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5),
        nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(),
        nn.Linear(84, 10),
    )  # fmt: skip


def small_convolution() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, IMAGE, IMAGE)), nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.GroupNorm(2, 4), nn.ReLU(),
        nn.Conv2d(4, 6, 3, groups=2, dilation=1), nn.ReLU(), nn.Flatten(), nn.Linear(96, 4),
    )  # fmt: skip


class Sequence(nn.Module):
    """A record is 8 tokens from 16; embedding, normalisation, and a linear layer on every position."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(16, 6)
        self.norm = nn.LayerNorm(6)
        self.mix = nn.Linear(6, 6)
        self.out = nn.Linear(6, 4)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        tokens = (rows * 15).long().clamp(0, 15)
        hidden = self.embedding(tokens)
        return self.out(torch.tanh(self.mix(self.norm(hidden))).mean(dim=1))


class Attention(nn.Module):
    """Its layers use parameters outside their own forward, so that hooks cannot see them."""

    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(4, 2, batch_first=True)
        self.out = nn.Linear(4, 4)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        steps = rows.reshape(len(rows), 5, 4)
        return self.out(self.attend(steps, steps, steps, need_weights=False)[0].mean(dim=1))


class Twice(nn.Module):
    """The same layer is used twice, and two layers share their weights."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(20, 20)
        self.first = nn.Linear(20, 4)
        self.second = nn.Linear(20, 4)
        self.second.weight = self.first.weight

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.inner(torch.tanh(self.inner(rows))))
        return self.first(hidden) + self.second(torch.relu(hidden))


class Direct(nn.Module):
    """Parameters without a layer, one of them a single number and one never used."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((20, 4), 0.1))
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.scale * (rows @ self.weight) + rows[:, :4]


KINDS = {
    "mlp": (mlp, 20, "layers"),
    "lenet": (lenet, 784, "layers"),
    "convolution": (small_convolution, IMAGE * IMAGE, "layers"),
    "sequence": (Sequence, 8, "layers"),
    "attention": (Attention, 20, None),
    "twice": (Twice, 20, None),
    "direct": (Direct, 20, None),
}


def make(kind: str) -> TorchModule:
    factory, features, _ = KINDS[kind]
    return TorchModule(factory, features=features, classes=10 if kind == "lenet" else 4)


def records(model: TorchModule, count: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    rows = generator.random((count, model.features)).astype(np.float32)
    return rows, generator.integers(0, model.classes, count)


def reference(
    kind: str, model: TorchModule, parameters: np.ndarray, rows: np.ndarray, labels: np.ndarray
) -> np.ndarray:
    """Per-example gradients in float64 by autograd, one record at a time."""
    module = KINDS[kind][0]().double()
    values = [value for value in module.parameters() if value.requires_grad]
    flat = torch.from_numpy(parameters.astype(np.float32).astype(np.float64))
    with torch.no_grad():
        for value, part in zip(values, flat.split([value.numel() for value in values]), strict=True):
            value.copy_(part.reshape(value.shape))
    found = []
    for row, label in zip(rows, labels, strict=True):
        loss = functional.cross_entropy(module(torch.from_numpy(row[None].astype(np.float64))), torch.tensor([label]))
        gradients = torch.autograd.grad(loss, values, allow_unused=True)
        found.append(
            torch.cat(
                [
                    torch.zeros(value.numel()).double() if gradient is None else gradient.flatten()
                    for gradient, value in zip(gradients, values, strict=True)
                ]
            ).numpy()
        )
    return np.array(found)


@pytest.mark.parametrize("kind", KINDS)
def test_the_clipped_sum_is_that_of_a_loop_in_float64(kind: str) -> None:
    model = make(kind)
    how = KINDS[kind][2]
    assert how is None or model.method.startswith(how), model.method
    parameters = model.initial(3).astype(np.float64)
    rows, labels = records(model, 70)
    exact = reference(kind, model, parameters, rows, labels)
    norms = np.linalg.norm(exact, axis=1)
    for clip_norm in (0.5 * norms.min(), float(np.median(norms)), 2 * norms.max()):
        expected = (np.minimum(1.0, clip_norm / norms)[:, np.newaxis] * exact).sum(axis=0)
        found = model.clipped_sum(parameters, rows, labels, clip_norm)
        # float32 backward passes of a few layers: relative errors of some 1e-6 of each gradient
        assert np.linalg.norm(found.total - expected) < 1e-5 * 70 * clip_norm
        assert found.zeroed == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [0, 1, 63, 64, 65])
def test_any_number_of_records_is_a_sum_of_single_ones(kind: str, count: int) -> None:
    model = make(kind)
    parameters = model.initial(3).astype(np.float64)
    rows, labels = records(model, count)
    whole = model.clipped_sum(parameters, rows, labels, 0.1).total
    parts = [model.clipped_sum(parameters, rows[[at]], labels[[at]], 0.1).total for at in range(count)]
    bound = count * 0.1 * model.chunk_examples * model.unit_roundoff
    assert np.linalg.norm(whole - sum(parts, np.zeros_like(whole))) <= 2 * bound


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"sequence"}))  # of numbers that are not, it makes tokens
def test_a_record_s_gradient_has_the_same_bits_in_every_place_and_company(kind: str) -> None:
    model = make(kind)
    parameters = model.initial(3).astype(np.float64)
    rows, labels = records(model, 64)
    alone = model.clipped_sum(parameters, rows[[9]], labels[[9]], 0.1).total
    # All others count as zero, for nothing of theirs is finite: what is left is the one record's vector, to the bit.
    for place in (0, 1, 5, 31, 63):
        company = np.full((64, model.features), np.nan, np.float32)
        company[place] = rows[9]
        others = np.zeros(64, np.int64)
        others[place] = labels[9]
        found = model.clipped_sum(parameters, company, others, 0.1)
        assert found.zeroed == 63
        np.testing.assert_array_equal(found.total, alone)


@pytest.mark.parametrize("kind", KINDS)
def test_no_record_weighs_more_than_the_clip_norm(kind: str) -> None:
    model = make(kind)
    for size in (1.0, 30.0):
        parameters = size * model.initial(3).astype(np.float64)
        rows, labels = records(model, 24)
        for row, label in zip(rows, labels, strict=True):
            for clip_norm in (1e-6, 0.1, 10.0):
                total = model.clipped_sum(parameters, row[None], np.array([label]), clip_norm).total
                # One record, added to zeros: nothing is rounded but the products, at most u = 2^-24 each.
                assert np.linalg.norm(total) <= clip_norm * (1 + model.clip_error) * (1 + 2.0**-23)


def test_records_that_are_not_finite_count_as_zero_and_leave_the_others_alone() -> None:
    model = make("mlp")
    parameters = model.initial(3).astype(np.float64)
    rows, labels = records(model, 10)
    good = np.delete(np.arange(10), [2, 7, 8])
    rows[2, 3], rows[7] = np.nan, np.inf
    rows[8] = 1e30  # finite, but its gradient is beyond what float32 can clip
    found = model.clipped_sum(parameters, rows, labels, 0.1)
    assert found.zeroed == 3
    expected = model.clipped_sum(parameters, rows[good], labels[good], 0.1).total
    np.testing.assert_allclose(found.total, expected, atol=1e-7)
    assert model.clipped_sum(np.full_like(parameters, np.nan), rows, labels, 0.1).zeroed == 10


def test_the_charge_of_float32_is_larger_than_that_of_float64_and_never_smaller_than_the_error() -> None:
    def sensitivity(model: models.Model) -> float:
        return Mechanism(
            1.0, 2.0, -20, 61_706, 500, model.chunk_examples, model.unit_roundoff, model.clip_error
        ).sensitivity()

    charged = sensitivity(make("lenet"))
    assert charged > sensitivity(models.make("softmax", features=784, classes=10))
    assert charged == pytest.approx(1 + 2 * 500 * 72 * 2.0**-24 + 2.0**-20 * np.sqrt(61_706), rel=1e-5)


class Centred(nn.Module):
    """Mixes examples in a way no list of layers knows."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(20, 4)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.out(rows - rows.mean(dim=0))


class Noisy(nn.Module):
    """Draws random numbers that no list of layers shows."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(20, 4)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.out(functional.dropout(rows, 0.5, training=True))


class LaterRows(nn.Module):
    """Leaves the first record of a batch alone."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(20, 4)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.out(torch.cat([rows[:1], rows[1:] + rows[:-1]]))


class Gated(nn.Module):
    """Mixes examples by as much as a parameter says, which begins at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(20, 4)
        self.gate = nn.Parameter(torch.zeros(1))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.out(rows + self.gate * rows.sum(dim=0))


class Logarithms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(20, 4)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.out(torch.log(rows - 2.0))


class Counting(nn.Module):
    """Remembers how often it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(20, 4)
        self.register_buffer("seen", torch.zeros(20))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        self.seen += rows.detach().sum(dim=0)
        return self.out(rows)


def frozen() -> nn.Module:
    module = mlp()
    for value in module.parameters():
        value.requires_grad_(False)
    return module


@pytest.mark.parametrize(
    ("factory", "complaint"),
    [
        (lambda: nn.Sequential(nn.BatchNorm1d(20), nn.Linear(20, 4)), r"layer '0' is BatchNorm1d: .*use GroupNorm"),
        (lambda: nn.InstanceNorm2d(1, track_running_stats=True), "running statistics"),
        (lambda: nn.Sequential(nn.Linear(20, 8), nn.Dropout(0.5), nn.Linear(8, 4)), "Dropout with p = 0.5"),
        (Centred, "depends on the other examples"),
        (LaterRows, "depends on the other examples"),
        (Gated, "depends on the other examples"),
        (Noisy, "other outputs when it is called again"),
        (Logarithms, "NaN or infinity"),
        (Counting, "changes its buffer 'seen'"),
        (frozen, "nothing to train"),
        (lambda: nn.Linear(19, 4), "cannot be differentiated for float32 records of shape"),
        (lambda: nn.Linear(20, 3), "labels below 4"),
        (lambda: "no module", "must return a torch.nn.Module, found str"),
    ],
)  # fmt: skip
def test_modules_that_cannot_be_private_are_refused_with_the_reason(factory: object, complaint: str) -> None:
    with pytest.raises(ModelError, match=complaint):
        TorchModule(factory, features=20, classes=4)  # type: ignore[arg-type]


def test_layers_that_do_nothing_wrong_are_taken() -> None:
    TorchModule(lambda: nn.Sequential(nn.Dropout(0.0), nn.Linear(20, 4)), features=20, classes=4)


def test_a_frozen_part_stays_as_it_is_and_does_not_travel() -> None:
    def factory() -> nn.Module:
        module = mlp()
        module[0].weight.requires_grad_(False)
        return module

    model = TorchModule(factory, features=20, classes=4)
    assert [spec.name for spec in model.arrays] == ["0.bias", "2.weight"]
    rows, labels = records(model, 9)
    assert model.clipped_sum(model.initial(1).astype(np.float64), rows, labels, 1.0).total.shape == (75,)


def test_the_same_seed_gives_the_same_parameters_and_leaves_pytorch_s_generator_alone() -> None:
    model = make("mlp")
    state = torch.get_rng_state()
    np.testing.assert_array_equal(model.initial(5), model.initial(5))
    assert not np.array_equal(model.initial(5), model.initial(6))
    assert torch.equal(torch.get_rng_state(), state)


def test_predictions_are_probabilities_of_the_parameters_that_were_given() -> None:
    model = make("mlp")
    rows, _ = records(model, 1000)
    first = model.predict(model.initial(1).astype(np.float64), rows)
    np.testing.assert_allclose(first.sum(axis=1), 1.0)
    assert first.shape == (1000, 4)
    assert not np.allclose(first, model.predict(model.initial(2).astype(np.float64), rows))
    assert model.predict(model.initial(1).astype(np.float64), rows[:0]).shape == (0, 4)


def test_the_adapter_and_our_lenet_compute_the_same() -> None:
    ours = models.make("lenet", features=784, classes=10, activation="tanh", padding=2)
    assert sum(spec.size for spec in ours.arrays) == sum(spec.size for spec in make("lenet").arrays) == 61_706


def test_training_lowers_the_loss() -> None:
    model = make("mlp")
    rows, _ = records(model, 600)
    labels = (rows[:, 0] > 0.5).astype(np.int64) + 2 * (rows[:, 1] > 0.5)
    trainer = dpsgd.Trainer(model, data.dataset(rows, labels))
    recipe = dpsgd.Recipe("poisson", 600, 60, 1.0, 1.0, -20)
    parameters = model.initial(1).astype(np.float64)
    before = np.mean(model.predict(parameters, rows).argmax(axis=1) == labels)
    for _ in range(300):
        update = trainer.round(parameters, recipe, RandomStream())
        parameters -= 0.01 * np.ldexp(update.astype(np.float64), -20)
    assert np.mean(model.predict(parameters, rows).argmax(axis=1) == labels) > max(0.6, before)


@pytest.mark.parametrize(
    ("factory", "complaint"),
    [
        ("nowhere", 'must be "package.module:factory"'),
        ("no.such.package:make", "cannot be imported"),
        ("hushgrad.client.models:missing", "cannot be imported"),
        ("hushgrad.client.models:__doc__", "must be something to call"),
    ],
)
def test_a_factory_that_cannot_be_found_is_one_sentence(factory: str, complaint: str) -> None:
    with pytest.raises(ModelError, match=complaint):
        models.make("torch", features=20, classes=4, factory=factory)


def test_a_factory_in_the_current_folder_is_found(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_network.py").write_text("from torch import nn\n\ndef build():\n    return nn.Linear(20, 4)\n")
    monkeypatch.chdir(tmp_path)
    model = models.make("torch", features=20, classes=4, factory="my_network:build")
    assert model.name == "my_network:build"
    assert isinstance(model, torch_module.TorchModule)
