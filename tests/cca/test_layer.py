from __future__ import annotations

import copy
import io
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ccal.cca import CCALayer
from ccal.errors import CcalError, InputError, NotFittedError, SmallBatchWarning
from ccal.losses import PairwiseRankingLoss
from tests.compiler import needs_cpp
from tests.reference import algorithm_1, correlated_views, cosines

VARIANTS: dict[str, dict[str, Any]] = {
    "aligned": {},
    "canonical": {"coordinates": "canonical"},
    "truncated": {"k": 3},
    "weighted": {"power": 1.5},
    "relative ridge": {"ridge": (0.5, 0.1), "relative_ridge": True},
    "running": {"momentum": 0.2},
}


@pytest.fixture(params=VARIANTS)
def layer(request: pytest.FixtureRequest) -> CCALayer:
    return CCALayer(6, **VARIANTS[request.param])


@pytest.fixture
def views() -> tuple[Tensor, Tensor]:
    return correlated_views(100, 6, 6, dtype=torch.float32)


def trained(layer: CCALayer, views: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    outputs: tuple[Tensor, Tensor] = layer(*views)
    return outputs


def test_evaluation_repeats_the_projections_of_the_last_batch(
    layer: CCALayer, views: tuple[Tensor, Tensor]
) -> None:
    expected = trained(layer, views)
    layer.eval()
    for value, target in zip(layer(*views), expected, strict=True):
        torch.testing.assert_close(value, target, rtol=1e-4, atol=1e-4)


def test_one_view_at_a_time(layer: CCALayer, views: tuple[Tensor, Tensor]) -> None:
    trained(layer, views)
    layer.eval()
    x, y = layer(*views)
    torch.testing.assert_close(layer.project_x(views[0]), x)
    torch.testing.assert_close(layer.project_y(views[1]), y)


def test_refit_in_batches_equals_one_large_batch(
    layer: CCALayer, views: tuple[Tensor, Tensor]
) -> None:
    batches = list(zip(views[0].split(33), views[1].split(33), strict=True))
    streamed = copy.deepcopy(layer).refit(batches).eval()
    whole = copy.deepcopy(layer).refit(views).eval()
    trained(layer, views)
    layer.eval()
    for a, b, c in zip(streamed(*views), whole(*views), layer(*views), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(a, c, rtol=1e-3, atol=1e-3)


def test_cosines_do_not_depend_on_the_coordinates() -> None:
    views = correlated_views(100, 6, 6)
    matrices = [
        cosines(*trained(CCALayer(6, coordinates=c), views)) for c in ("aligned", "canonical")
    ]
    torch.testing.assert_close(matrices[0], matrices[1])


def test_canonical_outputs_are_those_of_algorithm_1() -> None:
    x, y = correlated_views(100, 6, 6)
    layer = CCALayer(6, coordinates="canonical")
    xs, ys = layer(x, y)
    reference_x, reference_y, correlations = algorithm_1(x, y)
    torch.testing.assert_close(xs.abs(), reference_x.abs(), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(ys.abs(), reference_y.abs(), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(layer.correlations, correlations)


def test_weighting_scales_the_canonical_axes() -> None:
    x, y = correlated_views(100, 6, 4)
    plain, weighted = CCALayer(6, 4), CCALayer(6, 4, power=2.0)
    for a, b in zip(plain(x, y), weighted(x, y), strict=True):
        shares = plain.correlations / plain.correlations[0]
        torch.testing.assert_close(a * shares**2, b)


@pytest.mark.parametrize(("scale", "power"), [(1e-3, 4.0), (1e-6, 1.0), (1e-6, 4.0)])
def test_weighting_of_small_correlations(scale: float, power: float) -> None:
    # Far below the ridge all correlations are small, and their powers smaller still.
    x, y = (scale * view for view in correlated_views(200, 6, 6))
    found = []
    for dtype in (torch.float32, torch.float64):
        leaf = x.to(dtype).requires_grad_()
        loss = PairwiseRankingLoss()(*CCALayer(6, power=power)(leaf, y.to(dtype)))
        found.append((loss.detach(), *torch.autograd.grad(loss, leaf)))
    for value, target in zip(*found, strict=True):
        torch.testing.assert_close(value.double(), target, rtol=1e-4, atol=1e-4 * target.max())


@pytest.mark.parametrize("kind", ["large mean", "repeated features"])
def test_evaluation_repeats_training_to_the_last_digits(kind: str) -> None:
    x, y = correlated_views(300, 8, 8)
    if kind == "large mean":
        x, y = x + 1e5, y - 1e5
    else:
        x[:, 4:] = x[:, :4]
        x, y = 1e4 * x @ torch.randn(8, 8).double(), y
    x, y = x.float(), y.float()
    layer = CCALayer(8)
    trained = layer(x, y)
    for value, target in zip(layer.eval()(x, y), trained, strict=True):
        torch.testing.assert_close(value, target, rtol=1e-4, atol=1e-5)


def test_refit_between_forward_and_backward(views: tuple[Tensor, Tensor]) -> None:
    layer = CCALayer(views[0].shape[1], views[1].shape[1]).refit(views).eval()
    x = views[0].clone().requires_grad_()
    expected = layer.projection_x.sum(1).clone()
    projected = layer.project_x(x).sum()
    layer.refit([(views[0] * 2, views[1])])
    (gradient,) = torch.autograd.grad(projected, x)
    torch.testing.assert_close(gradient, expected.to(x).expand_as(x))


def test_statistics_loaded_from_float32_become_float64() -> None:
    x, y = correlated_views(50, 3, 3)
    layer = CCALayer(3, momentum=0.5)
    layer(x, y)
    narrow = {
        name: value.float() if value.is_floating_point() else value
        for name, value in layer.state_dict().items()
    }
    other = CCALayer(3, momentum=0.5)
    other.load_state_dict(narrow, assign=True)
    other(x, y)
    assert other.mean_x.dtype == torch.float64


def test_running_statistics_are_the_exponential_average() -> None:
    layer = CCALayer(3, momentum=0.25)
    first, second = correlated_views(50, 3, 3, seed=1), correlated_views(50, 3, 3, seed=2)
    layer(*first)
    torch.testing.assert_close(layer.mean_x, first[0].mean(0))
    layer(*second)
    torch.testing.assert_close(layer.mean_x, 0.75 * first[0].mean(0) + 0.25 * second[0].mean(0))
    expected = 0.75 * torch.cov(first[0].T) + 0.25 * torch.cov(second[0].T)
    torch.testing.assert_close(layer.get_buffer("running_xx"), expected)
    layer.refit(first)
    torch.testing.assert_close(layer.get_buffer("running_xx"), expected)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(reentrant: bool) -> None:
    x, y = correlated_views(50, 3, 3)
    x.requires_grad_()
    (expected,) = torch.autograd.grad(nn.functional.cosine_similarity(*CCALayer(3)(x, y)).sum(), x)
    again = checkpoint(CCALayer(3), x, y, use_reentrant=reentrant)
    nn.functional.cosine_similarity(*again).sum().backward()
    torch.testing.assert_close(x.grad, expected)
    # The second time it would not go on from where the first did.
    running = checkpoint(CCALayer(3, momentum=0.5), x, y, use_reentrant=reentrant)
    with pytest.raises(CcalError, match="leave the layer outside of checkpoint"):
        nn.functional.cosine_similarity(*running).sum().backward()


def test_samples_whose_squares_vanish_in_float32() -> None:
    x, y = (1e-22 * view for view in correlated_views(100, 3, 3))
    layer, exact = (CCALayer(3, relative_ridge=True) for _ in range(2))
    layer(x.float(), y.float())
    exact(x, y)
    torch.testing.assert_close(layer.correlations, exact.correlations, rtol=1e-5, atol=0)


@pytest.mark.parametrize("via", ["state_dict", "torch.save", "deepcopy", "pickle", "safetensors"])
def test_nothing_is_lost_in_a_copy(
    via: str, layer: CCALayer, views: tuple[Tensor, Tensor], tmp_path: Path
) -> None:
    trained(layer, views)
    layer.eval()
    restored = copy.deepcopy(layer)
    for buffer in restored.buffers():
        buffer.zero_()
    if via == "state_dict":
        restored.load_state_dict(layer.state_dict())
    elif via == "torch.save":
        stream = io.BytesIO()
        torch.save(layer, stream)
        stream.seek(0)
        restored = torch.load(stream, weights_only=False)
    elif via == "deepcopy":
        restored = copy.deepcopy(layer)
    elif via == "pickle":
        restored = pickle.loads(pickle.dumps(layer))
    else:
        safetensors = pytest.importorskip("safetensors.torch")
        safetensors.save_model(layer, str(tmp_path / "layer.safetensors"))
        safetensors.load_model(restored, str(tmp_path / "layer.safetensors"))
    for a, b in zip(layer(*views), restored(*views), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_statistics_stay_in_float64(dtype: torch.dtype, layer: CCALayer) -> None:
    layer = layer.to(dtype)
    assert all(b.dtype == torch.float64 for b in layer.buffers() if b.is_floating_point())
    layer = layer.double().half().float()
    assert layer.mean_x.dtype == torch.float64
    assert layer.to("meta").mean_x.device.type == "meta"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_upcast_inside(dtype: torch.dtype, views: tuple[Tensor, Tensor]) -> None:
    x, y = (view.to(dtype).requires_grad_() for view in views)
    layer = CCALayer(6)
    xs, ys = layer(x, y)
    assert xs.dtype == ys.dtype == torch.float32
    expected = CCALayer(6)(x.detach().float(), y.detach().float())
    torch.testing.assert_close(xs, expected[0])
    (xs * ys).sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == dtype
    assert x.grad.isfinite().all()
    assert layer.eval().project_x(x).dtype == torch.float32


def test_autocast_does_not_reach_the_mathematics(views: tuple[Tensor, Tensor]) -> None:
    expected = CCALayer(6)(*views)
    layer = CCALayer(6)
    with torch.autocast("cpu", torch.bfloat16):
        outputs = layer(*views)
        x, y = (view.clone().requires_grad_() for view in views)
        torch.cat(layer(x, y)).square().sum().backward()
        projected = layer.eval().project_x(views[0])
    assert torch.equal(outputs[0], expected[0])
    torch.testing.assert_close(projected, expected[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_torch_compile_in_one_graph(
    mode: str, layer: CCALayer, views: tuple[Tensor, Tensor]
) -> None:
    trained(layer, views)
    layer.train(mode == "train")
    eager = copy.deepcopy(layer)
    torch.compiler.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    gradients = []
    for module in (compiled, eager):
        x, y = (view.clone().requires_grad_() for view in views)
        xs, ys = module(x, y)
        (xs * ys).sin().sum().backward()
        gradients.append((x.grad, y.grad, xs.detach(), ys.detach()))
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b)
    torch.testing.assert_close(layer.state_dict(), eager.state_dict())


@pytest.mark.slow
def test_compiled_evaluation_is_checked() -> None:
    torch.compiler.reset()
    layer = CCALayer(3).eval()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x, y = correlated_views(20, 3, 3)
    with pytest.raises(NotFittedError, match="no projections yet"):
        compiled(x, y)
    layer.refit((x, y))
    with pytest.raises(InputError, match="x contains 1 NaN"):
        compiled(torch.cat((x[:-1], x[-1:].index_fill(1, torch.tensor(0), torch.nan))), y)
    leaf = x.clone().requires_grad_()
    gradients = [
        torch.autograd.grad(run(leaf, y)[0].square().sum(), leaf)[0] for run in (compiled, layer)
    ]
    torch.testing.assert_close(*gradients)


@needs_cpp
@pytest.mark.slow
def test_torch_compile_with_inductor(views: tuple[Tensor, Tensor]) -> None:
    model = nn.Sequential(nn.Linear(6, 6))
    layer = CCALayer(6)

    def step(x: Tensor, y: Tensor) -> Tensor:
        xs, ys = layer(model(x), y)
        return torch.sum(xs * ys)

    expected = step(*views)
    # What is cached on disk may be of another version of the layer.
    compiled = torch.compile(step, options={"fx_graph_cache": False})
    torch.testing.assert_close(compiled(*views), expected)


def test_training_without_gradients(views: tuple[Tensor, Tensor]) -> None:
    layer = CCALayer(6)
    with torch.inference_mode():
        assert layer(*views)[0].shape == (100, 6)


def test_learns_together_with_a_network() -> None:
    """Pairs come closer when two linear maps are trained through the layer."""
    x, y = correlated_views(200, 10, 10, dtype=torch.float32)
    f, g, layer = nn.Linear(10, 3), nn.Linear(10, 3), CCALayer(3)
    optimiser = torch.optim.Adam([*f.parameters(), *g.parameters()], lr=1e-2)
    history = []
    for _ in range(40):
        xs, ys = layer(f(x), g(y))
        loss = -torch.nn.functional.cosine_similarity(xs, ys).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        history.append(loss.item())
    assert history[-1] < history[0] - 0.05


class TestErrors:
    def test_rows_differ(self) -> None:
        with pytest.raises(InputError, match="x has 5 rows and y has 6"):
            CCALayer(2)(torch.randn(5, 2), torch.randn(6, 2))

    def test_dimensions_differ(self) -> None:
        with pytest.raises(InputError, match="y has 3 features, but 2 were expected"):
            CCALayer(2)(torch.randn(5, 2), torch.randn(5, 3))

    def test_not_a_matrix(self) -> None:
        with pytest.raises(InputError, match=r"x must be a matrix .* got shape \(5,\)"):
            CCALayer(2)(torch.randn(5), torch.randn(5, 2))

    def test_arrays(self) -> None:
        with pytest.raises(InputError, match=r"x must be a torch\.Tensor, got ndarray"):
            CCALayer(2)(torch.ones(5, 2).numpy(), torch.randn(5, 2))

    def test_integers(self) -> None:
        with pytest.raises(InputError, match=r"floating point, got torch.int64"):
            CCALayer(2)(torch.ones(5, 2, dtype=torch.long), torch.randn(5, 2))

    @pytest.mark.parametrize("samples", [0, 1])
    @pytest.mark.filterwarnings("ignore::ccal.errors.SmallBatchWarning")
    def test_too_few_samples(self, samples: int) -> None:
        with pytest.raises(InputError, match=f"at least 2 samples, got {samples}"):
            CCALayer(2)(torch.randn(samples, 2), torch.randn(samples, 2))

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
    @pytest.mark.parametrize("training", [True, False])
    def test_not_finite(self, value: float, training: bool) -> None:
        layer = CCALayer(2)
        layer(torch.randn(20, 2), torch.randn(20, 2))
        layer.train(training)
        y = torch.randn(20, 2)
        y[3, 1] = y[4, 0] = y[4, 1] = value
        before = copy.deepcopy(layer.state_dict())
        with pytest.raises(InputError, match="y contains 3 NaN or infinite values in 2 of 20 rows"):
            layer(torch.randn(20, 2), y)
        torch.testing.assert_close(layer.state_dict(), before, rtol=0, atol=0)

    def test_refit_names_the_view(self) -> None:
        with pytest.raises(InputError, match="x contains 1 NaN"):
            CCALayer(1).refit([(torch.tensor([[1.0], [float("nan")]]), torch.ones(2, 1))])

    def test_numbers_of_numpy_are_numbers(self) -> None:
        layer = CCALayer(np.int64(4), k=np.int64(2), ridge=np.float32(0.5))  # type: ignore[arg-type]
        assert (layer.dim_x, layer.k, layer.ridge_x) == (4, 2, 0.5)

    def test_values_beyond_all_bounds(self) -> None:
        x, y = torch.randn(20, 2).double() * 1e200, torch.randn(20, 2).double()
        with pytest.raises(InputError, match="cannot be factorised"):
            CCALayer(2)(x, y)

    def test_a_pair_may_be_a_list(self) -> None:
        x, y = torch.randn(50, 2), torch.randn(50, 2)
        pair = CCALayer(2).refit((x, y)).state_dict()
        torch.testing.assert_close(CCALayer(2).refit([x, y]).state_dict(), pair)

    def test_refit_of_nothing(self) -> None:
        with pytest.raises(InputError, match="at least 2 pairs"):
            CCALayer(2).refit([])

    def test_evaluation_before_any_fit(self) -> None:
        with pytest.raises(NotFittedError, match="refit"):
            CCALayer(2).eval()(torch.randn(5, 2), torch.randn(5, 2))

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"dim_x": 0}, "dim_x must be a whole number of at least 1, got dim_x=0"),
            ({"dim_x": 4.5}, "whole number of at least 1, got dim_x=4.5"),
            ({"dim_x": 4, "ridge": "auto"}, "got ridge='auto'"),
            ({"dim_x": 4, "ridge": (1, 2, 3)}, r"a pair \(x, y\), got ridge=\(1, 2, 3\)"),
            ({"dim_x": 4, "dim_y": 3, "k": 4}, "at least 1 and of at most 3, got k=4"),
            ({"dim_x": 4, "k": 2.0}, "whole number of at least 1 and of at most 4, got k=2.0"),
            ({"dim_x": 4, "k": 3, "coordinates": "aligned"}, "needs k = dim_x = dim_y"),
            ({"dim_x": 4, "power": 1, "coordinates": "aligned"}, "power = 0"),
            ({"dim_x": 4, "coordinates": "polar"}, "'polar'"),
            ({"dim_x": 4, "ridge": -1}, "ridge must be a finite number of at least 0"),
            ({"dim_x": 4, "ridge": (1, float("nan"))}, "ridge must be a finite number"),
            ({"dim_x": 4, "momentum": 0}, "momentum must be a finite number greater than 0"),
            ({"dim_x": 4, "power": "auto"}, "power must be a finite number"),
            ({"dim_x": 4, "momentum": None}, "momentum must be a finite number"),
            ({"dim_x": 4, "power": -1}, "power must be a finite number of at least 0"),
        ],
    )
    def test_bad_arguments(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError, match=message):
            CCALayer(**arguments)


def test_a_small_batch_warns_once_and_says_what_to_do() -> None:
    layer = CCALayer(32)
    with pytest.warns(SmallBatchWarning, match=r"100 pairs .* 128 or more, or momentum < 1"):
        layer(torch.randn(100, 32), torch.randn(100, 32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer(torch.randn(100, 32), torch.randn(100, 32))
        CCALayer(32)(torch.randn(128, 32), torch.randn(128, 32))


def test_repr_shows_the_settings() -> None:
    text = repr(CCALayer(8, 6, k=2, relative_ridge=True, ridge=(1, 2)))
    assert "8, 6, k=2, coordinates='canonical', ridge=(1, 2) relative" in text


@pytest.mark.parametrize("pairs", [5, [torch.ones(3, 4)], (np.ones((3, 4)), np.ones((3, 4)))])
def test_refit_refuses_batches_that_are_no_pairs(pairs: Any) -> None:
    with pytest.raises(InputError, match=r"pair \(x, y\) of matrices|two matrices \(x, y\)"):
        CCALayer(4).refit(pairs)


def test_refit_leaves_labels_alone(views: tuple[Tensor, Tensor]) -> None:
    plain = CCALayer(6).refit([views])
    labelled = CCALayer(6).refit([(*views, torch.zeros(len(views[0])))])
    torch.testing.assert_close(labelled.projection_x, plain.projection_x)
