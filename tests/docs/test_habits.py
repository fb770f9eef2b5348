"""What surrounds the code: hooks, workflows, templates and the citation say what the rest says."""

import re
from pathlib import Path

import pytest
import yaml

import dokl

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"


def loaded(path):
    return yaml.safe_load(path.read_text("utf-8"))


def targets():
    """Targets of the Makefile, with the commands below each."""
    text = (ROOT / "Makefile").read_text("utf-8")
    return dict(re.findall(r"^([\w-]+):[^=\n]*\n((?:\t.*\n)*)", text, re.M))


def test_hooks_run_what_make_runs():
    (local,) = loaded(ROOT / ".pre-commit-config.yaml")["repos"]
    assert local["repo"] == "local"  # the environment's own tools: one version everywhere
    commands = "".join(targets()[name] for name in ("lint", "types", "layers"))
    wanted = re.findall(r"\$\(BIN\)/(\S+(?: (?:check|format))?)", commands)
    entries = [hook["entry"].removeprefix(".venv/bin/") for hook in local["hooks"]]
    assert [" ".join(entry.split()[:2]).split(" --")[0] for entry in entries] == wanted


def test_workflows_run_every_part_of_the_check():
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    parts = re.search(r"^parts=\((.+)\)$", script, re.M)[1].split()
    jobs = loaded(GITHUB / "workflows" / "check.yml")["jobs"]
    assert jobs["part"]["strategy"]["matrix"]["part"] == parts
    assert [job["steps"][-1]["run"] for job in jobs.values()] == [
        ".ci/run test",
        ".ci/run ${{ matrix.part }}",
    ]
    assert {"test", *parts} <= set(targets())


@pytest.mark.parametrize("name", ["bug", "idea"])
def test_issue_forms_ask_and_have_distinct_fields(name):
    form = loaded(GITHUB / "ISSUE_TEMPLATE" / f"{name}.yml")
    assert form["name"]
    assert form["description"]
    fields = [part["id"] for part in form["body"] if part["type"] != "markdown"]
    assert len(set(fields)) == len(fields) > 1


def test_citation_is_of_this_version_and_of_the_paper():
    citation = loaded(ROOT / "CITATION.cff")
    assert citation["version"] == dokl.__version__
    assert citation["authors"] == [{"name": "dokl contributors"}]
    (paper,) = citation["references"]
    found = " ".join((ROOT / "README.md").read_text("utf-8").split())
    assert paper["title"] in found
    for author in paper["authors"]:
        assert author["family-names"] in found


def test_the_changelog_begins_with_this_version():
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    first, second = re.findall(r"^## (.+)$", text, re.M)[:2]
    assert re.fullmatch(rf"{re.escape(dokl.__version__)} \((unreleased|\d{{4}}-\d\d-\d\d)\)", first)
    section = text.partition(f"## {first}")[2].partition(f"## {second}")[0]
    words = len(section.split())
    assert words <= 550, f"{words} words are more than a user reads in two minutes"


def test_decisions_are_short_and_listed():
    folder = ROOT / "docs" / "decisions"
    pages = {path.name for path in folder.glob("*.md")} - {"index.md"}
    listed = re.findall(r"\]\(([\w-]+\.md)\)", (folder / "index.md").read_text("utf-8"))
    assert sorted(listed) == sorted(pages)
    for name in pages:
        words = len((folder / name).read_text("utf-8").split())
        assert words <= 250, f"{name} has {words} words; say it in 250"


def test_readme_is_short():
    words = len((ROOT / "README.md").read_text("utf-8").split())
    assert words <= 1200, f"README.md has {words} words: move some into docs/"
