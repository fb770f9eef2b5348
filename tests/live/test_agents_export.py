"""What a node by method "squares" has learned, as an ordinary model file."""

import numpy as np
import pytest

import dokl
from dokl.base.errors import BadInput
from dokl.learning import classification
from dokl.live.description import AgreedInputs, ExchangePolicy, Model
from dokl.live.description.text import text
from dokl.live.jobs.agents import identity
from dokl.live.jobs.export import as_model, export, warm_state
from dokl.live.store import Store
from live_networks import small

SQUARES = Model(D=30, method="squares")


def rows(labels):
    X = np.random.default_rng(0).normal(size=(200, 3))
    if not labels:
        return X, np.sin(X[:, :1]) + 3.0
    classes = np.digitize(X[:, 0], [-0.5, 0.5][: len(labels) - 1])
    return X, classification.targets(classes, len(labels)).reshape(200, -1)


@pytest.mark.parametrize("labels", [(), ("dry", "wet"), ("a", "b", "c")])
def test_the_file_predicts_as_the_node_does(tmp_path, labels):
    network = small(model=SQUARES, inputs=AgreedInputs.plain(3, labels=labels))
    learner, (X, Y) = network.learner(), rows(labels)
    state, _ = learner.learn(learner.start(), X, Y)
    path = as_model(network, state).save(tmp_path / "node.dokl")
    asked = np.random.default_rng(1).normal(size=(50, 3))
    wanted = learner.answers(learner.predict(state, asked))
    said = dokl.load(path).predict({f"x{i + 1}": asked[:, i] for i in range(3)})
    if labels:
        assert list(said) == wanted
    else:
        np.testing.assert_allclose(said, wanted, atol=1e-4)


def test_export_reads_the_journal_and_a_model_is_no_start(tmp_path):
    off = ExchangePolicy(mode="off")
    network = small(tmp_path / "lab.toml", links=(("a", "b"),), model=SQUARES, exchange=off)
    network.path.write_text(text(network))
    (tmp_path / "lab.state").mkdir(mode=0o700)
    X, Y = rows(())
    path, how = tmp_path / "lab.state" / "a.db", (network.durability.mode, network.limits)
    store = Store.open(path, identity(network, "a"), *how)
    with store.transaction() as transaction:
        transaction.samples(X, Y)
    store.close()
    told = export(network.path, "a", tmp_path / "a.dokl")
    assert told["learned"] == 200
    said = dokl.load(tmp_path / "a.dokl").predict({f"x{i + 1}": X[:20, i] for i in range(3)})
    assert np.abs(said - Y[:20, 0]).mean() < 0.2
    with pytest.raises(BadInput, match="begins with its own rows"):
        warm_state(network, tmp_path / "a.dokl")
