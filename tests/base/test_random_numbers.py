"""Words, uniforms and inverse distribution functions: the same everywhere, and the right law."""

import hashlib

import numpy as np
import pytest
from scipy import special, stats

from dokl import random_numbers
from dokl.base.errors import BadInput

MASK = 2**64 - 1


def philox_block(counter, key):
    """Philox 4x64-10 of Salmon et al. 2011 in plain integers: four words."""
    c, (k0, k1) = list(counter), key
    for _ in range(10):
        p0, p1 = 0xD2E7470EE14C6C93 * c[0], 0xCA5A826395121157 * c[2]
        c = [(p1 >> 64) ^ c[1] ^ k0, p1 & MASK, (p0 >> 64) ^ c[3] ^ k1, p0 & MASK]
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) & MASK, (k1 + 0xBB67AE8584CAA73B) & MASK
    return c


def test_words_are_philox_keyed_by_seed_and_label():
    seed = 2**63 + 12345
    purpose = int.from_bytes(hashlib.sha256(b'["omega", 2]').digest()[:8], "little")
    expected = [w for i in (1, 2) for w in philox_block([i, 0, 0, 0], (seed, purpose))]
    assert random_numbers.words(seed, ("omega", 2), 8).tolist() == expected
    assert random_numbers.words(seed, ("omega", 2), 5).tolist() == expected[:5]


def test_labels_and_seeds_give_different_words():
    streams = [(0, "a"), (1, "a"), (0, "b"), (0, ("a", 0)), (0, ("a", 1)), (0, 1), (0, "1")]
    assert len({int(random_numbers.words(seed, label, 1)[0]) for seed, label in streams}) == len(
        streams
    )


def test_uniforms_stay_strictly_inside():
    ends = random_numbers.to_unit(np.array([0, 2**52 - 1], dtype=np.uint64))
    assert ends[0] == 2.0**-53
    assert ends[1] == 1 - 2.0**-53
    u = random_numbers.uniforms(3, "test", (200, 100))
    assert u.shape == (200, 100)
    assert stats.kstest(u.ravel(), "uniform").pvalue > 0.01


def test_generator_uses_the_same_words():
    g = random_numbers.generator(4, "x")
    assert g.bit_generator.random_raw(3).tolist() == random_numbers.words(4, "x", 3).tolist()


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, "1", None, True])
def test_bad_seeds(seed):
    with pytest.raises(BadInput, match="seed must be an integer from 0"):
        random_numbers.check_seed(seed)


def test_good_seeds():
    assert random_numbers.check_seed(np.uint64(2**64 - 1)) == 2**64 - 1
    assert type(random_numbers.check_seed(np.int32(5))) is int


def test_spawned_seeds_are_golden_and_distinct():
    assert random_numbers.spawn(0, 2) == [4334430513956379144, 2440950710608614359]
    seeds = random_numbers.spawn(12, 500)
    assert len(set(seeds)) == 500
    assert all(0 <= s < 2**63 for s in seeds)
    assert set(seeds).isdisjoint(random_numbers.spawn(13, 500))


def test_draw_recipe_redraws_recipes_and_keeps_arrays():
    class Recipe:
        def draw(self, seed):
            return seed + 1

    array = np.zeros(2)
    assert random_numbers.draw_recipe(Recipe(), 4) == 5
    assert random_numbers.draw_recipe(array, 4) is array


def test_normal_quantile_matches_scipy():
    u = np.concatenate(
        [
            np.logspace(-300, -1, 999),
            np.linspace(0.001, 0.999, 4001),
            1 - np.logspace(-15.9, -1, 99),
        ]
    )
    ours, theirs = random_numbers.normal_quantile(u), special.ndtri(u)
    away = np.abs(u - 0.5) > 1e-10
    assert np.abs(ours[away] / theirs[away] - 1).max() < 3e-15
    assert np.abs(ours - theirs)[~away].max() < 1e-15


def test_normal_quantile_is_odd_and_keeps_shape():
    u = random_numbers.uniforms(0, "odd", (50, 2))
    u = np.where(u > 0.5, u, 1 - u)  # so that 1 - u is exact
    assert np.array_equal(random_numbers.normal_quantile(u), -random_numbers.normal_quantile(1 - u))
    assert random_numbers.normal_quantile(0.5).shape == ()


@pytest.mark.parametrize("u", [0.0, 1.0, -0.1, np.nan, [0.5, 1.5]])
def test_quantiles_refuse_the_ends(u):
    for quantile in (
        random_numbers.normal_quantile,
        lambda v: random_numbers.gamma_quantile(v, 2.0),
    ):
        with pytest.raises(BadInput, match="strictly between 0 and 1"):
            quantile(u)


@pytest.mark.parametrize("shape", [0.02, 0.3, 0.5, 1.0, 1.5, 10.0, 392.0, 5000.0])
def test_gamma_quantile_round_trip(shape):
    u = np.concatenate([np.logspace(-16, -1, 300), np.linspace(0.1, 0.9, 99)])
    u = np.concatenate([u, 1 - np.logspace(-15.9, -1, 300)])
    x = random_numbers.gamma_quantile(u, shape)
    lower = np.abs(special.gammainc(shape, x) / u - 1)[(u <= 0.5) & (x > 1e-290)]
    upper = np.abs(special.gammaincc(shape, x) / (1 - u) - 1)[u > 0.5]
    assert lower.max(initial=0) < 2e-12
    assert upper.max() < 2e-12
    assert (np.diff(x[:399]) >= 0).all()


def test_gamma_quantile_of_known_laws():
    u = random_numbers.uniforms(1, "gamma", 1000)
    # Gamma(1) is exponential; 2 Gamma(1/2) is a squared normal
    assert np.allclose(random_numbers.gamma_quantile(u, 1.0), -np.log1p(-u), rtol=2e-14, atol=0)
    squared = random_numbers.normal_quantile((1 + u) / 2) ** 2
    assert np.allclose(2 * random_numbers.gamma_quantile(u, 0.5), squared, rtol=1e-12, atol=0)


def test_gamma_quantile_far_below_the_solver():
    # (u Gamma(a + 1))^(1/a) at a = 1/50: 1e-8 becomes 1e-400, which is 0, not NaN
    x = random_numbers.gamma_quantile([1e-8, 1e-5, 0.5], 0.02)
    assert x[0] < 1e-300
    assert x[1] == pytest.approx((1e-5 * special.gamma(1.02)) ** 50, rel=1e-12)
    assert np.isfinite(x).all()


def test_sobol_is_a_net_in_every_coordinate():
    u = random_numbers.sobol(5, 256, 40)
    cells = np.sort((256 * u).astype(int), axis=0)
    assert np.array_equal(cells, np.tile(np.arange(256)[:, None], (1, 40)))


def test_sobol_is_a_net_in_pairs():
    # the first two coordinates form a (0, m, 2)-net, and shifts keep that
    u = random_numbers.sobol(6, 256, 2)
    for a in range(9):
        cells = (u * [2**a, 2 ** (8 - a)]).astype(int)
        assert len({tuple(c) for c in cells}) == 256


def test_sobol_prefix_and_golden():
    u = random_numbers.sobol(7, 100, 3)
    assert np.array_equal(u[:37], random_numbers.sobol(7, 37, 3))
    assert random_numbers.sobol(7, 1, 3).shape == (1, 3)
    golden = [0.4349974620810261, 0.9518406674109755, 0.45497526299003954]
    assert np.allclose(u[50], golden, rtol=0, atol=1e-15)


def test_sobol_points_are_uniform_over_seeds():
    u = np.array([random_numbers.sobol(s, 5, 2)[4] for s in range(400)])
    for column in u.T:
        assert stats.kstest(column, "uniform").pvalue > 0.01


def test_sobol_refuses_too_many_dimensions():
    with pytest.raises(BadInput, match="up to dimension 21201, got 21202"):
        random_numbers.sobol(0, 4, 21202)
