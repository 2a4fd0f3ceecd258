"""The network that is trained is the model that is served, and its gradients are those of its loss. Needs PyTorch."""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from ostraka.tuning.batches import Batch, collate  # noqa: E402
from ostraka.tuning.functions import LowRank, Norm, Turn  # noqa: E402
from ostraka.tuning.network import Network  # noqa: E402
from ostraka.tuning.parameters import changes_of, fresh_parameters, parameters_of  # noqa: E402
from ostraka_worker.build.adapter import adapt, kept  # noqa: E402
from ostraka_worker.build.adapter_file import AdapterRecord, read_adapter, write_adapter  # noqa: E402
from ostraka_worker.build.checkpoint import read_checkpoint  # noqa: E402
from ostraka_worker.build.progress import Silent  # noqa: E402
from ostraka_worker.build.reference import reference_logits  # noqa: E402
from tests.unit.deploy.tuning_examples import encoded  # noqa: E402
from tests.unit.worker.build.forms import FORMS, random_tensors, write_folder  # noqa: E402

IDS = (13, 14)
PREFIXES = ([1, 40, 13, 70, 41], [1, 90, 200, 14, 9, 31, 77])
RESTS = (([14, 66], [15, 3, 99], [8]), ([17, 5],))


def batch() -> Batch:
    """Two examples, of three prompts and of one, the first with padding in between."""
    return collate([encoded(prefix, rests) for prefix, rests in zip(PREFIXES, RESTS, strict=True)])


def network(tmp_path: Path, name: str, layers: int, dtype) -> Network:
    """Of a random checkpoint, with random changes rounded as an adapter's file has them; and that file."""
    checkpoint = read_checkpoint(write_folder(tmp_path / name, FORMS[name], random_tensors(FORMS[name])), Silent())
    config = kept(checkpoint.config, layers, "a test")
    random = np.random.default_rng(2)
    parameters = fresh_parameters(checkpoint, config, 4, IDS, seed=1)
    parameters = {
        key: value + random.normal(0, 0.1, value.shape).astype(np.float32) for key, value in parameters.items()
    }
    write_adapter(
        tmp_path / "adapter", AdapterRecord("x", "0", layers, 4, "0", "1"), changes_of(parameters, config, 1.0)
    )
    return Network(checkpoint, config, parameters_of(read_adapter(tmp_path / "adapter").changes()), dtype)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("layers", [1, 2])
def test_it_gives_the_margins_of_the_model_that_is_built(
    tmp_path: Path, name: str, layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for a build's rounding to bfloat16: what is learned is not yet added to the weights."""
    monkeypatch.setattr("ostraka_worker.build.adapter.rounded", lambda merged: merged)
    own = network(tmp_path, name, layers, torch.float32)
    base = read_checkpoint(tmp_path / name, Silent())
    built = adapt(base, read_adapter(tmp_path / "adapter"), IDS)
    prompts = [np.array([*p, *r], np.uint32) for p, rests in zip(PREFIXES, RESTS, strict=True) for r in rests]
    logits = reference_logits(built, prompts, IDS, Silent())
    got = own.margins(batch()).detach().numpy()
    np.testing.assert_allclose(got, logits[:, 1] - logits[:, 0], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["smollm2", "qwen2", "qwen3"])
def test_its_gradients_are_those_of_its_loss(tmp_path: Path, name: str) -> None:
    """Along a random direction for each parameter, against differences, in float64."""
    own = network(tmp_path, name, 2, torch.float64)
    own.parameters = {key: value.detach().double().requires_grad_() for key, value in own.parameters.items()}
    asked = batch()
    own.margins(asked).square().sum().backward()
    generator = torch.Generator().manual_seed(5)
    for key, value in own.parameters.items():
        step = torch.randn(value.shape, generator=generator, dtype=torch.float64) * 1e-5
        sides = []
        for sign in (1, -1):
            with torch.no_grad():
                value.add_(step, alpha=sign)
                sides.append(float(own.margins(asked).square().sum()))
                value.sub_(step, alpha=sign)
        expected = (sides[0] - sides[1]) / 2
        assert float((value.grad * step).sum()) == pytest.approx(expected, rel=1e-4, abs=1e-9), key


def test_each_step_has_the_gradient_of_pytorchs_own() -> None:
    generator = torch.Generator().manual_seed(5)

    def draw(*shape: int):
        return torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)

    angles = draw(2, 1, 5, 4).detach()
    cosines, sines = (torch.cat([turn, turn], -1) for turn in (angles.cos(), angles.sin()))

    def turn(x):
        return x * cosines + torch.cat([-x[..., 4:], x[..., :4]], -1) * sines

    def norm(x, gain):
        return torch.nn.functional.rms_norm(x, (16,), gain, 1e-5)

    weight = draw(3, 16).detach()
    pairs = [
        (lambda x, gain: Norm.apply(x, gain, 1e-5), norm, (draw(6, 16), draw(16))),
        (lambda x: Turn.apply(x, cosines, sines), turn, (draw(2, 3, 5, 8),)),
        (lambda x, a, b: LowRank.apply(x, weight, a, b), lambda x, a, b: x @ weight.T + x @ a.T @ b.T,
         (draw(6, 16), draw(2, 16), draw(3, 2))),
    ]  # fmt: skip
    for own, plain, inputs in pairs:
        results = []
        for function in (own, plain):
            made = function(*inputs)
            results.append([made, *torch.autograd.grad((made * torch.cos(made.detach())).sum(), inputs)])
        for mine, theirs in zip(*results, strict=True):
            torch.testing.assert_close(mine, theirs)


def test_a_gain_that_is_frozen_gets_no_gradient() -> None:
    x, gain = torch.ones(2, 4, requires_grad=True), torch.ones(4)
    Norm.apply(x, gain, 1e-5).sum().backward()
    assert gain.grad is None
