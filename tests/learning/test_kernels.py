"""Each kernel against its formula, and its frequencies against Bochner's theorem."""

import numpy as np
import pytest
from scipy import special, stats

from dokl import kernels, random_numbers
from dokl.base.errors import BadInput, UnknownName
from dokl.learning.features import sample
from dokl.learning.kernels import (
    Cauchy,
    Custom,
    Gaussian,
    Kernel,
    Laplacian,
    Matern,
    RationalQuadratic,
    Stretched,
    resolve,
)
from dokl.learning.kernels.mixtures import large_order_matern

KERNELS = [
    Gaussian(1.3),
    Laplacian(2.0),
    Matern(1.3, 0.5),
    Matern(1.3, 1.5),
    Matern(1.3, 0.8),
    Matern(1.3, 2.5),
    Cauchy(1.3),
    RationalQuadratic(1.3, 0.7),
]


def normal_custom(isotropic=True, name="mine"):
    return Custom(
        lambda v: np.exp(-0.5 * (v**2).sum(-1)),
        lambda rng, n, d: rng.standard_normal((n, d)),
        name=name,
        isotropic=isotropic,
    )


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_shape_and_peak(kernel):
    delta = random_numbers.normal_quantile(random_numbers.uniforms(0, "delta", (4, 5, 3)))
    delta[0, 0] = 0
    kappa = kernel(delta)
    assert kappa.shape == (4, 5)
    assert kappa[0, 0] == 1
    assert (kappa > 0).all()
    assert (kappa <= 1).all()
    assert np.allclose(kappa, kernel(-delta), rtol=1e-14)


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_frequencies_average_to_the_kernel(kernel, d):
    # Bochner: the mean of n cosines of variance at most 1/2 is kappa to 0.7 / sqrt(n) = 0.0035
    omega = kernel.sample(seed=2, n=40_000, d=d)
    assert omega.shape == (40_000, d)
    delta = np.array([0.2, 0.7, 1.5, 3.0])[:, None] * np.linspace(1.0, -0.5, d)
    estimate = np.cos(omega @ delta.T).mean(0)
    assert np.abs(estimate - kernel(delta)).max() < 4 * 0.0035


@pytest.mark.parametrize("kernel", [*KERNELS, normal_custom()], ids=lambda k: k.name)
@pytest.mark.parametrize("d", [1, 6])
def test_radii_follow_the_law_of_the_norms(kernel, d):
    radii = kernel.radii(3, 5000, d)
    norms = np.linalg.norm(kernel.sample(4, 5000, d), axis=1)
    assert stats.ks_2samp(radii, norms).pvalue > 0.01


def test_gaussian_radii_are_chi():
    assert stats.kstest(2.0 * Gaussian(2.0).radii(1, 5000, 7), stats.chi(7).cdf).pvalue > 0.01


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_larger_samples_extend_smaller_ones(kernel):
    large = kernel.sample(5, 5000, 2)  # crosses a group of 4096
    assert np.array_equal(large[:100], kernel.sample(5, 100, 2))
    assert np.unique(large[:, 0]).size == 5000


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_extreme_uniforms_give_finite_frequencies(kernel):
    k = kernel.n_uniforms(2)
    assert k == (2 if kernel.name in ("gaussian", "laplacian") else 3)
    for u in (2.0**-53, 1 - 2.0**-53):
        assert np.isfinite(kernel.frequencies(np.full((1, k), u))).all()


def test_laplacian_quantile_is_accurate_in_the_tails():
    u = np.array([2.0**-53, 1e-9, 0.2, 0.25, 0.4])
    expected = -1 / np.tan(np.pi * u)  # exact form of the Cauchy quantile below 1/2
    assert np.allclose(Laplacian(1.0).frequencies(u[:, None])[:, 0], expected, rtol=1e-14)
    assert np.allclose(Laplacian(1.0).frequencies(1 - u[1:, None])[:, 0], -expected[1:], rtol=1e-7)


def test_laplacian_is_l1_and_not_isotropic():
    assert not Laplacian(1.0).isotropic
    assert Laplacian(2.0)([3.0, -1.0]) == pytest.approx(np.exp(-2))


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_bessel_form_agrees_with_closed_forms(nu):
    r = np.concatenate([[0.0, 1e-300, 1e-12], np.linspace(0.01, 40, 300)])[:, None]
    closed, general = Matern(1.7, nu)(r), Matern(1.7, nu * (1 + 1e-13))(r)
    assert np.allclose(closed, general, rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("nu", [0.05, 0.3, 3.7, 20.0, 99.0, 101.0, 150.5, 1e4, 1e9])
def test_matern_is_a_kernel_for_any_nu(nu):
    r = np.concatenate([[0.0, 1e-200, 1e-8], np.linspace(0.01, 60, 500)])[:, None]
    kappa = Matern(1.0, nu)(r)
    assert np.isfinite(kappa).all()
    assert kappa[0] == 1
    assert (np.diff(kappa) <= 0).all()


def test_large_order_expansion_meets_bessel():
    t, nu = np.linspace(0.5, 60, 100), 80.0
    log = (1 - nu) * np.log(2) - special.gammaln(nu) + nu * np.log(t) + np.log(special.kve(nu, t))
    assert np.allclose(large_order_matern(t, nu), np.exp(log - t), rtol=0, atol=2e-12)


@pytest.mark.parametrize("limit", [Matern(2.0, 1e8), RationalQuadratic(2.0, 1e8)], ids=repr)
def test_limits_are_gaussian(limit):
    r = np.linspace(0, 8, 50)[:, None]
    assert np.allclose(limit(r), Gaussian(2.0)(r), atol=1e-7)


def test_cauchy_is_a_rational_quadratic():
    r = np.linspace(0, 8, 50)[:, None]
    assert np.allclose(Cauchy(2.0)(r), RationalQuadratic(2.0 / np.sqrt(2), 1.0)(r), rtol=1e-14)


@pytest.mark.parametrize("value", [0, -1.0, np.inf, np.nan, "wide", None])
def test_parameters_must_be_positive(value):
    with pytest.raises(BadInput, match="sigma must be a finite number above 0"):
        Gaussian(value)
    with pytest.raises(BadInput, match="nu must be"):
        Matern(1.0, value)
    with pytest.raises(BadInput, match="alpha must be"):
        RationalQuadratic(1.0, alpha=value)


def test_delta_must_have_a_last_axis():
    with pytest.raises(BadInput, match=r"shape \(\.\.\., d\)"):
        Gaussian(1.0)(3.0)


def test_kernels_are_values():
    assert Gaussian(5) == Gaussian(np.float64(5.0))
    assert Gaussian(5).spec() == {"name": "gaussian", "sigma": 5.0}
    assert Matern(1, 2.5).spec() == {"name": "matern", "sigma": 1.0, "nu": 2.5}
    assert len({Gaussian(1.0), Gaussian(1.0), Cauchy(1.0)}) == 2


def test_custom_kernel():
    kernel = normal_custom()
    assert isinstance(kernel, Kernel)
    assert kernel([0.0, 1.0]) == pytest.approx(np.exp(-0.5))
    assert np.array_equal(kernel.sample(1, 5, 2), kernel.sample(1, 5, 2))
    assert not np.array_equal(kernel.sample(1, 5, 2), kernel.sample(2, 5, 2))
    assert kernel.spec() == {"name": "mine", "custom": True}
    with pytest.raises(BadInput, match=r"'mine' is drawn by its sampler.*'cos' or 'paired'"):
        kernel.n_uniforms(2)


def test_custom_kernel_is_checked():
    with pytest.raises(BadInput, match="needs a name"):
        normal_custom(name="")
    with pytest.raises(BadInput, match="sampler of kernel 'x' must be callable"):
        Custom(np.sum, 3, name="x")
    wrong = Custom(np.sum, lambda rng, n, d: np.zeros((d, n)), name="x")
    with pytest.raises(BadInput, match=r"sampler .* shape \(3, 2\), got shape \(2, 3\)"):
        wrong.sample(0, 3, 2)
    with pytest.raises(BadInput, match=r"function .* map shape \(3, 2\) to \(3,\), got \(\)"):
        wrong(np.zeros((3, 2)))
    nan = Custom(np.sum, lambda rng, n, d: np.full((n, d), np.nan), name="x")
    with pytest.raises(BadInput, match="finite frequencies"):
        nan.sample(0, 3, 2)


def test_resolve_names():
    assert resolve("gaussian", 2) == resolve("rbf", sigma=2.0) == Gaussian(2.0)
    assert resolve("laplacian", 2.0) == Laplacian(2.0)
    assert resolve("matern", 2.0, nu=3.0) == Matern(2.0, 3.0)
    assert resolve("matern12", 2.0) == Matern(2.0, 0.5)
    assert resolve("matern32", 2.0) == resolve("matern", 2.0) == Matern(2.0, 1.5)
    assert resolve("matern52", 2.0) == Matern(2.0, 2.5)
    assert resolve("cauchy", 2.0) == Cauchy(2.0)
    assert resolve("rational_quadratic", 2.0, alpha=3.0) == RationalQuadratic(2.0, 3.0)
    assert resolve(Cauchy(2.0)) == Cauchy(2.0)


def test_resolve_refuses():
    with pytest.raises(UnknownName, match="did you mean 'gaussian'"):
        resolve("gausian", 1.0)
    with pytest.raises(BadInput, match="'gaussian' needs sigma"):
        resolve("gaussian")
    with pytest.raises(UnknownName, match="parameter of kernel 'gaussian' 'nu'"):
        resolve("gaussian", 1.0, nu=2.0)
    with pytest.raises(UnknownName, match="parameter of kernel 'matern32'"):
        resolve("matern32", 1.0, nu=2.0)
    with pytest.raises(BadInput, match="already has its parameters"):
        resolve(Gaussian(1.0), sigma=2.0)
    for thing in (3, Gaussian):
        with pytest.raises(BadInput, match="must be a name or a Kernel"):
            resolve(thing)


# -- one length for each input ---------------------------------------------------------------------
@pytest.mark.parametrize("within", [Gaussian(1.3), Matern(1.3, 1.5)])
@pytest.mark.parametrize("variant", ["cos", "paired", "orthogonal", "sobol"])
def test_a_stretched_kernel_is_the_kernel_of_stretched_inputs(within, variant):
    kernel, x = Stretched(within, (0.5, 4)), np.random.default_rng(0).normal(size=(5, 2))
    lengths = np.array([0.5, 4.0])
    np.testing.assert_allclose(kernel(x), within(x / lengths))
    drawn, plain = (sample(each, 2, 64, variant, seed=3) for each in (kernel, within))
    np.testing.assert_allclose(drawn.transform(x), plain.transform(x / lengths), atol=1e-12)
    assert kernels.from_spec(kernel.spec()) == kernel
    assert drawn.fingerprint != plain.fingerprint


def test_lengths_that_cannot_be_are_refused():
    with pytest.raises(BadInput, match="a length"):
        Stretched(Gaussian(1.0), (1.0, 0.0))
    with pytest.raises(BadInput, match="2 length scales for 3 inputs"):
        sample(Stretched(Gaussian(1.0), (1.0, 2.0)), 3, 10, "paired", seed=0)
    with pytest.raises(BadInput, match="one width for all"):
        sample(Stretched(Gaussian(1.0), (1.0, 2.0)), 2, 10, "structured", seed=0)
