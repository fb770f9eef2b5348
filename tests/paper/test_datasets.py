import gzip
import hashlib
import io
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import issparse

from data_files import A9A, BANANA, WAVE, beijing_archive, idx, lzw, zipped
from dokl import datasets
from dokl.base.errors import BadInput, UnknownName
from dokl.paper.datasets import breiman, files, parse, unpack
from dokl.paper.datasets.files import FILES, DataFile, Download

REAL = Path(__file__).parents[3] / "shared" / "data"
needs_real = pytest.mark.skipif(
    not (REAL / "a9a.gz").is_file(), reason="the real data files are not in ../shared/data"
)

# --- folders, cache, the public ------------------------------------------------------------


def sha(raw):
    return hashlib.sha256(raw).hexdigest()


def as_file(name, content, *sources):
    return DataFile(name, sha(gzip.compress(content, mtime=7)), sha(content), tuple(sources))


@pytest.fixture
def small(monkeypatch, tmp_path):
    """FILES with the small files' hashes, and a cache of its own; returns the contents."""
    rng = np.random.default_rng(1)
    images, labels = rng.integers(0, 256, (5, 2, 2)), np.array([8, 0, 3, 8, 9])
    contents = {
        "adult": A9A,
        "banana": (unpack.banana_csv(BANANA),),
        "waveform": (unpack.waveform_csv(WAVE),),
        "mnist": (idx(images), idx(labels), idx(images[:2]), idx(labels[:2])),
        "beijing": (unpack.beijing_zip(beijing_archive()),),
    }
    for name, parts in contents.items():
        known = tuple(as_file(f.name, c) for f, c in zip(FILES[name], parts, strict=True))
        monkeypatch.setitem(FILES, name, known)
    monkeypatch.delenv("DOKL_DATA", raising=False)
    monkeypatch.setattr(files, "cache_folder", lambda: tmp_path / "cache")
    return contents


@pytest.fixture
def folder(small, tmp_path):
    """A folder with the small files, packed."""
    for name, parts in small.items():
        for file, content in zip(FILES[name], parts, strict=True):
            (tmp_path / file.name).write_bytes(gzip.compress(content, mtime=7))
    return tmp_path


def test_every_set_from_a_folder(folder):
    adult = datasets.load("adult", folder)
    assert issparse(adult.X)
    assert adult.X.shape == (2, 123)
    assert adult.X_test.shape == (1, 123)
    np.testing.assert_array_equal(adult.X.toarray()[0].nonzero()[0], [2, 10, 122])
    np.testing.assert_array_equal(adult.y, [-1, 1])
    banana = datasets.load("banana", str(folder))
    np.testing.assert_array_equal(banana.X, [[1.617466, -0.919233], [0.5, 0.25], [0, 1]])
    np.testing.assert_array_equal(banana.y, [-1, 1, -1])
    waveform = datasets.load("waveform", folder)
    np.testing.assert_array_equal(waveform.y, [-1, 1, -1, -1, 1, -1])
    mnist = datasets.load("mnist", folder)
    assert mnist.X.shape == (5, 4)
    assert mnist.X.dtype == np.float32
    assert 0 <= mnist.X.min() < mnist.X.max() <= 1
    np.testing.assert_array_equal(mnist.y, [1, -1, -1, 1, -1])
    np.testing.assert_array_equal(mnist.y_test, [1, -1])
    for name in datasets.NAMES:
        data = datasets.load(name, folder)
        assert data.name == name
        assert all([data.description, data.licence, data.source])


def test_waveform_is_standardised(folder):
    csv = unpack.waveform_csv(WAVE)
    raw = np.loadtxt(io.BytesIO(csv), delimiter=",", skiprows=1)[:, :21]
    X = datasets.load("waveform", folder).X
    np.testing.assert_allclose(X, (raw - raw.mean(axis=0)) / raw.std(axis=0, ddof=1))


def test_beijing_is_a_table(folder):
    table = datasets.load("beijing", folder)
    assert table.station.tolist() == ["Changping"] * 2 + ["Dongsi"] * 2
    assert table.time[1] == np.datetime64("2016-02-29T23")
    np.testing.assert_array_equal(table.columns["PM2.5"], [4, np.nan, 4, np.nan])
    np.testing.assert_array_equal(table.columns["PM10"], [np.nan, 8.5, np.nan, 8.5])
    assert table.wind.tolist() == ["NNW", "", "NNW", ""]
    assert list(table.columns) == ["PM2.5", "PM10", "WSPM"]
    assert len(table.coordinates) == 12
    one = table.at("Dongsi")
    assert one.coordinates == {"Dongsi": (39.929, 116.417)}
    assert len(one.time) == len(one.wind) == len(one.columns["WSPM"]) == 2
    with pytest.raises(UnknownName, match=r"did you mean 'Dongsi'"):
        table.at("Dong")


def test_folder_in_the_environment(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("DOKL_DATA", str(folder))
    assert datasets.load("banana").X.shape == (3, 2)
    monkeypatch.setenv("DOKL_DATA", str(tmp_path / "elsewhere"))
    assert datasets.load("banana", folder).X.shape == (3, 2)  # the argument goes first
    with pytest.raises(BadInput, match=r"no banana.csv.gz in .*elsewhere"):
        datasets.load("banana")


def test_unpacked_and_repacked_files_will_do(folder):
    packed = folder / "banana.csv.gz"
    content = gzip.decompress(packed.read_bytes())
    packed.write_bytes(gzip.compress(content, 1, mtime=99))
    assert datasets.load("banana", folder).X.shape == (3, 2)
    packed.unlink()
    (folder / "banana.csv").write_bytes(content)
    assert datasets.load("banana", folder).X.shape == (3, 2)


def test_a_missing_file_says_what_to_do(folder):
    file = FILES["adult"][1]
    (folder / file.name).unlink()
    with pytest.raises(BadInput) as caught:
        datasets.load("adult", folder)
    for part in (file.name, file.sha256, file.content, str(folder), "--data-dir", "DOKL_DATA"):
        assert part in str(caught.value)


def test_a_wrong_hash_is_refused_with_both(folder):
    path = folder / "banana.csv.gz"
    for wrong in (gzip.compress(b"x1,x2,y\n1,2,1\n"), b"\x1f\x8b broken", b""):
        path.write_bytes(wrong)
        with pytest.raises(BadInput) as caught:
            datasets.load("banana", folder)
        for part in (str(path), sha(wrong), FILES["banana"][0].sha256):
            assert part in str(caught.value)


def test_unknown_name():
    with pytest.raises(UnknownName, match=r"did you mean 'banana'"):
        datasets.load("bananas")


@pytest.fixture
def server():
    """A web server on this machine: `pages` is what it has, `asked` what it was asked for."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):  # the name that http.server calls
            asked.append(self.path)
            page = pages.get(self.path)
            self.send_response(404 if page is None else 200)
            self.send_header("Content-Length", str(len(page or b"") + (page == b"short")))
            self.end_headers()
            self.wfile.write(page or b"")

        def log_message(self, *args):
            pass

    pages, asked = {}, []
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as web:
        thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{web.server_address[1]}", pages, asked
        web.shutdown()
        thread.join()


def offer(monkeypatch, name, *sources):
    monkeypatch.setitem(
        FILES, name, tuple(DataFile(f.name, f.sha256, f.content, sources) for f in FILES[name])
    )


def test_fetched_once_and_kept(small, server, monkeypatch, tmp_path):
    address, pages, asked = server
    pages["/banana.zip"] = zipped({"banana.all.txt": BANANA})
    broken = Download(address + "/gone", unpack.banana_zip)
    offer(monkeypatch, "banana", broken, Download(address + "/banana.zip", unpack.banana_zip))
    first = datasets.load("banana", show_progress=False)
    again = datasets.load("banana", show_progress=False)
    np.testing.assert_array_equal(first.X, again.X)
    assert asked == ["/gone", "/banana.zip"]
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["banana.csv.gz"]
    (tmp_path / "cache" / "banana.csv.gz").write_bytes(b"damaged")
    datasets.load("banana", show_progress=False)
    assert asked[2:] == ["/gone", "/banana.zip"]


def test_a_cache_that_cannot_be_written_does_no_harm(small, server, monkeypatch, tmp_path):
    address, pages, _ = server
    pages["/banana"] = small["banana"][0]
    (tmp_path / "cache").write_bytes(b"a file where the folder should be")
    offer(monkeypatch, "banana", Download(address + "/banana"))
    assert datasets.load("banana", show_progress=False).X.shape == (3, 2)


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        (None, r"HTTP Error 404"),
        (b"short", r"IncompleteRead|ended after 5 of 6"),
        (b"not a zip archive", r"not a zip file"),
        (zipped({"banana.all.txt": b"1 1:3 2:4 \n"}), r"its sha256 is .*, expected"),
        (zipped({"banana.all.txt": b"1 1:3 \n"}), r"'2'"),
    ],
)
def test_what_the_public_sends_is_checked(small, server, monkeypatch, tmp_path, page, reason):
    address, pages, _ = server
    pages["/banana"] = page
    offer(monkeypatch, "banana", Download(address + "/banana", unpack.banana_zip))
    with pytest.raises(BadInput, match=reason) as caught:
        datasets.load("banana", show_progress=False)
    file = FILES["banana"][0]
    for part in ("could not be fetched", address, file.sha256, "--data-dir", "DOKL_DATA"):
        assert part in str(caught.value)
    assert not (tmp_path / "cache").exists()


def test_fetch_refuses_what_is_not_the_web(server, monkeypatch):
    with pytest.raises(ValueError, match=r"not a web address"):
        files.fetch("file:///etc/hostname", "x")
    address, pages, _ = server
    pages["/large"] = bytes(3000)
    monkeypatch.setattr(unpack, "MOST", 1000)
    with pytest.raises(ValueError, match=r"more than 1000"):
        files.fetch(address + "/large", "x", show_progress=False)


def test_cache_folder_follows_the_system(monkeypatch, tmp_path):
    monkeypatch.setattr(files.sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert files.cache_folder() == tmp_path / "dokl"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert files.cache_folder() == tmp_path / ".cache" / "dokl"
    monkeypatch.setattr(files.sys, "platform", "darwin")
    assert files.cache_folder() == tmp_path / "Library" / "Caches" / "dokl"
    monkeypatch.setattr(files.sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert files.cache_folder() == tmp_path / "local" / "dokl"


def test_every_file_is_known_by_hash_and_address():
    for parts in FILES.values():
        for file in parts:
            assert re.fullmatch(r"[0-9a-f]{64}", file.sha256)
            assert re.fullmatch(r"[0-9a-f]{64}", file.content)
            assert file.sources
            assert all(source.url.startswith("https://") for source in file.sources)


# --- splits --------------------------------------------------------------------------------


def numbered(N, **more):
    return parse.Dataset("numbered", np.arange(float(N))[:, None], np.arange(float(N)), **more)


def test_split_with_the_last_rows_as_test():
    data = numbered(53, last=13)
    X, y, X_test, y_test = datasets.split(data, n_train=13, seed=1)
    np.testing.assert_array_equal(y_test, np.arange(40, 53))
    np.testing.assert_array_equal(X_test[:, 0], y_test)
    np.testing.assert_array_equal(X[:, 0], y)
    assert len(set(y)) == 13
    assert y.max() < 40
    assert not np.array_equal(y, datasets.split(data, n_train=13, seed=2).y_train)
    np.testing.assert_array_equal(y, datasets.split(data, n_train=13, seed=1).y_train)
    assert sorted(datasets.split(data).y_train) == list(range(40))
    with pytest.raises(BadInput, match=r"n_train must be a whole number from 1 to 40, got 41"):
        datasets.split(data, n_train=41)


def test_random_split():
    data = numbered(50)
    parts = datasets.split(data, n_train=13, seed=1)
    assert sorted([*parts.y_train, *parts.y_test]) == list(range(50))
    assert len(parts.y_train) == 13
    assert len(datasets.split(data).y_train) == 40
    fewer = datasets.split(data, n_train=13, n_test=5, seed=1)
    np.testing.assert_array_equal(fewer.y_train, parts.y_train)
    assert len(fewer.y_test) == 5
    assert set(fewer.y_test) <= set(parts.y_test)
    with pytest.raises(BadInput, match=r"from 1 to 49"):
        datasets.split(data, n_train=50)


def test_given_split(folder):
    data = datasets.load("mnist", folder)
    parts = datasets.split(data)
    assert len(parts.y_train) == 5
    np.testing.assert_array_equal(parts.X_test, data.X_test)
    assert datasets.split(data, n_train=2, n_test=1).X_test.shape == (1, 4)
    sparse = datasets.split(datasets.load("adult", folder), n_train=1)
    assert sparse.X_train.shape == (1, 123)


# --- the generator -------------------------------------------------------------------------


def test_waveform_has_the_moments_of_its_formula():
    X, labels = datasets.waveform(60_000, seed=3)
    h = breiman.waves()
    for c, (a, b) in enumerate(breiman.PAIRS):
        rows = X[labels == c]
        assert len(rows) == pytest.approx(20_000, abs=500)
        np.testing.assert_allclose(rows.mean(axis=0), (h[a] + h[b]) / 2, atol=0.06)
        spread = np.outer(h[a] - h[b], h[a] - h[b]) / 12 + np.eye(21)  # var of u is 1/12
        np.testing.assert_allclose(np.cov(rows.T), spread, atol=0.12)
    np.testing.assert_array_equal(X[:5], datasets.waveform(60_000, seed=3)[0][:5])
    assert not np.array_equal(X[:5], datasets.waveform(60_000, seed=4)[0][:5])
    with pytest.raises(BadInput, match=r"n must be"):
        datasets.waveform(0)


# --- the real files ------------------------------------------------------------------------


@needs_real
def test_real_adult():
    data = datasets.load("adult", REAL)
    assert (data.X.shape, data.X_test.shape) == ((32561, 123), (16281, 123))
    assert ((data.y == 1).sum(), (data.y_test == 1).sum()) == (7841, 3846)
    assert set(data.X.data) == {1.0}


@needs_real
def test_real_banana():
    data = datasets.load("banana", REAL)
    assert (data.X.shape, (data.y == 1).sum(), data.last) == ((5300, 2), 2376, 1300)
    np.testing.assert_allclose(data.X.std(axis=0), 1, atol=1e-3)
    # back to the text of the archive, whose hash is known from where it came
    csv = gzip.decompress((REAL / "banana.csv.gz").read_bytes()).decode()
    rows = [line.split(",") for line in csv.splitlines()[1:]]
    text = "".join(f"{y} 1:{a} 2:{b} \n" for a, b, y in rows).encode()
    assert sha(text) == "5b24172636ce705522990516f15cd74e1080429ccdd9b371f3dd83f940273308"
    assert sha(unpack.banana_zip(zipped({"banana.all.txt": text}))) == FILES["banana"][0].content
    parts = datasets.split(data, 1300, seed=1)
    assert (len(parts.y_train), len(parts.y_test)) == (1300, 1300)


@needs_real
def test_real_waveform_is_the_benchmark_and_the_generator():
    data = datasets.load("waveform", REAL)
    assert (data.X.shape, (data.y == 1).sum()) == ((5000, 21), 1647)
    benchmark = np.loadtxt(REAL / "waveform.csv.gz", delimiter=",", skiprows=1)
    ours = np.column_stack([data.X, data.y])
    ordered = [rows[np.lexsort(rows[:, :3].round(4).T)] for rows in (ours, benchmark)]
    np.testing.assert_allclose(*ordered, atol=2e-7)
    uci = np.loadtxt(REAL / "waveform_uci.csv.gz", delimiter=",", skiprows=1)
    X, labels = datasets.waveform(60_000, seed=1)
    for c in range(3):
        real, drawn = uci[uci[:, 21] == c, :21], X[labels == c]
        error = np.sqrt(real.var(axis=0) / len(real))
        assert np.abs((real.mean(axis=0) - drawn.mean(axis=0)) / error).max() < 4.5
        np.testing.assert_allclose(np.cov(real.T), np.cov(drawn.T), atol=0.35)


@needs_real
def test_real_waveform_survives_the_archive():
    csv = gzip.decompress((REAL / "waveform_uci.csv.gz").read_bytes())
    rest = csv[csv.index(b"\n") + 1 :]
    archive = zipped({"waveform.data.Z": lzw(rest)})
    assert sha(unpack.waveform_zip(archive)) == FILES["waveform"][0].content


@needs_real
def test_real_mnist():
    data = datasets.load("mnist", REAL)
    assert (data.X.shape, data.X_test.shape) == ((60000, 784), (10000, 784))
    assert ((data.y == 1).sum(), (data.y_test == 1).sum()) == (5851, 974)
    assert data.X.max() == 1


@needs_real
def test_real_beijing():
    table = datasets.load("beijing", REAL)
    assert len(table.time) == 420768
    assert set(np.unique(table.station)) == set(table.coordinates)
    assert (np.diff(table.at("Gucheng").time) == np.timedelta64(1, "h")).all()
    assert np.isnan(table.columns["PM2.5"]).sum() == 8739
    assert list(table.columns) == [
        "PM2.5", "PM10", "SO2", "NO2", "CO", "O3", "TEMP", "PRES", "DEWP", "RAIN", "WSPM",
    ]  # fmt: skip
