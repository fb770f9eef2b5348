import numpy as np
import pytest
from scipy.sparse import csr_array

from dokl import losses, metrics
from dokl.network.graphs import metropolis, ring

NAN = np.nan
F = np.array([[[1.0], [2.0]], [[NAN], [0.5]], [[NAN], [NAN]]])  # 3 steps, 2 nodes, 1 output
Y = np.array([[[0.0], [2.0]], [[5.0], [1.5]], [[1.0], [1.0]]])


def test_decibels():
    np.testing.assert_allclose(metrics.decibels(np.array([1.0, 0.1, 1e-3])), [0, -10, -30])


def test_squared_errors_leave_out_who_had_no_sample():
    np.testing.assert_allclose(metrics.squared_error(F, Y), [0.5, 1.0, NAN])
    np.testing.assert_allclose(metrics.node_squared_error(F, Y), [[1, 0], [NAN, 1], [NAN, NAN]])


def test_a_target_without_a_prediction_does_not_count_either():
    np.testing.assert_allclose(metrics.squared_error(Y, F), metrics.squared_error(F, Y))


def test_several_outputs_are_averaged():
    f, y = np.array([[[1.0, 3.0]]]), np.array([[[0.0, 0.0]]])
    assert metrics.squared_error(f, y) == [5.0]
    assert metrics.node_squared_error(f, y) == [[5.0]]


def test_mistakes_of_one_output_are_wrong_signs():
    f = np.array([[[0.1], [-0.1], [0.0]], [[-2.0], [NAN], [3.0]]])
    y = np.array([[[1.0], [1.0], [1.0]], [[1.0], [1.0], [-1.0]]])
    # A score of exactly 0 is the first class, as in scikit-learn.
    np.testing.assert_allclose(metrics.mistakes(f, y), [2 / 3, 1.0])


def test_mistakes_of_several_outputs_are_wrong_maxima():
    f = np.array([[[0.1, 0.7, 0.2], [0.9, 0.1, 0.0]], [[NAN] * 3, [0.0, -1.0, -2.0]]])
    y = np.array([[[-1.0, 1, -1], [-1, -1, 1]], [[1, -1, -1], [1, -1, -1]]])
    np.testing.assert_allclose(metrics.mistakes(f, y), [0.5, 0.0])


def test_nobody_there_makes_no_mistake_to_speak_of():
    nobody = np.full((1, 2, 3), NAN)
    assert np.isnan(metrics.mistakes(nobody, nobody)).all()


@pytest.mark.parametrize("name", losses.BUILTIN)
def test_mean_loss_leaves_out_who_had_no_sample(name):
    loss = losses.resolve(name)
    y, f = np.array([[[1.0], [-1.0]], [[1.0], [1.0]]]), np.array([[[0.3], [NAN]], [[0.2], [-0.4]]])
    expected = [loss.value(1.0, 0.3), (loss.value(1.0, 0.2) + loss.value(1.0, -0.4)) / 2]
    np.testing.assert_allclose(metrics.mean_loss(loss.value, f, y), expected)


def test_disagreement_is_the_rms_distance_from_the_mean():
    theta = np.array([[[1.0, 0.0], [0.0, 0.0]], [[-1.0, 0.0], [0.0, 2.0]], [[0.0, 0.0], [0, 1.0]]])
    expected = np.sqrt(((1 + 1) + (1 + 1) + 0) / 3)
    assert metrics.disagreement(theta) == pytest.approx(expected)
    assert metrics.disagreement(np.ones((4, 1, 3))) == 0.0


def test_messages_go_over_links_and_not_to_oneself():
    assert metrics.messages(metropolis(ring(5))) == 10
    assert metrics.messages(csr_array(np.eye(3))) == 0
    no_diagonal = csr_array(np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]))
    assert metrics.messages(no_diagonal) == 3


def test_bytes_follow_the_graph_whose_turn_it_is():
    graphs = [metropolis(ring(5)), csr_array(np.eye(5))]
    sent = metrics.bytes_sent(graphs, np.array([0, 1, 4, 7]), size=100)
    np.testing.assert_array_equal(sent, [1000, 0, 1000, 0])


def test_regret_is_cumulated():
    np.testing.assert_allclose(
        metrics.regret(np.array([3.0, 1.0, 1.0]), np.array([1.0, 1.0, 2.0])), [2, 2, 1]
    )
