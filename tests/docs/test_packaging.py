"""Wheel and sdist hold what they must, and nothing else."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from importlib.metadata import version
from pathlib import Path, PurePosixPath

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import dokl

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
CACHES = ("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".venv")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """An sdist, and a wheel made from that sdist."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(built):
    (path,) = built.glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def sdist(built):
    """Names in the sdist, below its one folder."""
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = [PurePosixPath(name) for name in archive.getnames()]
    assert {name.parts[0] for name in names} == {f"dokl-{dokl.__version__}"}
    return {str(PurePosixPath(*name.parts[1:])) for name in names}


def source_files():
    """Everything in the package's folder that is not a cache."""
    files = [path for path in (ROOT / "src" / "dokl").rglob("*") if path.is_file()]
    return {
        path.relative_to(ROOT / "src").as_posix()
        for path in files
        if "__pycache__" not in path.parts
    }


def no_caches(names):
    for name in names:
        assert not any(part in CACHES for part in PurePosixPath(name).parts), name
        assert not name.endswith((".pyc", ".nbi", ".nbc", ".so")), name


def test_wheel_is_the_package_and_nothing_else(wheel):
    names = set(wheel.namelist())
    no_caches(names)
    info = f"dokl-{dokl.__version__}.dist-info"
    assert {name for name in names if not name.startswith(info)} == source_files()
    assert "dokl/py.typed" in names
    assert f"{info}/licenses/LICENSE" in names


def test_metadata(wheel):
    info = f"dokl-{dokl.__version__}.dist-info"
    meta = Parser().parsestr(wheel.read(f"{info}/METADATA").decode())
    assert meta["Name"] == "dokl"
    assert meta["Version"] == dokl.__version__ == PROJECT["version"]
    assert meta["License-Expression"] == "BSD-3-Clause"
    assert meta["Requires-Python"] == ">=3.11"
    assert meta["Description-Content-Type"] == "text/markdown"
    assert meta["Summary"].startswith("Distributed online kernel learning")
    assert set(meta.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])
    for extra in ("plot", "parquet", "docs", "dev"):
        assert extra in PROJECT["optional-dependencies"]
    entry = wheel.read(f"{info}/entry_points.txt").decode()
    assert "dokl = dokl.__main__:main" in entry


def test_core_needs_no_extra(wheel):
    core = {name.split(">")[0] for name in PROJECT["dependencies"]}
    assert "matplotlib" not in core
    assert {"numpy", "scipy", "scikit-learn", "numba", "networkx"} <= core


def test_sdist_has_what_building_and_testing_need(sdist):
    no_caches(sdist)
    wanted = {f"src/{name}" for name in source_files()}
    wanted |= {"pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE"}
    wanted |= {"constraints.txt", "SECURITY.md", "CITATION.cff"}
    wanted |= {"Makefile", "mkdocs.yml", "docs/index.md", "tests/naive.py", "tests/conftest.py"}
    assert wanted <= sdist
    tops = {PurePosixPath(name).parts[0] for name in sdist if name != "."}
    assert not tops & {"site", "dist", "build", ".venv", ".git"}


def test_every_command_starts():
    done = subprocess.run(
        [sys.executable, "-c", "from dokl.cli import main; main()", "--version"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == f"dokl, version {dokl.__version__}\n"


@pytest.mark.parametrize("name", ["eclipse-zenoh", "uvicorn", "h11"])
def test_what_is_used_beyond_its_promises_is_bounded(name):
    """A release that changes such parts must not be installed before it was tried here."""
    live = [Requirement(text) for text in PROJECT["optional-dependencies"]["live"]]
    (needed,) = [requirement for requirement in live if requirement.name == name]
    assert any(part.operator == "<" for part in needed.specifier)
    assert version(name) in needed.specifier


# -- versions ----------------------------------------------------------------------------------
# The first version without the newest published advisory, which is named.
SOUND = {
    "click": "8.3.3",  # CVE-2026-7246
    "cryptography": "50.0.0",  # CVE-2026-69247; CVE-2026-69249, CVE-2026-39892 and others before
    "dask": "2026.1.1",  # with distributed
    "distributed": "2026.1.1",  # CVE-2026-23528
    "h11": "0.16.0",  # CVE-2025-43859
    "lightgbm": "4.6.0",  # CVE-2024-43598
    "mkdocs-material": "9.7.7",  # CVE-2026-73295
    "onnx": "1.21.0",  # CVE-2026-27489, CVE-2026-28500, CVE-2026-34445
    "pyarrow": "23.0.1",  # CVE-2026-25087
    "pymdown-extensions": "11.0.1",  # CVE-2026-67422, CVE-2026-61632
    "pytest": "9.0.3",  # CVE-2025-71176
    "scikit-learn": "1.5.0",  # CVE-2024-5206
    "starlette": "1.3.1",  # CVE-2026-54282, CVE-2026-54283; CVE-2026-48710 before
    "amqtt": "0.11.4",  # a denial of service without a number
}


def requirements():
    """Everything that pyproject.toml names, but dokl with its own extras."""
    parts = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    found = [Requirement(text) for part in parts for text in part]
    return [requirement for requirement in found if requirement.name != "dokl"]


def pins():
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]


@pytest.mark.parametrize("name", SOUND)
def test_lower_bounds_admit_no_version_with_a_published_advisory(name):
    named = [requirement for requirement in requirements() if requirement.name == name]
    assert named
    for requirement in named:
        (low,) = [part.version for part in requirement.specifier if part.operator == ">="]
        assert Version(low) >= Version(SOUND[name])


def test_constraints_are_exact_versions_that_the_bounds_allow():
    known = {}
    for line in pins():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+]+", line), line  # no hosts, no paths
        name, _, pinned = line.partition("==")
        known[canonicalize_name(name)] = pinned
    assert len(known) == len(pins())
    assert [*map(str.lower, pins())] == sorted(map(str.lower, pins()))
    for requirement in requirements():
        assert known[canonicalize_name(requirement.name)] in requirement.specifier, requirement
    assert "dokl" not in known


def test_the_image_has_a_base_of_one_version_and_the_constraints():
    text = (ROOT / "examples" / "deploy" / "Dockerfile").read_text("utf-8")
    (base,) = re.findall(r"^FROM (.*)$", text, re.MULTILINE)
    assert re.fullmatch(r"python:3\.1[123]\.\d+-slim-[a-z]+(@sha256:[0-9a-f]{64})?", base)
    assert "--constraint /tmp/constraints.txt" in text


@pytest.mark.skipif(not (ROOT / ".ci").exists(), reason="not in a source distribution")
def test_ci_installs_the_constraints():
    assert 'PIP_CONSTRAINT="$PWD/constraints.txt"' in (ROOT / ".ci" / "run").read_text("utf-8")
