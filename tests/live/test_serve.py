"""One model over HTTP: it predicts and learns as the model itself does."""

import json
import socket
from contextlib import ExitStack

import httpx
import numpy as np
import pytest

import dokl as library
from commands import dokl, fails, readings, train_each
from dokl.base.errors import BadInput
from dokl.live.http.app import serve
from dokl.live.jobs.serve import Serving, made
from dokl.live.jobs.served import RawRows, fresh_copy
from dokl.tables.models import TableModel

pytestmark = pytest.mark.usefixtures("short_searches")

LEARNERS = {
    "gradient": ("--method", "gradient", "--components", "40"),
    "squares": ("-p", "experts=one", "--components", "40"),
    "auto": ("--method", "bank", "--components", "40"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = train_each(tmp_path_factory.mktemp("serve"), LEARNERS, readings(300))
    dokl("train", place / "r.csv", "--target", "y", "--drop", "id", "--drop", "label",
         "--nodes", "place", "--components", "40", "-q", "--model", place / "net.dokl")  # fmt: skip
    return place


class Face:
    """A model served in this process."""

    def __init__(self, path, state=None, learn=True, **how):
        self._stack = ExitStack()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        serving = Serving(path, address, learn, state, **how)
        self.agent = made(serving, self._stack)
        server = serve(self.agent, address)
        server.start()
        self._stack.callback(server.stop)
        self.client = self._stack.enter_context(
            httpx.Client(base_url=server.url, trust_env=False, timeout=30)
        )

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self._stack.close()

    def predict(self, rows, options="", code=200):
        answer = self.client.post(f"/predict{options}", json=rows)
        assert answer.status_code == code, answer.text
        return answer.json()

    def learn(self, rows, code=200, **headers):
        answer = self.client.post("/samples", json=rows, headers=headers)
        assert answer.status_code == code, answer.text
        return answer.json()


def rows_of(columns, *names):
    """Columns as records; NaN is null, as JSON has it."""
    records = []
    for values in zip(*(columns[name] for name in names), strict=True):
        record = dict(zip(names, values, strict=True))
        records.append({k: None if v != v else getattr(v, "item", lambda v=v: v)() for k, v in
                        record.items()})  # fmt: skip
    return records


def stream(n=120, seed=3):
    columns = readings(n, seed)
    columns["a"][::11] = np.nan
    texts = columns["place"].astype(object)
    texts[::13], texts[5::13] = None, "attic"
    return {**columns, "place": texts}


@pytest.mark.parametrize("name", LEARNERS)
def test_numbers_are_predicted_and_learned_as_by_the_model(folder, tmp_path, name):
    path, columns = folder / f"{name}-y.dokl", stream()
    model, inputs = library.load(path), rows_of(columns, "a", "b", "place")
    with Face(path, tmp_path / "state") as face:
        told = face.predict(inputs)["predictions"]
        np.testing.assert_allclose(told, model.predict(columns), rtol=1e-6, atol=1e-6)
        given = rows_of(columns, "a", "b", "place", "y")
        assert face.learn(given[:50])["accepted"] == 50
        assert face.learn(given[50:])["samples"] == len(given)
        model.partial_fit({k: v[:50] for k, v in columns.items()})
        model.partial_fit({k: v[50:] for k, v in columns.items()})
        after = face.predict(inputs)["predictions"]
        np.testing.assert_allclose(after, model.predict(columns), rtol=1e-6, atol=1e-6)
    with Face(path, tmp_path / "state") as face:  # ended in order: from its snapshot
        assert face.predict(inputs)["predictions"] == after
        assert face.client.get("/status").json()["learned"] == len(given)


@pytest.mark.parametrize("name", LEARNERS)
def test_labels_are_predicted_and_learned_as_by_the_model(folder, tmp_path, name):
    path, columns = folder / f"{name}-label.dokl", stream()
    model, inputs = library.load(path), rows_of(columns, "a", "b", "place")
    with Face(path, tmp_path / "state") as face:
        assert face.predict(inputs)["predictions"] == model.predict(columns).tolist()
        face.learn(rows_of(columns, "a", "b", "place", "label"))
        model.partial_fit(columns)
        assert face.predict(inputs)["predictions"] == model.predict(columns).tolist()
        status = face.client.get("/status").json()
    assert status["error"]["kind"] == "mistakes"
    assert 0 <= status["error"]["recent"] <= 1


def test_intervals_and_probabilities_on_request(folder, tmp_path):
    columns = stream(20)
    inputs = rows_of(columns, "a", "b", "place")
    with Face(folder / "auto-y.dokl", learn=False, level=0.8) as face:
        told = face.predict(inputs, "?intervals=true")
        ends = library.load(folder / "auto-y.dokl").predict_interval(columns, 0.8)
        np.testing.assert_allclose((told["lower"], told["upper"]), ends)
        assert told["coverage"] == 0.8
        assert "classifiers" in face.predict(inputs, "?probabilities=true", 422)["error"]
        kinds = {"content-type": "text/csv", "accept": "text/csv"}
        body = b"a,b,place\n1,2,roof\n"
        csv = face.client.post("/predict?intervals=true", content=body, headers=kinds)
        assert csv.text.startswith("prediction,lower,upper\n")
        page = face.client.get("/openapi.json").json()
        names = [given["name"] for given in page["paths"]["/predict"]["post"]["parameters"]]
        assert names == ["scores", "intervals", "probabilities", "remember"]
    with Face(folder / "auto-label.dokl", learn=False) as face:
        told = face.predict(inputs, "?probabilities=true&scores=true")
        assert told["labels"] == ["other", "same"]
        said = library.load(folder / "auto-label.dokl").predict_proba(columns)
        np.testing.assert_allclose(told["probabilities"], said)
        assert "--method bank" in face.predict(inputs, "?intervals=true", 422)["error"]


def test_without_learning_samples_are_refused_and_nothing_is_left(folder):
    path = folder / "auto-y.dokl"
    with Face(path, learn=False) as face:
        message = face.learn([{"a": 1, "b": 2, "place": "roof", "y": 3}], 422)["error"]
        assert "--learn" in message
        assert face.client.get("/healthz").json() == {"ok": True}
        assert "dokl_samples_total 0.0" in face.client.get("/metrics").text
    assert not path.with_suffix(".state").exists()


def test_a_request_is_learned_once_and_bad_rows_not_at_all(folder, tmp_path):
    with Face(folder / "squares-y.dokl", tmp_path / "state") as face:
        row = {"a": 1, "b": 2, "place": "roof", "y": 3}
        key = {"Idempotency-Key": "one"}
        assert not face.learn(row, **key)["repeated"]
        assert face.learn(row, **key)["repeated"]
        assert "not an input" in face.learn({**row, "c": 1}, 422)["error"]
        assert "is not a number" in face.learn({**row, "b": "blue"}, 422)["error"]
        assert face.learn({"id": 7, **row, "y": None})["waiting"] == 1  # its label comes later
        assert face.learn({"id": 7, "y": 2.5})["labelled"] == 1
        assert face.client.get("/status").json()["samples"] == 2


@pytest.mark.parametrize("name", ["squares-y", "auto-label"])
def test_rows_are_predicted_now_and_learned_when_their_target_is_known(folder, tmp_path, name):
    path, columns = folder / f"{name}.dokl", stream(20)
    inputs, target = rows_of(columns, "a", "b", "place"), name.partition("-")[2]
    named = [{"id": i, **row} for i, row in enumerate(inputs)]
    labels = [{"id": i, **row} for i, row in enumerate(rows_of(columns, target))]
    model = library.load(path)
    model.partial_fit({k: v[[3, 1]] for k, v in columns.items()})
    with Face(path, tmp_path / "state") as face:
        plain = face.predict(named)
        assert face.client.get("/status").json()["waiting_labels"] == 0
        assert face.predict(named, "?remember=true") == plain
        assert face.client.get("/status").json()["waiting_labels"] == 20
    with Face(path, tmp_path / "state") as face:  # in the journal, and after a restart
        given = [labels[3], labels[1], {"id": "never", target: labels[0][target]}]
        told = face.client.post("/learn", json=given, headers={"Idempotency-Key": "k"}).json()
        assert (told["labelled"], told["unknown_ids"], told["samples"]) == (2, ["never"], 2)
        again = face.client.post("/learn", json=given, headers={"Idempotency-Key": "k"}).json()
        assert (again["repeated"], again["samples"]) == (True, 2)
        after, said = face.predict(inputs)["predictions"], model.predict(columns)
        if target == "y":
            np.testing.assert_allclose(after, said, rtol=1e-6, atol=1e-6)
        else:
            assert after == said.tolist()
        csv = {"content-type": "text/csv"}
        late = face.client.post("/learn", content=f"id,{target}\n5,{labels[5][target]}\n",
                                headers=csv)  # fmt: skip
        assert late.json()["labelled"] == 1
        assert face.client.delete("/waiting").json() == {"purged": 17}
        gone = face.client.post("/learn", json=labels[7]).json()
        assert (gone["labelled"], gone["expired_ids"], gone["unknown_ids"]) == (0, ["7"], [])
        status = face.client.get("/status").json()
        assert (status["waiting_expired"], status["unknown_labels"]) == (17, 2)


def test_what_cannot_wait_or_be_joined_is_said(folder, tmp_path):
    row = {"a": 1, "b": 2, "place": "roof"}
    with Face(folder / "squares-y.dokl", tmp_path / "state") as face:
        assert "row 1 has no id" in face.predict(row, "?remember=true", 422)["error"]
        twice = [{"id": "n", **row}] * 2
        assert "two rows have the id 'n'" in face.predict(twice, "?remember=true", 422)["error"]
        assert "true or false" in face.predict(row, "?remember=yes", 400)["error"]
        for body in ({**row, "y": 1.0}, {"id": 1, **row}):
            answer = face.client.post("/learn", json=body)
            assert answer.status_code == 422
            assert "rows with inputs to /samples" in answer.json()["error"]
        assert face.client.get("/status").json()["waiting_labels"] == 0
    with Face(folder / "squares-y.dokl", learn=False) as face:
        said = face.predict({"id": "n", **row}, "?remember=true", 422)["error"]
        assert "--learn" in said


def test_a_json_body_has_every_input_as_for_the_model_itself(folder, tmp_path):
    path = folder / "squares-y.dokl"
    with pytest.raises(BadInput, match="'place'"):
        library.load(path).predict([{"a": 1, "b": 2}])
    with Face(path, tmp_path / "state") as face:
        for rows in ({"a": 1, "b": 2}, [{"a": 1, "b": 2}, {"a": 3, "b": None}]):
            said = face.predict(rows, code=422)["error"]
            assert "there is no column 'place'" in said
            assert "null where a value is missing" in said
        assert "'b'" in face.learn({"a": 1, "place": "roof", "y": 3}, 422)["error"]
        assert "'b'" in face.learn({"id": 1, "a": 1, "place": "roof"}, 422)["error"]
        full = {"a": 1, "b": 2, "place": None}
        assert len(face.predict([full, {"a": 1}])["predictions"]) == 2  # a missing value there
        assert face.learn({"id": 1, **full})["waiting"] == 1
        assert face.learn({"id": 1, "y": 2.0})["labelled"] == 1  # a label has no inputs


def test_targets_outside_their_range_are_refused_or_clipped(folder, tmp_path):
    path, row = folder / "squares-y.dokl", {"a": 1, "b": 2, "place": "roof"}
    tally = TableModel.load(path).tally
    far = 100 * np.sqrt(tally.spread / tally.n)
    with Face(path, tmp_path / "state") as face:
        low, high = face.agent.description.inputs.target_range
        np.testing.assert_allclose((low, high), (tally.mean - far, tally.mean + far), rtol=0.01)
        said = face.learn([{**row, "y": 1.0}, {**row, "y": -9999}], 422)["error"]
        assert "row 2, column 'y': -9999.0 is outside" in said
        assert "--target-range" in said
        unknown = face.learn({**row, "z": 1, "y": 1.0}, 422)["error"]
        assert not [word for word in ("description", "[inputs]") if word in said + unknown]
        face.learn({**row, "y": 0.9 * high})
        status = face.client.get("/status").json()
        assert (status["samples"], status["out_of_range"]["columns"]["y"]) == (1, 1)
        assert 'dokl_out_of_range_total{column="y"} 1.0' in face.client.get("/metrics").text
    with Face(path, tmp_path / "b", target_range=(-1.0, 1.0), outside="clip") as face:
        face.learn({**row, "y": 500})
        newest = face.client.get("/status").json()["newest"]["rows"]
        assert newest[-1][1] == 1.0
    with Face(path, tmp_path / "c", target_range=()) as face:
        assert face.learn({**row, "y": 1e6})["accepted"] == 1
    said = dokl("serve", path, "--target-range", "3", code=2).stderr
    assert "not LOW,HIGH" in said


def test_a_folder_that_others_can_write_to_is_no_place_for_a_journal(folder, tmp_path):
    open_ = tmp_path / "open"
    open_.mkdir()
    open_.chmod(0o777)
    said = fails("serve", folder / "squares-y.dokl", "--learn", "--state", open_)
    assert "others can write to it" in said


def test_the_journal_of_another_model_is_refused(folder, tmp_path):
    with Face(folder / "squares-y.dokl", tmp_path / "state"):
        message = fails(
            "serve", folder / "squares-y.dokl", "--learn", "--state", tmp_path / "state"
        )
        assert "has this store open" in message
    message = fails("serve", folder / "gradient-y.dokl", "--learn", "--state", tmp_path / "state")
    assert "this store belongs to" in message


def test_an_estimator_saved_by_itself(tmp_path):
    X = np.random.default_rng(0).normal(size=(200, 2))
    library.save(library.KernelClassifier(random_state=0).fit(X, X[:, 0] > 0), tmp_path / "m.dokl")
    with Face(tmp_path / "m.dokl") as face:
        told = face.predict([{"x1": 2, "x2": 0}, {"x1": -2, "x2": 0}])
        assert told["predictions"] == [True, False]
        assert face.learn({"x1": 0.5, "x2": 1, "y": True})["accepted"] == 1
        assert "no preprocessing" in face.predict([{"x1": 2, "x2": None}], code=422)["error"]


def test_what_cannot_be_served_is_said(folder, tmp_path):
    path = folder / "auto-y.dokl"
    assert "reverse proxy" in fails("serve", path, "--http", "0.0.0.0:8080")
    assert "--learn" in dokl("serve", path, "--save", "x.dokl", code=2).stderr
    for words, remedy in ((("--port", 8000), "127.0.0.1:8000"), (("--host", "::1"), "[::1]:8080")):
        assert f"use --http {remedy}" in dokl("serve", path, *words, code=2).stderr
    assert "its nodes are agents" in fails("serve", folder / "net.dokl", "--learn")
    small = tmp_path / "small.dokl"
    TableModel.load(path).predict_only().save(small)
    assert "predicts only" in fails("serve", small, "--learn")
    with Face(small, learn=False) as face:
        row = {"a": 1, "b": 2, "place": None}
        assert len(face.predict(row, "?intervals=true")["lower"]) == 1


def test_raw_rows_come_back_as_they_went_in():
    rows = RawRows(["a"], {"place": ["cellar", "roof"]})
    texts = np.array(["roof", None, "attic"], object)
    X = rows.transform({"a": np.array([1.5, np.nan, -2.0]), "place": texts})
    assert np.isfinite(X).all()
    back = rows.columns(X)
    np.testing.assert_array_equal(back["a"], [1.5, np.nan, -2.0])
    assert back["place"].tolist()[:2] == ["roof", None]
    assert back["place"][2] not in ("roof", "cellar", None)


def test_a_copy_learns_and_the_other_stays(folder):
    columns = stream()
    for name in LEARNERS:
        model = library.load(folder / f"{name}-y.dokl")
        before = model.predict(columns)
        copy = fresh_copy(model)
        copy.partial_fit(columns)
        np.testing.assert_array_equal(model.predict(columns), before)
        assert np.abs(copy.predict(columns) - before).max() > 0
        assert model.rows_read < copy.rows_read
        assert json.dumps(model.tally.figures()) != json.dumps(copy.tally.figures())


def test_times_and_local_numbers_are_served_as_texts_or_numbers(tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"{1 + i % 28:02}.{1 + i % 12:02}.2024 {i % 24:02}:00;{1000 + i}.5;{rng.normal():.3f}"
            for i in range(120)]  # fmt: skip
    path = tmp_path / "t.csv"
    path.write_text("when;rain;y\n" + "\n".join(rows) + "\n")
    dokl("train", path, "--target", "y", "--model", tmp_path / "t.dokl", *LEARNERS["gradient"])
    model = library.load(tmp_path / "t.dokl")
    wanted = model.predict({"when": ["03.02.2024 05:00"], "rain": [1010.5]})
    with Face(tmp_path / "t.dokl", tmp_path / "state") as face:
        for when in ("03.02.2024 05:00", "2024-02-03T06:00+01:00", 1706936400):
            told = face.predict({"when": when, "rain": 1010.5})["predictions"]
            np.testing.assert_allclose(told, wanted, rtol=1e-6)
        assert "day first" in face.predict({"when": "soon", "rain": 1}, code=422)["error"]
        assert "null" in json.dumps(face.client.get("/openapi.json").json()["components"])
        face.learn({"when": "03.02.2024 05:00", "rain": 1010.5, "y": 9.0})
        learned = face.predict({"when": "03.02.2024 05:00", "rain": None})["predictions"]
    with Face(tmp_path / "t.dokl", tmp_path / "state") as face:  # from the journal
        again = face.predict({"when": "03.02.2024 05:00", "rain": None})["predictions"]
    np.testing.assert_allclose(again, learned, rtol=1e-6)
