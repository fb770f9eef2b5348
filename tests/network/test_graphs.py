import math
import subprocess
import sys

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from dokl import graphs
from dokl.base.errors import BadGraph, BadInput, UnknownName
from dokl.network.graphs import facts

NAMES = sorted(graphs.BUILDERS)


def metropolis_by_loops(g):
    """Spec section 1, word for word."""
    K = g.number_of_nodes()
    size = [len(set(g[k]) | {k}) for k in range(K)]
    A = np.zeros((K, K))
    for k in range(K):
        for neighbour in g[k]:
            A[k, neighbour] = 1 / max(size[k], size[neighbour])
        A[k, k] = 1 - A[k].sum()
    return A


# --- topologies -------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("K", [6, 20])
def test_every_builder_gives_a_connected_graph_on_0_to_K(name, K):
    g = graphs.build(name, K, seed=3)
    assert list(g) == list(range(K))
    assert nx.is_connected(g)
    assert not list(nx.selfloop_edges(g))
    again = graphs.build(name, K, seed=3)
    assert list(g.edges) == list(again.edges)


@pytest.mark.parametrize("name", ["ring", "grid", "star", "complete", "random", "geometric"])
@pytest.mark.parametrize("K", [1, 2, 3])
def test_tiny_networks(name, K):
    g = graphs.build(name, K)
    assert g.number_of_nodes() == K
    assert not list(nx.selfloop_edges(g))
    graphs.check_weights(graphs.weights(g))


@pytest.mark.parametrize("name", ["random", "small-world", "geometric"])
def test_seeds_matter(name):
    params = {"p": 0.5} if name == "small-world" else {}
    a, b = (graphs.build(name, 20, seed=s, **params) for s in (0, 1))
    assert set(a.edges) != set(b.edges)


def test_shapes_of_the_regular_ones():
    assert sorted(graphs.ring(5)[0]) == [1, 4]
    assert sorted(graphs.grid(2, 3)[1]) == [0, 2, 4]
    assert sorted(graphs.build("grid", 12)[0]) == [1, 4]  # 3 rows of 4
    assert sorted(graphs.build("grid", 12, rows=2)[0]) == [1, 6]
    assert sorted(graphs.star(4)[0]) == [1, 2, 3]
    assert graphs.complete(5).number_of_edges() == 10
    assert sorted(graphs.exponential(10)[0]) == [1, 2, 4, 6, 8, 9]
    assert all(len(pos) == 2 for _, pos in graphs.geometric(10).nodes(data="pos"))


def test_random_connected_follows_the_conditional_law():
    # K = 3: connected means two or three edges
    p, runs = 0.2, 2000
    triangles = sum(
        graphs.random_connected(3, p, seed=s).number_of_edges() == 3 for s in range(runs)
    )
    expected = p**3 / (p**3 + 3 * p**2 * (1 - p))
    assert abs(triangles / runs - expected) < 4 * math.sqrt(expected * (1 - expected) / runs)


def connected_mean_degree(K, p):
    """Exact: P(connected) by the size of node 0's part, then E[edges | connected] from d/dp."""

    def log_connected(p):
        C = [0.0, 1.0]
        for n in range(2, K + 1):
            part = (math.comb(n - 1, k - 1) * C[k] * (1 - p) ** (k * (n - k)) for k in range(1, n))
            C.append(1 - sum(part))
        return math.log(C[K])

    h = 1e-5
    slope = (log_connected(p + h) - log_connected(p - h)) / (2 * h)
    return (K - 1) * p + 2 * p * (1 - p) * slope / K


# Connectivity: 0.6096 is exact (all 1024 graphs of 5 nodes), 0.690 from 15000 independent draws
# (standard error 0.0023). The paper has 0.69-0.70 and 3.9 for 20 nodes, 0.61-0.76 and 1.8 for 5.
@pytest.mark.parametrize(
    ("K", "connectivity", "printed_degree"), [(20, 0.690, 3.90), (5, 0.6096, 1.78)]
)
def test_statistics_of_the_papers_graph(K, connectivity, printed_degree):
    degree = connected_mean_degree(K, 0.2)
    assert degree == pytest.approx(printed_degree, abs=0.015)
    found = [graphs.describe(graphs.random_connected(K, seed=s)) for s in range(500)]
    for values, expected in (
        ([f.algebraic_connectivity for f in found], connectivity),
        ([f.mean_degree for f in found], degree),
    ):
        assert abs(np.mean(values) - expected) < 4 * np.std(values) / math.sqrt(len(values))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: graphs.random_connected(1000, p=1e-3), r"ln\(K\)/K = 0.00691"),
        (lambda: graphs.random_connected(30, p=0.01), "makes it likely"),
        (lambda: graphs.random_connected(5, p=1.2), "between 0 and 1"),
        (lambda: graphs.random_connected(5, seed=None), "seed must be an integer"),
        (lambda: graphs.ring(0), "at least 1"),
        (lambda: graphs.ring(2.5), "whole number"),
        (lambda: graphs.small_world(10, k=3), "even k"),
        (lambda: graphs.small_world(4, k=4), "k < K = 4"),
        (lambda: graphs.small_world(10, p=-1), "between 0 and 1"),
        (lambda: graphs.geometric(10, radius=-1), "positive radius"),
        (lambda: graphs.geometric(1000, radius=0.01), "usually is enough"),
        (lambda: graphs.geometric(12, radius=0.05), "usually is enough"),
        (lambda: graphs.build("grid", 10, rows=3), "cannot have 3 rows"),
        (lambda: graphs.build("random", 10, q=3), "no parameter 'q': it takes only p"),
        (lambda: graphs.build("rnig", 10), "did you mean 'ring'"),
        (lambda: graphs.GraphRecipe("ring", 10, rule="metropolys"), "did you mean 'metropolis'"),
        (lambda: graphs.GraphRecipe("wheel", 10), "unknown graph"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(BadInput, match=message):
        make()


def test_names_may_be_spelled_with_underscores():
    assert graphs.build("small_world", 10).number_of_edges() == 20
    with pytest.raises(UnknownName):
        graphs.weights(graphs.ring(3), rule="best")


# --- any networkx graph -----------------------------------------------------------------


def test_as_graph_keeps_order_and_attributes():
    g = nx.Graph([("b", "a"), ("a", "c")])
    g.nodes["c"]["pos"] = (1, 2)
    clean = graphs.as_graph(g)
    assert list(clean) == [0, 1, 2]
    assert set(clean.edges) == {(0, 1), (1, 2)}
    assert clean.nodes[2]["pos"] == (1, 2)


def test_as_graph_never_renames_nodes_that_are_already_numbers():
    g = nx.Graph([(0, 2), (2, 1)])  # in order of appearance: 0, 2, 1
    clean = graphs.as_graph(g)
    assert list(clean) == [0, 1, 2]
    assert sorted(clean[2]) == [0, 1]
    np.testing.assert_allclose(graphs.metropolis(g).toarray(), metropolis_by_loops(clean))


def test_as_graph_drops_self_loops_and_leaves_the_original_alone():
    g = nx.Graph([(0, 1), (1, 1)])
    assert list(graphs.as_graph(g).edges) == [(0, 1)]
    assert g.number_of_edges() == 2


@pytest.mark.parametrize(
    ("g", "message"),
    [
        (nx.DiGraph([(0, 1)]), "undirected"),
        (nx.MultiGraph([(0, 1)]), "single"),
        (nx.Graph(), "no nodes"),
        (np.eye(3), "expected a networkx.Graph, got ndarray"),
    ],
)
def test_as_graph_refuses(g, message):
    with pytest.raises(BadGraph, match=message):
        graphs.as_graph(g)


# --- weights ----------------------------------------------------------------------------


def test_metropolis_by_hand():
    # a path 0 - 1 - 2: |N| = 2, 3, 2
    expected = [[2 / 3, 1 / 3, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1 / 3, 2 / 3]]
    np.testing.assert_allclose(graphs.metropolis(nx.path_graph(3)).toarray(), expected)


def test_four_cycle_agrees():
    values = np.linalg.eigvalsh(graphs.metropolis(graphs.ring(4)).toarray())
    np.testing.assert_allclose(values, [-1 / 3, 1 / 3, 1 / 3, 1], atol=1e-12)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 25), st.floats(0.0, 1.0), st.integers(0, 10**6))
def test_rules_on_any_graph(K, p, seed):
    g = nx.gnp_random_graph(K, p, seed=seed)
    A = graphs.metropolis(g)
    np.testing.assert_allclose(A.toarray(), metropolis_by_loops(g), atol=1e-15)
    for rule in ("metropolis", "laplacian", "max-degree"):
        A = graphs.check_weights(graphs.weights(g, rule), connected=False)
        assert abs(A - A.T).max() == 0
        assert A.diagonal().min() > 0
    A = graphs.check_weights(graphs.uniform(g), doubly=False, connected=False)
    degree = np.array([g.degree(k) for k in range(K)])
    np.testing.assert_allclose(A.diagonal(), 1 / (degree + 1))


def test_laplacian_and_uniform_by_hand():
    path = nx.path_graph(3)
    np.testing.assert_allclose(
        graphs.laplacian(path).toarray(), np.array([[2, 1, 0], [1, 1, 1], [0, 1, 2]]) / 3
    )
    np.testing.assert_allclose(
        graphs.uniform(path).toarray(), [[0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3], [0, 0.5, 0.5]]
    )


def test_edge_attributes_play_no_part():
    g = nx.Graph()
    g.add_edge(0, 1, weight=7.0)
    np.testing.assert_allclose(graphs.metropolis(g).toarray(), np.full((2, 2), 0.5))


@pytest.mark.parametrize("rule", sorted(graphs.RULES))
def test_weights_are_sorted_csr_float64(rule):
    A = graphs.weights(graphs.random_connected(20), rule)
    assert isinstance(A, csr_array)
    assert A.dtype == np.float64
    assert A.indices.dtype == A.indptr.dtype == np.int32
    rows = np.repeat(np.arange(20), np.diff(A.indptr))
    assert (np.diff(rows * 20 + A.indices) > 0).all()


def test_alone_passes_only_without_connected():
    A = graphs.alone(4)
    graphs.check_weights(A, connected=False)
    with pytest.raises(BadGraph, match="4 parts"):
        graphs.check_weights(A)
    graphs.check_weights(graphs.alone(1))  # one node agrees with itself


def test_uniform_is_doubly_stochastic_only_on_regular_graphs():
    graphs.check_weights(graphs.uniform(graphs.ring(6)))
    with pytest.raises(BadGraph, match=r"column 0 .* not 1: use Metropolis"):
        graphs.check_weights(graphs.uniform(graphs.star(6)))
    graphs.check_weights(graphs.uniform(graphs.star(6)), doubly=False)


@pytest.mark.parametrize(
    ("A", "message"),
    [
        (np.ones((2, 3)), "square matrix"),
        (np.ones(3), "square matrix"),
        (np.ones((0, 0)), "square matrix"),
        ([[0.5, 0.5], [0.5, np.nan]], r"entry \(1, 1\) is nan"),
        ([[1.5, -0.5], [-0.5, 1.5]], r"entry \(0, 1\) is -0.5"),
        ([[0.5, 0.5], [0.5, 0.6]], "row 1 of the weights sums to 1.1"),
        ([[0.0, 1.0], [1.0, 0.0]], "only swap"),
        (np.roll(np.eye(5), 1, axis=1), "only swap"),
        (np.kron(np.eye(2), np.full((2, 2), 0.5)), "nodes 0 and 2"),
    ],
)
def test_check_weights_says_what_is_wrong(A, message):
    with pytest.raises(BadGraph, match=message):
        graphs.check_weights(A)


def test_check_weights_accepts_what_agrees():
    no_self = (np.ones((3, 3)) - np.eye(3)) / 2  # zero diagonal, and yet not periodic
    assert graphs.check_weights(no_self).nnz == 6
    one_way = (np.eye(4) + np.roll(np.eye(4), 1, axis=1)) / 2  # not symmetric
    graphs.check_weights(one_way)
    stored = csr_array(([0.5, 0.5, 0.5, 0.5], ([0, 0, 1, 1], [1, 0, 1, 0])), shape=(2, 2))
    before = stored.copy()
    graphs.check_weights(stored)
    assert (stored != before).nnz == 0


def test_stored_zeros_are_no_links():
    A = csr_array(([1.0, 0.0, 0.0, 1.0], ([0, 0, 1, 1], [0, 1, 0, 1])), shape=(2, 2))
    with pytest.raises(BadGraph, match="2 parts"):
        graphs.check_weights(A)


def test_recipe():
    recipe = graphs.GraphRecipe("random", 12, params={"p": 0.3})
    np.testing.assert_array_equal(
        recipe.draw(5).toarray(), graphs.metropolis(recipe.graph(5)).toarray()
    )
    assert (recipe.draw(5) != recipe.draw(6)).nnz > 0
    assert (recipe.draw(5) != recipe.draw(5)).nnz == 0
    assert graphs.GraphRecipe("ring", 4, rule="alone").draw(0).nnz == 4
    assert recipe == graphs.GraphRecipe("random", 12, params={"p": 0.3})
    hash(recipe)


# --- facts ------------------------------------------------------------------------------


def test_facts_of_a_ring():
    K = 12
    found = graphs.describe(graphs.ring(K))
    assert (found.K, found.edges, found.mean_degree, found.diameter) == (K, K, 2.0, 6)
    assert found.algebraic_connectivity == pytest.approx(2 - 2 * math.cos(2 * math.pi / K))
    assert found.lambda_2 == pytest.approx((1 + 2 * math.cos(2 * math.pi / K)) / 3)
    assert found.gap == pytest.approx(1 - found.lambda_2)


def test_facts_of_weights_and_of_graphs_in_pieces():
    g = graphs.random_connected(15, seed=2)
    assert graphs.describe(graphs.metropolis(g)) == graphs.describe(g)
    apart = graphs.describe(nx.Graph([(0, 1), (2, 3)]))
    assert (apart.algebraic_connectivity, apart.lambda_2) == (0.0, 1.0)
    assert "2 separate parts" in apart.note
    assert graphs.describe(graphs.alone(3)).gap == 0
    assert graphs.describe(graphs.complete(1)).gap == 1
    one_way = (np.eye(4) + np.roll(np.eye(4), 1, axis=1)) / 2
    assert graphs.describe(one_way).lambda_2 == pytest.approx(math.sqrt(0.5))


def test_lambda_2_is_a_modulus():
    swap = [[0.05, 0.95], [0.95, 0.05]]
    assert graphs.describe(swap).lambda_2 == pytest.approx(0.9)


@pytest.mark.parametrize("name", ["ring", "grid", "random", "star", "small-world"])
@pytest.mark.parametrize("rule", ["metropolis", "uniform"])
def test_sparse_eigenvalues_equal_dense_ones(name, rule, monkeypatch):
    A = graphs.weights(graphs.build(name, 200, seed=1), rule)
    dense = graphs.describe(A)
    monkeypatch.setattr(facts, "DENSE_UP_TO", 10)
    sparse = graphs.describe(A)
    assert sparse.note == ""
    assert sparse.algebraic_connectivity == pytest.approx(dense.algebraic_connectivity, rel=1e-6)
    assert sparse.gap == pytest.approx(dense.gap, rel=1e-5)


def test_sparse_modulus_of_a_negative_eigenvalue(monkeypatch):
    monkeypatch.setattr(facts, "DENSE_UP_TO", 10)
    K = 100
    swap = 0.01 * np.eye(2 * K) + 0.99 / K * np.kron([[0, 1], [1, 0]], np.ones((K, K)))
    assert graphs.describe(swap).lambda_2 == pytest.approx(0.98)


def test_what_does_not_converge_is_none_with_a_reason(monkeypatch):
    monkeypatch.setattr(facts, "DENSE_UP_TO", 10)
    monkeypatch.setattr(facts, "LANCZOS_RESTARTS", 1)
    monkeypatch.setattr(facts, "_by_factorisation", facts._by_products)
    found = graphs.describe(graphs.ring(2000))
    assert found.lambda_2 is None
    assert found.gap is None
    assert "2000 nodes" in found.note


# --- large ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ring", "geometric", "random"])
def test_tens_of_thousands_of_nodes(name):
    K = 30_000  # whose full matrix would take 7 GB
    params = {"p": 1.5 * math.log(K) / K} if name == "random" else {}
    g = graphs.build(name, K, seed=1, **params)
    A = graphs.check_weights(graphs.weights(g))
    assert A.shape == (K, K)
    assert A.nnz == K + 2 * g.number_of_edges()


def test_the_eigenvalue_of_a_long_ring_takes_the_factorisation(monkeypatch):
    K = 30_000
    monkeypatch.setattr(facts, "LANCZOS_RESTARTS", 8)
    found = graphs.describe(graphs.ring(K))
    expected = 4 * math.sin(math.pi / K) ** 2
    assert found.algebraic_connectivity == pytest.approx(expected, rel=1e-4)
    assert found.gap == pytest.approx(expected / 3, rel=1e-4)


def test_import_is_light():
    code = (
        "import sys, dokl.network.graphs, dokl.simulation.streams\n"
        "heavy = {'networkx', 'scipy', 'rich', 'sklearn'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_nodes_without_links_keep_everything():
    g = nx.empty_graph(3)
    for rule in graphs.RULES:
        np.testing.assert_array_equal(graphs.weights(g, rule).toarray(), np.eye(3))
