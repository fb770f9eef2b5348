"""Plain words: those that were replaced stay out of pages, messages, docstrings and comments.

The list grows with what is replaced. Code, fenced or between backticks, is not prose; names in code
have a list of their own.
"""

import ast
import functools
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]

SOURCES = [
    path
    for folder in ("src", "benchmarks", "examples", "tools", "docs/tools")
    for path in sorted((ROOT / folder).rglob("*.py"))
]

# Not to be written any more, and what to write instead.
WORDS = {
    r"mend(s|ed|ing)?": "repair, correct",
    r"anew": "again, start over",
    r"parted": "separated",
    r"(stands?|stood) still": "frozen, does not change",
    r"so many(?! (that|different))": "n",
    r"whoever": "a receiver, a caller, the node that",
    r"cannot be meant": "invalid",
    r"in any cut": "however the rows are split into chunks",
    r"outlier scissors": "rule 'ios'",
    r"lying neighbours?": "faulty neighbours",
    r"liars?": "faulty node, attack",
    r"wary": "robust",
    r"few bytes": "compression",
    r"crew": "bank",
    r"an? \w+ is meant(?! for)": "is expected",
    r"(these|this model|this|that) (are|is) none": "is not one",
    r"wants? (a|an|its|one|the|their) (\w+ ){0,3}tokens?": "needs",
    r"of before": "earlier",
    r"so much (later|earlier)": "that much later",
    r"(has|have|had) told of": "reported",
    r"told": "given, sent, reported",
    r"tell(s|ing)?": "report, show, send, decide",
    r"said": "predicted, sent, given",
    r"hear(s|d|ing)?": "receive, learn",
    r"lone learners?": "own learner, single learner",
}
# Where a word may stay, and why.
EXCEPTIONS = {
    ("docs/vectors.md", "outlier scissors"): "the name under which the rule was published",
    ("src/dokl/network/exchange/robust.py", "outlier scissors"): "the same",
    ("src/dokl/network/exchange/rules.py", "outlier scissors"): "the same",
    ("src/dokl/live/protocol/neighbours.py", "told"): "a key of `/status`",
    ("src/dokl/live/rows/states.py", "heard"): "a field in files",
    ("src/dokl/network/node.py", "heard"): "a field in files",
    ("src/dokl/paper/reproduce/beyond.py", "lone learners"): "in results that are compared",
    ("src/dokl/paper/reproduce/findings.py", "said"): "the same",
}


def prose(text):
    """A page without code, line for line."""
    text = re.sub(
        r"^( *)```.*?^\1```$", lambda code: "\n" * code[0].count("\n"), text, flags=re.M | re.S
    )
    return re.sub(r"`[^`]*`", lambda code: "\n" * code[0].count("\n"), text)


@functools.cache
def any_of(patterns):
    """Whether there is anything to look for: in few texts there is."""
    return re.compile(rf"\b({'|'.join(patterns)})\b", re.I)


def found_in(text, words):
    """(line, word, what to write instead)."""
    if any_of(tuple(words)).search(text) is None:
        return
    for pattern, instead in words.items():
        for match in re.finditer(rf"\b{pattern}\b", text, re.I):
            yield text.count("\n", 0, match.start()) + 1, match[0].lower(), instead


def texts(source):
    """Strings with more than one word, docstrings among them, and comments, with their lines."""
    for node in ast.walk(ast.parse(source)):
        constant = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if constant and " " in node.value.strip():
            yield node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_use_plain_words(page):
    name = page.relative_to(ROOT).as_posix()
    text = page.read_text("utf-8")
    # The page of commands is their help, which is fenced and is prose all the same.
    found = list(found_in(text if name == "docs/cli.md" else prose(text), WORDS))
    assert [each for each in found if (name, each[1]) not in EXCEPTIONS] == []


def test_messages_docstrings_and_comments_use_plain_words():
    found = []
    for path in SOURCES:
        name = path.relative_to(ROOT).as_posix()
        for line, text in texts(path.read_text("utf-8")):
            for below, word, instead in found_in(prose(text), WORDS):
                if (name, word) not in EXCEPTIONS:
                    found.append((f"{name}:{line + below - 1}", word, instead))
    assert found == []


def test_exceptions_are_needed():
    for name, word in EXCEPTIONS:
        found = found_in(prose((ROOT / name).read_text("utf-8")), WORDS)
        assert word in {each[1] for each in found}, f"{name} does not need the exception {word!r}"


def test_old_words_are_found_in_prose_and_not_in_code():
    page = "It mends `anew`.\n\n```python\nliars = 2  # anew\n```\n\nBegun anew."
    assert [(line, word) for line, word, _ in found_in(prose(page), WORDS)] == [
        (1, "mends"),
        (7, "anew"),
    ]
    source = '"""A docstring, anew."""\nx = "solve anew"  # and anew\n'
    assert [line for line, text in texts(source) if "anew" in text] == [1, 2, 2]


# Names in code that were replaced: of modules, functions, classes, variables and fields.
NAMES = {
    "told": "prediction, sent, reply, options",
    "said": "predicted, answer",
    "whose": "what it is of",
    "crew": "ranks, processes",
    "desk": "intake",
    "letters": "messages",
    "story": "pictures",
    "scissors": "the rule's name",
    "generation": "what a pilot gives",
    "untold": "silent",
    "unsaid": "silent",
    "liar": "faulty, attacker",
    "liars": "faulty",
    "lies": "attacks, faults",
    "wary": "robust",
    "few_bytes": "compression",
    "parted": "split",
    "mended": "repaired",
    "consequences": "handler",
    "anew": "again",
    "hear": "receive",
    "hears": "receive",
    "heard": "received, arrived",
    "tell": "report, send, set",
    "telling": "outgoing, due",
}
NAMES_THAT_STAY = {
    # `/status` of agents has a key of this name.
    ("src/dokl/live/protocol/machine.py", "told"),
    ("src/dokl/live/protocol/neighbours.py", "told"),
    ("src/dokl/live/protocol/node.py", "told"),
    # Model files and snapshots have a field of this name.
    ("src/dokl/live/rows/learner.py", "heard"),
    ("src/dokl/live/rows/states.py", "heard"),
    ("src/dokl/network/node.py", "heard"),
    ("src/dokl/learning/experts/bank.py", "mended"),
    ("src/dokl/learning/experts/pending.py", "mended"),
    ("src/dokl/learning/experts/rows.py", "mended"),
}


def names_defined(tree):
    """Names that a module defines or sets, without leading underscores."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name.lstrip("_")
        elif isinstance(node, ast.arg):
            yield node.arg.lstrip("_")
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id.lstrip("_")
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr.lstrip("_")


def test_names_in_code_are_plain():
    found = set()
    for path in SOURCES:
        name = path.relative_to(ROOT).as_posix()
        defined = {path.stem, *names_defined(ast.parse(path.read_text("utf-8")))}
        found |= {(name, each) for each in defined & set(NAMES)}
    assert {(*each, NAMES[each[1]]) for each in found - NAMES_THAT_STAY} == set()
    assert found >= NAMES_THAT_STAY, "remove what is no longer there"
