"""Every command is documented: help, examples that parse, completion, and exit codes."""

import importlib
import re
import shlex
import subprocess
import sys

import click
import pytest
from click.shell_completion import ShellComplete

from commands import dokl
from dokl import graphs, kernels
from dokl.cli import commands
from dokl.learning.columns import MODES
from dokl.learning.features import VARIANTS
from dokl.tables.jobs import output, start
from dokl.tables.readers import FORMATS

NAMES = sorted(commands.commands)
# The package has the commands under these names, which hide the modules.
graph_command, options, train_command = (
    importlib.import_module(f"dokl.cli.{name}") for name in ("graph", "options", "train")
)


def example_lines(name):
    """The examples of a command, as they stand in its help."""
    text = dokl(name, "--help").output.split("Examples:")[1]
    return [line.strip() for line in text.splitlines() if "dokl " in line]


def words_of(line):
    """The arguments of the dokl command in a line of shell, without remark and redirection."""
    command = re.search(r"dokl ([^>|)\"]*)", line).group(1)
    return shlex.split(command.split("  ")[0])


@pytest.mark.parametrize("name", NAMES)
def test_help_describes_the_command_and_every_option(name):
    result = dokl(name, "--help")
    assert "Usage: " in result.output
    assert commands.commands[name].help
    for parameter in commands.commands[name].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name


@pytest.mark.parametrize("name", NAMES)
def test_every_example_parses(name):
    lines = example_lines(name)
    assert lines
    for line in lines:
        words = words_of(line)
        assert words[0] == name, line
        commands.commands[name].make_context(name, words[1:])


@pytest.mark.parametrize("name", NAMES)
def test_a_command_that_prints_results_has_json_and_quiet(name):
    options = {option for p in commands.commands[name].params for option in p.opts}
    if name in ("train", "evaluate", "backtest", "graph", "run", "demo", "bench"):
        assert {"--json", "--quiet"} <= options
    if name == "predict":
        assert {"--as", "--quiet"} <= options


def test_help_is_there_by_itself_and_fits_a_terminal():
    for words in (["--help"], ["-h"], ["train", "-h"]):
        text = dokl(*words).output
        assert max(map(len, text.splitlines())) <= 100
    assert dokl(code=2).output.startswith("Usage")
    assert dokl("--version").output.startswith("dokl, version")


LIGHT = """
import sys
from dokl.cli import commands
for words in ([], *([name] for name in commands.commands)):
    try:
        commands([*words, "--help"])
    except SystemExit as end:
        assert not end.code
heavy = {"numpy", "scipy", "sklearn", "pandas", "numba", "rich"} & set(sys.modules)
assert not heavy, heavy
"""


def test_help_loads_no_library():
    """It answers in a tenth of a second: a command imports what it needs when it runs."""
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_wrong_command_line_is_exit_code_2_and_names_what_is_wrong():
    assert "trian" in dokl("trian", code=2).stderr
    assert "--model" in dokl("train", "x.csv", code=2).stderr
    assert "--targt" in dokl("train", "x.csv", "--targt", "y", code=2).stderr
    assert "'fixed'" in dokl("train", "x", "--standardise", "fixd", code=2).stderr


def test_choices_of_the_command_line_are_those_of_the_library():
    assert set(options.FORMATS) == set(FORMATS)
    assert all(kernels.resolve(name, 1.0) for name in train_command.KERNELS)
    assert set(train_command.FEATURES) == {"auto", *VARIANTS}
    assert set(train_command.STANDARDISE) == set(MODES)
    assert options.TASKS == start.TASKS
    assert set(train_command.METHODS) == set(start.METHODS)
    settings = set(train_command.GRADIENT_ONLY)
    for method, has in (("gradient", settings), ("bank", set())):
        for kind in (kind for pair in start.METHODS[method] for kind in pair):
            assert settings & set(kind._get_param_names()) == has
    assert set(graph_command.TOPOLOGIES) == set(graphs.BUILDERS)
    assert set(graph_command.RULES) <= set(graphs.RULES)


def test_predict_writes_what_the_job_can_write():
    kinds = next(p for p in commands.commands["predict"].params if p.name == "kind")
    assert tuple(kinds.type.choices) == output.OUTPUTS


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(shell):
    script = dokl("completion", shell).stdout
    assert f"_DOKL_COMPLETE={shell}_complete" in script


@pytest.mark.parametrize(
    ("words", "start", "expected"),
    [
        ([], "tr", ["train"]),
        (["train", "x.csv"], "--st", ["--standardise", "--step"]),
        (["train", "x.csv", "--standardise"], "r", ["running"]),
        (["train", "x.csv", "--method"], "g", ["gradient"]),
        (["graph"], "r", ["random", "ring"]),
        (["completion"], "", ["bash", "zsh", "fish"]),
    ],
)
def test_completion_knows_commands_options_and_values(words, start, expected):
    complete = ShellComplete(commands, {}, "dokl", "_DOKL_COMPLETE")
    assert [item.value for item in complete.get_completions(words, start)] == expected


@pytest.mark.parametrize("words", [["train"], ["predict"], ["graph"], ["evaluate", "m.dokl"]])
def test_completion_of_a_file_is_left_to_the_shell(words):
    complete = ShellComplete(commands, {}, "dokl", "_DOKL_COMPLETE")
    (item,) = complete.get_completions(words, "data/x")
    assert item.type == "file"
