"""What is fuzzed: functions that make targets which work in a folder; `TARGETS` lists them."""

import gzip
import io
import json
import shutil
import sqlite3
import zipfile
import zlib
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import networkx as nx
import numpy as np
from click.testing import CliRunner
from test_agents_sums import SumsLink

import dokl
from dokl.base import files
from dokl.base.errors import BadInput, DoklError
from dokl.cli import commands
from dokl.live.description import ExchangePolicy, Limits, SensorSource, parse
from dokl.live.description.inspection import layout_problems
from dokl.live.description.text import text
from dokl.live.inputs import Inputs
from dokl.live.protocol.effects import SendHello, SendTheta
from dokl.live.protocol.messages import PIECE, SUMS
from dokl.live.sources.files import read_file
from dokl.live.store import Store, accept_loss, marks, read_offset, read_saved, records
from dokl.live.store.marks import boot_id, mark_path
from dokl.network.sums import origins
from dokl.paper.jobs import simulate
from dokl.tables.models import TableModel
from dokl.tables.readers import Options, open_table
from fake_link import Link, described, rows
from fuzz.mutate import VALUES, change_bytes, change_json, json_bytes
from fuzz.run import LONGEST, Target
from live_networks import small

POLICIES = {
    "push": ExchangePolicy(every_seconds=0.1),
    "pull": ExchangePolicy(mode="pull", every_seconds=0.1),
    "half": ExchangePolicy(every_seconds=0.1, dtype="float16", clip="auto"),
    "lockstep": ExchangePolicy(mode="lockstep", patience_seconds=2.0),
}


# -- messages ----------------------------------------------------------------------------------
def messages(folder):
    """A node among others, of each way of exchanging: bytes of a neighbour, then some time."""
    nodes, seeds = [], []
    links = [Link(described(nx.path_graph(3)), policy) for policy in POLICIES.values()]
    for link in (*links, SumsLink(nx.path_graph(3))):
        _learn(link.start())
        sent = [(who, e.data) for _, who, e in link.log if isinstance(e, SendTheta | SendHello)]
        known = [data for who, data in sent if who == "n00"]
        node = link.nodes["n01"]
        if isinstance(link, SumsLink):
            known += _sums(link)
        nodes.append((node, node.mark(), link.now))
        seeds.append(list({len(data): data for data in known}.values()) + known[-3:])

    def make(rng):
        which = rng.randrange(len(nodes))
        seed = rng.choice(seeds[which])
        if rng.random() < 0.2:
            return bytes([which]) + change_bytes(rng, seed, seeds[which])
        # What has another fingerprint, shape or size is refused at once, and teaches nothing.
        data = seed[:22] + change_bytes(rng, seed[22:], [other[22:] for other in seeds[which]])
        return bytes([which]) + data[: len(seed)].ljust(len(seed), b"\0")

    def read(data):
        which = data[0] % len(nodes) if data else 0
        node, mark, now = nodes[which]
        try:
            node.message("n00", data[1:], now)
            for later in (0.0, 0.5, 5.0):
                node.tick(now + later)
            node.message("n00", data[1:], now + 6.0)
            json.dumps(node.facts(), default=str)
        finally:
            node.back(mark)

    valid = [bytes([i]) + seed for i, known in enumerate(seeds) for seed in known]
    return Target("messages", make, read, valid)


def _learn(link):
    rng = np.random.default_rng(3)
    for name in link.network.names:
        if isinstance(link, SumsLink):
            link.teach(name, 12)
        else:
            link.feed(name, *rows(rng, 12))
    link.run(5)


def _sums(link):
    """Sums of another node, whole and in pieces, as "n00" passes them on."""
    entry = origins.to_bytes(origins.Entry("n02", 500, link.learner.own_sums(
        link.nodes["n02"].state)))  # fmt: skip
    sealed, node = link.roll.seals.seal(entry), link.nodes["n00"]._node
    whole = node.pack_body(SUMS, sealed, link.now)
    return [whole, *(node.pack_body(PIECE, p, link.now) for p in origins.pieces(sealed, 500))]


# -- descriptions ------------------------------------------------------------------------------
def _valid_descriptions():
    network = small()
    inputs = replace(
        network.inputs, numeric=("x1", "x2"), shift=(0.0, 1.0), count=(5.0, 5.0),
        total=(1.0, 2.0), square=(4.0, 9.0), standardise="fixed",
        levels=(("place", ("roof", "yard")),), times=(("when", ("day",), 1.7e9),),
        target_range=(-5.0, 5.0), ranges=((-9.0, 9.0), (0.0, 1.0)), drop=("note",),
    )  # fmt: skip
    sums = replace(
        network, model=replace(network.model, method="squares"),
        sources={"a": SensorSource("mqtt", ("127.0.0.1:1883",), ("lab/+",))},
        routes={"b->a": "127.0.0.1:7100"}, limits=Limits(body_bytes=10_000),
    )  # fmt: skip
    return [text(network), text(replace(network, inputs=inputs)), text(sums)]


RUN = """
[network]
kind = "ring"
nodes = 4
[data]
kind = "example1"
steps = 20
[features]
kernel = "gaussian"
sigma = 1.0
D = 10
[learn]
loss = "squared"
step = 0.5
[run]
runs = 1
"""


def _change_lines(rng, lines):
    """Values of some keys changed, lines deleted, repeated and moved."""
    lines = list(lines)
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(lines))
        key, equals, value = lines[at].partition("=")
        what = rng.randrange(5)
        if what == 0:
            del lines[at]
        elif what == 1:
            lines.insert(rng.randrange(len(lines)), lines[at])
        elif equals and what < 4:
            new = rng.choice(VALUES)
            with suppress(ValueError, UnicodeEncodeError):
                value = json.dumps(new, ensure_ascii=False).encode().decode()
            value = {"null": "nan", "{}": '{ x = "y" }'}.get(value, value)
            lines[at] = f"{key}= {rng.choice((value, f'[{value}]', f'[[{value}, 1]]'))}"
        else:
            changed = change_bytes(rng, lines[at].encode(errors="surrogateescape"))
            lines[at] = changed.decode(errors="surrogateescape")
        lines = lines or [""]
    return lines


def descriptions(folder):
    """The description of a network, read, checked and written again; a file of `dokl run`."""
    seeds = _valid_descriptions()
    raw = [seed.encode() for seed in (*seeds, RUN)]

    def make(rng):
        if rng.random() < 0.3:
            return change_bytes(rng, rng.choice(raw), raw)
        lines = rng.choice((*seeds, RUN)).split("\n")
        return "\n".join(_change_lines(rng, lines)).encode(errors="surrogateescape")

    def read(data):
        path = folder / "lab.toml"
        path.write_bytes(data)
        with suppress(DoklError):
            simulate.load(path)
        loose = None
        with suppress(DoklError):
            loose = dokl.live.description.read(path, strict=False)
        if loose is not None:
            json.dumps(layout_problems(loose))
        network = dokl.live.description.read(path)
        again = parse(text(network), path)
        assert text(again) == text(network), "written and read, it is another network"
        assert again.fingerprint == network.fingerprint
        Inputs(network)
        if network.model.D * network.d < 1e5 and network.model.own_components < 1000:
            network.learner(network.names[0])

    return Target("descriptions", make, read, raw[:-1])


# -- tables ------------------------------------------------------------------------------------
CSV = "a,b,place,when,y\n" + "".join(
    f"{i / 7:.3f},{i % 5},{('roof', 'yard', 'NA')[i % 3]},2024-01-{i + 1:02d} 10:00,{i * 1.5}\n"
    for i in range(25)
)
GERMAN = "a;b;y\n" + "".join(f"1.{i:03d},5;{i} €;{'ja' if i % 2 else 'nein'}\n" for i in range(20))
QUOTED = 'x,"a ""b""",y\n' + "".join(f'{i},"line\nbreak {i}, {i}",{i}%\n' for i in range(10))
BARE = "".join(f"{i}\t{i * i}\t{-i}\n" for i in range(12))
OBJECTS = [{"a": i / 7, "b": i % 5, "place": ("roof", None)[i % 2], "y": i * 1.5}
           for i in range(20)]  # fmt: skip
LINES = "".join(json.dumps(row) + "\n" for row in OBJECTS)
SVM = "".join(f"{'+1' if i % 2 else '-1'} 1:{i / 3:.2f} 4:{i} # note\n" for i in range(12))


def _packed(data, how):
    if how == ".gz":
        return gzip.compress(data, mtime=0)
    if how == ".zip":
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(zipfile.ZipInfo("t.csv"), data)
        return file.getvalue()
    return data


def _tables(name, folder, contents, options):
    """Files with these endings, by all options, as an agent's source, and as requests."""
    inputs, ends = _inputs(), list(contents)

    def make(rng):
        end = rng.randrange(len(ends))
        seeds = contents[ends[end]]
        seed = rng.choice(seeds)
        if ends[end].endswith("json") and rng.random() < 0.5:
            return bytes([end]) + json_bytes(change_json(rng, json.loads(seed)))
        if ends[end].endswith("jsonl") and rng.random() < 0.5:
            found = change_json(rng, [json.loads(line) for line in seed.splitlines()])
            found = found if isinstance(found, list) else [found]
            return bytes([end]) + b"\n".join(map(json_bytes, found))
        tokens = (b"1,5", b"1.234,5", b"$5", b"12%", b"01.02.2024", b"1:2", b"-1:1", b"1:1e999")
        return bytes([end]) + change_bytes(rng, seed, seeds, tokens)

    def read(data):
        end = ends[data[0] % len(ends)] if data else ends[0]
        path, content = folder / f"t{end}", data[1:]
        path.write_bytes(content)
        refused, accepted = None, False
        readers = [partial(_whole, path, each) for each in options]
        bodies = (inputs.from_json, inputs.rows_json, inputs.waiting_json, inputs.from_csv)
        for reader in (*readers, *(partial(body, content) for body in bodies)):
            try:
                reader()
            except BadInput as error:
                _check(str(error))
                refused = refused or error
            else:
                accepted = True
        told = []
        with suppress(BadInput):
            for arrival in read_file(path, inputs, on_bad=lambda *line: told.append(line)):
                assert np.isfinite(arrival.X).all()
        for _, why in told:
            _check(why)
        if refused is not None and not accepted:
            raise refused

    valid = [bytes([i]) + seed for i, end in enumerate(ends) for seed in contents[end]]
    return Target(name, make, read, valid)


def _whole(path, options):
    with open_table(path, options) as reader:
        for chunk in reader:
            assert all(len(column) == chunk.n for column in chunk.columns.values())


def _check(message):
    assert "\n" not in message, "more than one line"
    assert len(message) <= LONGEST, "a message without end"


def _inputs():
    network = small()
    agreed = replace(
        network.inputs, numeric=("a", "b"), shift=(0.0,) * 2, count=(0.0,) * 2,
        total=(0.0,) * 2, square=(0.0,) * 2, levels=(("place", ("roof", "yard")),),
        drop=("when",),
    )  # fmt: skip
    return Inputs(replace(network, inputs=agreed))


def csv(folder):
    """Delimited text and LIBSVM, plain and packed."""
    plain = [each.encode() for each in (CSV, GERMAN, QUOTED, BARE)]
    contents = {".csv": plain, ".tsv": plain, ".svm": [SVM.encode()], "": [*plain, SVM.encode()]}
    contents |= {f".csv{how}": [_packed(each, how) for each in plain] for how in (".gz", ".zip")}
    options = (Options(), Options(chunk=4), Options(text="a", decimal=","),
               Options(header=False, dates="dmy"), Options(numeric="y"))  # fmt: skip
    return _tables("csv", folder, contents, options)


def json_files(folder):
    """JSON: arrays and lines, bodies of requests, rows of a source."""
    whole = [json_bytes(OBJECTS), json_bytes({"rows": OBJECTS[:4]}), json_bytes(OBJECTS[0]),
             json_bytes({"columns": ["a", "b", "place", "y"], "data": [[1, 2, "roof", 3]]}),
             json_bytes([{**OBJECTS[1], "id": "7", "y": None}])]  # fmt: skip
    contents = {".json": whole, ".jsonl": [LINES.encode()], "": [*whole, LINES.encode()]}
    return _tables("json", folder, contents, (Options(), Options(chunk=3), Options(text="b")))


def train(folder):
    """`dokl train` on damaged files, then `dokl predict` and `dokl evaluate` with its model."""
    seeds = [each.encode() for each in (CSV, GERMAN, QUOTED)]
    quick = ("--method", "gradient", "--components", "8", "--quiet")
    ways = (quick, (*quick, "--skip-bad"), (*quick, "--passes", "2"),
            (*quick, "--task", "classification"))  # fmt: skip

    def make(rng):
        return bytes([rng.randrange(len(ways))]) + change_bytes(rng, rng.choice(seeds), seeds)

    def read(data):
        path, model = folder / "t.csv", folder / "t.dokl"
        path.write_bytes(data[1:])
        model.unlink(missing_ok=True)
        way = ways[data[0] % len(ways)] if data else quick
        if _command("train", path, "--target", "y", "--model", model, *way) == 0:
            _command("predict", model, path)
            _command("evaluate", model, path, "--json")

    return Target("train", make, read, [b"\0" + seed for seed in seeds])


def _command(*words):
    """The exit code of a command, which refuses with one line."""
    result = CliRunner().invoke(commands, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code in (0, 1, 2), result.output[-500:]
    if result.exit_code == 1:
        said = result.stderr.strip().splitlines()
        assert said, "it says nothing"
        assert said[-1].startswith("dokl: "), said
    return result.exit_code


# -- model files -------------------------------------------------------------------------------
def _models():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y, sides = X[:, 0] * X[:, 1], np.where(X[:, 0] > 0, "a", "b")
    less = {"n_components": 8, "random_state": 0}
    auto = dokl.AutoRegressor(**less, experts="one").partial_fit(X, y)
    yield auto
    yield TableModel(auto, None, "y", None, 60, 1)
    yield dokl.AutoClassifier(**less, experts="one").partial_fit(X, sides, classes=["a", "b"])
    yield dokl.AutoRegressor(**less).partial_fit(X[:20], y[:20])
    yield dokl.KernelRegressor(**less).partial_fit(X, y)
    yield dokl.KernelClassifier(**less, intercept=True).partial_fit(X, sides, classes=["a", "b"])
    yield dokl.DiffusionRegressor("ring", n_nodes=3, **less).partial_fit(X, y)
    yield dokl.NetworkRegressor("complete", n_nodes=2, share="rows", **less).partial_fit(X, y)
    yield dokl.RandomFeatures(**less).fit(X)


def models(folder):
    """Model files: damaged bytes; and other content under a checksum that is right."""
    golden = Path(__file__).parents[1] / "golden"
    paths = [dokl.save(model, folder / f"{i}.dokl") for i, model in enumerate(_models())]
    paths += sorted([*golden.glob("*.safetensors"), *golden.glob("*.dokl")])
    seeds = [Path(path).read_bytes() for path in paths]

    def make(rng):
        seed = rng.choice(seeds)
        if rng.random() < 0.15:
            return change_bytes(rng, seed, seeds[:3])
        meta, arrays = files.from_bytes(seed)
        if rng.random() < 0.75:
            meta = change_json(rng, meta)
        else:
            arrays = _change_arrays(rng, arrays)
        try:
            return files.to_bytes("model", meta, arrays)
        except (DoklError, TypeError, ValueError, UnicodeError):
            return change_bytes(rng, seed)

    def read(data):
        path = folder / "model.dokl"
        path.write_bytes(data)
        try:
            model = TableModel.load(path)
        except DoklError:
            model = dokl.load(path)
        again = folder / "again.dokl"
        with suppress(DoklError):
            dokl.save(model, again)
            dokl.load(again)

    return Target("models", make, read, seeds)


def _change_arrays(rng, arrays):
    """Some arrays of other sizes, types, names and numbers."""
    arrays = dict(arrays)
    for _ in range(rng.choice((1, 1, 2))):
        if not arrays:
            break
        name = rng.choice(sorted(arrays))
        array = np.array(arrays[name])
        what = rng.randrange(7)
        if what == 0:
            del arrays[name]
        elif what == 1:
            arrays[name] = array[..., None]
        elif what == 2:
            arrays[name] = array.reshape(-1)[: max(0, array.size - 1)]
        elif what == 3 and array.size and array.dtype.kind in "iuf":
            value = rng.choice((0, 1, -1, 2**31 - 1, 100))
            value = rng.choice((value, np.nan, np.inf, 1e300)) if array.dtype.kind == "f" else value
            with np.errstate(all="ignore"):
                array.reshape(-1)[rng.randrange(array.size)] = np.array(value).astype(array.dtype)
            arrays[name] = array
        elif what == 4 and array.dtype.kind in "iuf":
            with np.errstate(all="ignore"):
                kind = rng.choice(("f4", "i8", "u1", "f8"))
                arrays[name] = np.nan_to_num(np.asarray(array, "f8")).astype(kind)
        elif what == 5:
            arrays[rng.choice(("x", "state.theta", "classes"))] = arrays.pop(name)
        else:
            arrays[name] = np.zeros(rng.choice(((), (0,), (0, 3), (2, 2))))
        if not arrays:
            break
    return arrays


# -- journals ----------------------------------------------------------------------------------
IDENTITY = {"name": "a", "fingerprint": "0123456789abcdef", "m": 1, "D": 20, "d": 2}
LIMITS = Limits(keys=5, waiting_labels=10)
CRC = {"samples": "rows", "snapshot": "packed"}


def _journal(folder):
    """(mark, database, learner): a store with something in every table."""
    learner = described().learner()
    path = folder / "a.db"
    rng = np.random.default_rng(0)
    state, _ = learner.learn(learner.start(), *rows(rng, 10))
    store = Store.open(path, IDENTITY, "process", LIMITS, 1)
    with store.transaction() as change:
        change.samples(*rows(rng, 10))
        change.snapshot(learner.pack(state), 10)
        change.sealed(10, b"sums that were sealed")
    for i in range(3):
        with store.transaction() as change:
            change.samples(*rows(rng, 4))
            change.key(f"request {i}", "digest", '{"accepted": 4}')
            change.offset("a.csv", {"bytes": i, "inode": 1, "head": [0, 0]})
            change.wait(f"id {i}", np.ones(2))
    store.close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = DELETE")
    db.close()
    mark = mark_path(path).read_text().rpartition(" ")[0].replace(boot_id() or "-", "-")
    return marks._sealed(mark).encode(), path.read_bytes(), learner


def journals(folder):
    """An agent's store: damaged pages, and other values under checksums that are right."""
    mark, database, learner = _journal(folder)

    def make(rng):
        own, data = mark, database
        what = rng.random()
        if what < 0.15:
            own = rng.choice((b"", change_bytes(rng, mark)))
        if 0.1 < what < 0.4:
            data = change_bytes(rng, database)
        elif what >= 0.4:
            data = _change_rows(rng, folder / "made.db", database)
        return len(own).to_bytes(2, "little") + own + data

    def read(data):
        size = int.from_bytes(data[:2], "little")
        shutil.rmtree(folder / "state", ignore_errors=True)
        path = folder / "state" / "a.db"
        path.parent.mkdir(mode=0o700)
        if size:
            mark_path(path).write_bytes(data[2 : 2 + size])
        path.write_bytes(data[2 + size :])
        for look in (_look, _use, _mend):
            with suppress(DoklError):
                look(path, learner)
        _use(path, learner)

    valid = [len(mark).to_bytes(2, "little") + mark + database]
    return Target("journals", make, read, valid)


def _look(path, learner):
    with suppress(DoklError):
        read_offset(path, "a.csv")
    packed, _, batches = read_saved(path, IDENTITY)
    _learned(learner, packed, batches)


def _use(path, learner):
    store = Store.open(path, IDENTITY, "process", LIMITS, 2)
    try:
        for ask in (store.sealed, lambda: store.answer("request 1"), lambda: store.offset("a.csv"),
                    lambda: store.waiting("id 1"), lambda: store.has_expired("id 1"),
                    lambda: store.waiting_since(1e12)):  # fmt: skip
            with suppress(DoklError):
                ask()
        packed, _, batches = store.restore()
        _learned(learner, packed, batches)
        with store.transaction() as change:
            change.samples(*rows(np.random.default_rng(1), 2))
            change.key("another", "digest", "{}")
            change.wait("another", np.zeros(2))
    finally:
        store.close()


def _mend(path, learner):
    accept_loss(path, IDENTITY)
    Store.open(path, IDENTITY, "process", LIMITS, 3).close()


def _learned(learner, packed, batches):
    state = learner.start() if packed is None else learner.unpack(packed)
    for X, Y in batches:
        state, _ = learner.learn(state, X, Y)


def _change_rows(rng, path, database):
    """The database with a cell of a table changed, often with a checksum to match."""
    path.write_bytes(database)
    db = sqlite3.connect(path)
    db.text_factory = lambda data: data.decode(errors="replace")
    table = rng.choice(("about", "samples", "snapshot", "keys", "offsets", "waiting"))
    columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
    found = db.execute(f"SELECT * FROM {table}").fetchall()
    row, column = list(rng.choice(found)), rng.randrange(len(columns) - (table != "about"))
    key, before = row[0], row[column]
    if isinstance(before, bytes | str) and rng.random() < 0.5:
        raw = before if isinstance(before, bytes) else before.encode()
        new = change_bytes(rng, raw)
        row[column] = new if isinstance(before, bytes) else new.decode(errors="replace")
    else:
        row[column] = rng.choice((0, -1, 5, 2**62, 1.5, "", "x", "[]", "{}", "null", b"", b"\0" * 8,
                                  '{"a": 1}', "<f4", "9" * 400))  # fmt: skip
    if table != "about" and rng.random() < 0.8:
        row[-1] = records.seal(*row[:-1])
        if table in CRC:
            blob = row[columns.index(CRC[table])]
            row[-1] = zlib.crc32(blob) if isinstance(blob, bytes) else row[-1]
    with suppress(sqlite3.Error, OverflowError):
        names = ", ".join(f"{name} = ?" for name in columns)
        db.execute(f"UPDATE {table} SET {names} WHERE {columns[0]} = ?", (*row, key))
    db.commit()
    db.close()
    return path.read_bytes()


TARGETS = {
    "messages": messages,
    "descriptions": descriptions,
    "csv": csv,
    "json": json_files,
    "train": train,
    "models": models,
    "journals": journals,
}
