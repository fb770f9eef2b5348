"""What the pages show is run; what they say of names, commands and engines is true."""

import ast
import importlib
import math
import re
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import yaml

import dokl
from dokl import graphs, losses
from dokl.learning.experts.kinds import for_numbers
from dokl.learning.features import VARIANTS, sample
from dokl.learning.schedules import constant
from dokl.network.exchange import Exchange
from dokl.simulation.diffusion import Problem, init
from dokl.simulation.engines import ENGINES
from dokl.simulation.methods import gradient

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "tools"))
pages = importlib.import_module("pages")
cli_page = importlib.import_module("cli_page")
states_page = importlib.import_module("states_page")
architecture = importlib.import_module("architecture")


# Pages that learn several models: README and the other guides are always run.
SLOW = [
    f"docs/{name}.md"
    for name in (
        *("guides/agent-http", "guides/frames", "guides/researcher", "guides/serve"),
        *("guides/stream", "guides/time", "index", "planning", "theory", "tour", "when-not"),
    )
]


def named_pages():
    for page in pages.all_pages():
        name = page.relative_to(ROOT).as_posix()
        yield pytest.param(page, id=name, marks=[pytest.mark.slow] if name in SLOW else [])


@pytest.mark.parametrize("page", list(named_pages()))
def test_page_runs_as_shown(page, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    pages.run(page, tmp_path)
    for picture in pages.pictures(page):
        assert (tmp_path / picture).exists(), f"{page.name} shows {picture} and does not draw it"


def test_a_wrong_output_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n")
    with pytest.raises(AssertionError, match="line 2: the page says"):
        pages.run(page, tmp_path)


def test_a_failing_command_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```sh\ndokl inspect nothing.dokl\n```\n")
    with pytest.raises(RuntimeError, match=r"exit code 1\ndokl: nothing\.dokl"):
        pages.run(page, tmp_path)


def test_readme_commands_run(tmp_path, monkeypatch, short_searches):
    """On the tour's data; but for bench and plan, which take longer and have their own tests."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    making = next(pages.blocks((DOCS / "tour.md").read_text("utf-8").split("## Some data")[1]))
    exec(making.code, {})
    named = {"readings.csv": "readings.csv", "new.csv": "later.csv", "more.csv": "later.csv"}
    for path, name in named.items():
        Path(path).write_text("\n".join(Path(name).read_text().splitlines()[:400]) + "\n")
    text = (ROOT / "README.md").read_text("utf-8")
    commands = re.findall(r"^    (dokl (?!bench|plan).*?)(?: +#.*)?$", text, re.M)
    assert len(commands) > 4
    for command in commands:
        pages.run_command(command)


def test_pictures_are_those_shown():
    shown = {name for page in pages.all_pages() for name in pages.pictures(page)}
    assert shown == {path.name for path in (DOCS / "pictures").iterdir()}, "run make docs"


def test_command_line_page_is_up_to_date():
    assert (DOCS / "cli.md").read_text("utf-8") == cli_page.page(), "run make docs"


def test_states_of_the_protocol_are_those_of_its_tables():
    text = states_page.PAGE.read_text("utf-8")
    assert text == states_page.page(text), "run make docs"
    assert states_page.PICTURE.read_text("utf-8") == states_page.picture(), "run make docs"


def test_architecture_is_drawn_as_it_is_checked():
    assert set(architecture.ABOUT) == set(architecture.rooms())
    assert architecture.PICTURE.read_text("utf-8") == architecture.picture(), "run make docs"


def test_every_engine_is_in_its_guide():
    text = (DOCS / "engines.md").read_text("utf-8")
    assert set(re.findall(r'^\| `"(\w+)"` \|', text, re.M)) == set(ENGINES)


def test_every_expert_is_in_the_table():
    text = (DOCS / "learning.md").read_text("utf-8").split("## Experts instead of settings")[1]
    rows = re.findall(r"^\| (\w.*) \| (.*) \| (.*: \d.*) \|$", text, re.M)
    kernels = {"Gaussian": "gaussian", "Matérn 3/2": "matern32"}
    listed = {
        (
            name.split()[0].strip(","),
            kernels[kernel],
            "ranks" in name,
            *each.replace(",", "").split(": "),
        )
        for name, kernel, experts in rows
        for each in experts.split("; ")
    }
    names = {"learned": "learned", 1.0: "median", 2.0: "twice"}
    there = {
        (names[kind.map], kind.kernel, kind.ranked, memory, str(kind.width or 1000))
        for kind in for_numbers()
        for memory in ["all" if kind.memory == math.inf else f"{kind.memory}"]
    }
    assert listed == there


def test_rooms_are_those_that_are_checked():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    checked = contracts["contracts"][0]["layers"]
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8").split("## Nine rooms")[1]
    drawn = re.findall(r"^(\w+) {2,}\w", text.split("```")[1], re.M)
    assert drawn == checked[::-1]
    assert set(drawn) == {path.parent.name for path in (ROOT / "src/dokl").glob("*/__init__.py")}
    deep = (ROOT / "src/dokl").glob("*/*/*/*.py")
    assert list(deep) == [], "a path is dokl/room/part/file.py at most"


# --- links ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"])
def test_links_lead_somewhere(name):
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / name).read_text("utf-8")):
        assert link.startswith("https://") or (ROOT / link).exists(), link


# --- notation ---------------------------------------------------------------------------------


def identifiers():
    """Every name that the package defines, takes or sets."""
    found = set()
    for path in (ROOT / "src" / "dokl").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            for kind in ("name", "arg", "attr", "id"):
                found.add(getattr(node, kind, None))
    return found


def test_notation_names_exist():
    rows = re.findall(r"^\| (.+?) \| (.*?) \|", (DOCS / "notation.md").read_text("utf-8"), re.M)
    named = [name for _, names in rows for name in re.findall(r"`([\w.]+)", names)]
    assert len(named) > 20
    missing = {part for name in named for part in name.split(".")} - identifiers()
    assert not missing


def test_notation_shapes_and_signs():
    K, m, d, D = 4, 2, 3, 10
    features = sample(dokl.Gaussian(0.7), d, D, seed=1)
    exchange = Exchange(graphs.metropolis(graphs.ring(K)), intercept=2.0)
    state = init(Problem(features, gradient(losses.squared(), constant(0.1))), exchange, K, m)
    assert state.theta.shape == (K, m, D)
    assert state.bias.shape == (K, m)
    assert features.omega.shape == (d, features.n_frequencies)
    assert features.phases.shape == (features.n_frequencies,)
    np.testing.assert_allclose(features.omega_turns() * 2 * np.pi, features.omega)
    z = np.sqrt(2 / D) * np.cos(features.omega.T @ np.ones(d) + features.phases)
    np.testing.assert_allclose(features.transform(np.ones((1, d)))[0], z)


def test_notation_numbers():
    gamma, x = 1 / (2 * 0.7**2), np.array([0.3, -0.4])
    assert dokl.Gaussian(0.7)(x) == pytest.approx(np.exp(-gamma * x @ x))
    assert losses.squared().value(3.0, 1.0) == 2.0  # e^2 / 2
    assert losses.squared().slope(3.0, 1.0) == -2.0
    sup = {name: sample(dokl.Gaussian(1.0), 2, 4, name).sup_norm2 for name in VARIANTS}
    assert sup == {name: 2.0 if name == "cos" else 1.0 for name in VARIANTS}
    assert graphs.metropolis(graphs.ring(4)).toarray()[0, 1] == pytest.approx(1 / 3)  # k in N_k


# --- API --------------------------------------------------------------------------------------


def documented():
    """{module: names} of the API pages."""
    found = {}
    for path in (DOCS / "api").glob("*.md"):
        text = path.read_text("utf-8")
        for module, options in re.findall(r"^::: ([\w.]+)\n((?:    .*\n)*)", text, re.M):
            names = yaml.safe_load(options) if options else {}
            members = names.get("options", {}).get("members") if names else None
            found[module] = members or getattr(importlib.import_module(module), "__all__", [])
    return found


def test_api_names_exist():
    for module, names in documented().items():
        there = importlib.import_module(module)
        assert [name for name in names if not hasattr(there, name)] == [], module


def test_everything_in_dokl_is_documented():
    names = {name for members in documented().values() for name in members}
    modules = {name for name, home in dokl._MODULES.items() if f"dokl.{home}" in documented()}
    internal = {"__version__", "arrays", "random_numbers"}
    assert set(dokl.__all__) - names - modules - internal == set()


# --- the site ---------------------------------------------------------------------------------


class References(HTMLParser):
    """What a page loads by itself, and what it links to."""

    def __init__(self, text):
        super().__init__()
        self.loaded, self.linked = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        for key in ("src", "href", "srcset", "data", "poster", "action"):
            if found.get(key):
                (self.linked if tag in ("a", "form") else self.loaded).append(found[key])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_site_loads_nothing_from_elsewhere(site):
    found = sorted(site.rglob("*.html"))
    assert len(found) > 20
    for page in found:
        for reference in References(page.read_text("utf-8")).loaded:
            assert not re.match(r"\w+:|//", reference) or reference.startswith("data:"), reference
            place = reference.split("?")[0].split("#")[0]
            assert page.name == "404.html" or (page.parent / place).exists(), reference
    for sheet in site.rglob("*.css"):
        assert not re.search(r"@import|url\(['\"]?(https?:|//)", sheet.read_text("utf-8")), sheet


@pytest.mark.slow
def test_site_links_lead_somewhere(site):
    for page in site.rglob("*.html"):
        if page.name == "404.html":
            continue
        for link in References(page.read_text("utf-8")).linked:
            place, _, anchor = link.partition("#")
            if re.match(r"\w+:", link):
                assert link.startswith("https://"), link
                continue
            there = page.parent / place if place else page
            assert there.exists(), f"{page.name}: {link}"
            if anchor and not anchor.startswith("__"):
                assert f'id="{anchor}"' in there.read_text("utf-8"), f"{page.name}: {link}"
