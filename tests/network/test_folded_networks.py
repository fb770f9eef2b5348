"""A node of a network as a sum of folded parts: what exports write down."""

from dataclasses import replace

import numpy as np
import pytest

import dokl
from dokl.learning.experts.folding import predict_sum as predict
from dokl.network import banks, guard
from dokl.network.banks import for_later_rows
from dokl.network.corrections import MIXED
from dokl.network.folded import folded_parts, interval_width

pytestmark = pytest.mark.usefixtures("short_searches")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 2))
OWNER = np.arange(240) % 3
Y = np.where(OWNER == 2, -1.0, 1.0) * np.sin(2 * X[:, 0]) + X[:, 1]
FAR = np.concatenate([X, 30 * X[:40]])  # beyond where inputs are clipped
FEW = {"n_nodes": 3, "n_components": 50, "random_state": 0}


def learned(share="sums", rule="metropolis", rows=180, y=Y, **params):
    model = dokl.NetworkRegressor("complete", share=share, rule=rule, **{**FEW, **params})
    return model.partial_fit(X[:rows], y[:rows], nodes=OWNER[:rows])


def everybody_counts(network):
    """The same, where own bank, network and corrections all have a weight at every node, and for
    rows that are not the next ones: their errors do not follow from the last.
    """
    nodes = tuple(
        replace(node, mixture=replace(node.mixture, gain=np.array([3.0, 2.0, 4.0])),
                recent=guard.start(3), corrections=replace(node.corrections, mixture=replace(
                    node.corrections.mixture, gain=np.arange(1.0, 1.0 + MIXED)),
                    recent=guard.start(MIXED)))
        for node in network.nodes
    )  # fmt: skip
    return for_later_rows(replace(network, nodes=nodes))


@pytest.mark.parametrize("share", ["sums", "rows"])
def test_parts_add_up_to_the_nodes_prediction(share):
    network = everybody_counts(learned(share, y=np.column_stack([Y, 5.0 - 2.0 * Y])).network_)
    for k in (-1, 0, 2):
        parts = folded_parts(network, k)
        assert len(parts) == (1 if k < 0 else 3)
        if share == "rows":  # whose bank has Matern kernels, of which a distance is no factor
            shared = parts[0] if k < 0 else parts[1]
            assert any(each.apart.any() for each in shared.bumps)
        wanted = banks.predict_mean(network, FAR, np.full(len(FAR), k))
        np.testing.assert_allclose(predict(parts, FAR), wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize("how", [
    {"rule": "alone"},  # nobody shares: an unknown node gets the mean of all
    {"rows": 20},  # before anybody has a map
    {"rows": 3},
    {"rows": 1},  # two nodes without a row
    {"n_nodes": 1},
])  # fmt: skip
def test_networks_without_a_map_and_nodes_without_rows(how):
    given = dict(how)
    rows, K = given.pop("rows", 180), given.get("n_nodes", 3)
    model = dokl.NetworkRegressor("complete", **{**FEW, **given})
    network = for_later_rows(model.partial_fit(X[:rows], Y[:rows], nodes=OWNER[:rows] % K).network_)
    for k in range(-1, K):
        found = predict(folded_parts(network, k), FAR)
        wanted = banks.predict_mean(network, FAR, np.full(len(FAR), k))
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9)
        assert np.isfinite(interval_width(network, k, 0.9)).all()


def test_a_node_that_appears_late_is_folded_by_the_network():
    late = OWNER[:200].copy()
    late[OWNER[:200] == 2] = 0
    late[-1] = 2
    model = dokl.NetworkRegressor("complete", share="rows", **FEW)
    network = model.partial_fit(X[:199], Y[:199], nodes=late[:199]).network_
    assert network.nodes[2].corrections is None
    found = predict(folded_parts(network, 2), FAR)
    wanted = banks.predict_mean(network, FAR, np.full(len(FAR), 2))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9)


def test_the_one_width_is_that_of_the_newest_rows():
    model = learned()
    for node in (None, 1):
        newest = X[1:180:3] if node == 1 else X[180 - 3 * 34 : 180]  # 34 of each make over 100
        lower, upper = model.predict_interval(newest, 0.8, nodes=node)
        width = interval_width(model.network_, -1 if node is None else node, 0.8)
        np.testing.assert_allclose(width, [np.mean(upper - lower) / 2], rtol=1e-12)
