"""A name has one meaning: public classes are found by it, and engines by the name one asks for."""

import ast
from collections import defaultdict
from pathlib import Path

import dokl
from dokl.simulation.engines import ENGINES

ROOT = Path(dokl.__file__).parent
# Names that two classes may have, and why.
SHARED = {
    "AutoClassifier": "River's faces have the names of scikit-learn's, as its users expect",
    "AutoRegressor": "River's faces have the names of scikit-learn's, as its users expect",
    "KernelClassifier": "River's faces have the names of scikit-learn's, as its users expect",
    "KernelRegressor": "River's faces have the names of scikit-learn's, as its users expect",
    "Lags": "River's faces have the names of scikit-learn's, as its users expect",
    "Rows": "X and y of a benchmark, X and y of a file: never met together",
    "Settings": "of a bank of experts, and of `dokl agent`: never met together",
    "Task": "what the benchmarks of engines and those beside other libraries learn",
}


def public_classes():
    """Where classes of each name are defined, at the top of a module."""
    found = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path.relative_to(ROOT).as_posix())
    return found


def test_a_public_class_has_a_name_of_its_own():
    twice = {name: places for name, places in public_classes().items() if len(places) > 1}
    assert {name: places for name, places in twice.items() if name not in SHARED} == {}
    assert set(SHARED) <= set(twice), "a name that nobody shares any more needs no excuse"


def test_an_engine_is_the_file_of_its_name():
    ours = {name: module for name, module in ENGINES.items() if module.startswith("dokl.")}
    assert {"reference", "numba", "jax", "mpi"} <= set(ours)
    for name, module in ours.items():
        assert module in (
            f"dokl.simulation.engines.{name}",
            f"dokl.simulation.engines.{name}_engine",
        )
        assert (ROOT / "simulation" / "engines" / f"{module.rpartition('.')[2]}.py").exists()
