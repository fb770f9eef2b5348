"""What `make test-package` and `make test-pythons` do: install what was built, and use it.

python tests/packages.py install     wheel and sdist, each into an empty environment
python tests/packages.py pythons     the core tests on every supported Python that is found
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.11", "3.12", "3.13")
# What needs no optional package but plot, parquet and jax, no data and no network.
CORE = (
    "atomic", "diffusion", "random_numbers", "engines", "estimators", "features", "files", "graphs",
    "kernels", "loading", "losses", "metrics", "preprocess", "progress", "readers", "saving",
    "schedules", "streams",
)  # fmt: skip
NEEDED = ("pytest", "pytest-xdist", "hypothesis", "pandas")
USE = """
import numpy as np, dokl
X = np.random.default_rng(0).normal(size=(2000, 2))
model = dokl.KernelRegressor(random_state=0).fit(X, np.sin(X[:, 0]) * X[:, 1])
assert model.score(X, np.sin(X[:, 0]) * X[:, 1]) > 0.9
path = dokl.save(model, "model.dokl")
assert (dokl.load(path).predict(X) == model.predict(X)).all()
print("dokl", dokl.__version__, "from", dokl.__file__)
"""


def call(*command, **settings):
    """Run a command, silent unless it fails."""
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), **settings)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def environment():
    """Ours, without what would lead to another environment's packages."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "DOKL_NO_SKIPS")
    kept = {key: value for key, value in os.environ.items() if key not in hidden}
    return {**kept, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # two workers, two cores


def built(pattern):
    """The one file in dist/ of this kind."""
    found = sorted((ROOT / "dist").glob(pattern))
    if len(found) != 1:
        raise SystemExit(f"dist/ has {len(found)} files {pattern}: run make dist")
    return found[0]


def install():
    """Both kinds of file, in a folder where there is no source to import by mistake."""
    for pattern in ("*.whl", "*.tar.gz"):
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            call(sys.executable, "-m", "venv", f"{folder}/venv")
            python, dokl = f"{folder}/venv/bin/python", f"{folder}/venv/bin/dokl"
            call(python, "-m", "pip", "install", "--quiet", built(pattern), cwd=folder)
            version = call(dokl, "--version", cwd=folder).strip()
            call(python, "-c", USE, cwd=folder)
            call(dokl, "inspect", "model.dokl", cwd=folder)
            absent = subprocess.run(
                [dokl, "graph", "ring", "--plot", "ring.png"],
                cwd=folder, env=environment(), capture_output=True, text=True,
            )  # fmt: skip
            assert absent.returncode == 1
            assert "pip install 'dokl[plot]'" in absent.stderr, absent.stderr
            call(python, "-m", "pip", "install", "--quiet", f"{built(pattern)}[plot]", cwd=folder)
            call(dokl, "demo", "--runs", "1", cwd=folder)
            assert Path(folder, "dokl-demo.png").exists()
        print(f"{built(pattern).name}: {version} works, {time.perf_counter() - began:.0f} s")


def interpreter(version):
    """A Python of this version, from PATH or pyenv, that does start; None if there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [*pyenv.glob(f"{version}.*/bin/python"), shutil.which(f"python{version}")]
    for path in filter(None, found):
        asked = [path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        done = subprocess.run(asked, capture_output=True, text=True)
        if done.stdout.strip() == version:
            return path
    return None


def pythons():
    """The installed wheel under the core tests, on each version; environments are kept."""
    failed = []
    for version in VERSIONS:
        base = interpreter(version)
        if base is None:
            print(f"Python {version}: not found, skipped", flush=True)
            continue
        try:
            passed, told = core_tests(base, ROOT / "build" / "pythons" / version)
        except SystemExit as error:
            passed, told = False, str(error)
        print(f"Python {version}: {told}", flush=True)
        failed += [] if passed else [version]
    if failed:
        raise SystemExit(f"failed on {', '.join(failed)}")


def core_tests(base, folder):
    """(whether all passed, what to say) of the core tests on one Python."""
    python = folder / "bin" / "python"
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    if not python.exists():
        call(base, "-m", "venv", folder)
    call(*pip, f"{built('*.whl')}[plot,parquet,jax]", *NEEDED)
    call(*pip, "--force-reinstall", "--no-deps", built("*.whl"))
    tests = [str(next((ROOT / "tests").glob(f"*/test_{name}.py"))) for name in CORE]
    command = [python, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "--no-header"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", *tests],
        cwd=ROOT, env=environment(), capture_output=True, text=True,
    )  # fmt: skip
    passed = done.returncode == 0
    return passed, done.stdout.strip().splitlines()[-1] if passed else done.stdout + done.stderr


if __name__ == "__main__":
    {"install": install, "pythons": pythons}[sys.argv[1]]()
