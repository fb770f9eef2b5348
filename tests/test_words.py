"""Plain words: those that were replaced stay out of pages and messages.

The list grows with what is replaced. Code, fenced or between backticks, is not prose: names are the
business of the code. CHANGELOG.md is history.
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]

# Not to be written any more, and what to write instead: in pages and in messages.
WORDS = {
    r"mend(s|ed|ing)?": "repair, correct",
    r"anew": "again, start over",
    r"parted by": "separated by",
    r"(stands?|stood) still": "frozen, does not change",
    r"so many (rows|steps|samples|columns|messages|parts)": "n rows",
    r"cannot be meant": "invalid",
    r"in any cut": "however the rows are split into chunks",
    r"whoever missed": "a receiver that missed",
    r"outlier scissors": "rule 'ios'",
    r"lying neighbours?": "faulty neighbours",
    r"crew": "bank",
    r"an? \w+ is meant(?! for)": "is expected",
    r"(these|this model|this|that) (are|is) none": "is not one",
    r"wants? (a|an|its|one|the|their) (\w+ ){0,3}tokens?": "needs",
    r"of before": "earlier",
    r"so much (later|earlier)": "that much later",
    r"(has|have|had) told of": "reported",
}
# In pages alone: messages name the parameter of this name.
IN_PAGES = {r"liars?": "faulty node, attack", r"wary": "checked"}
# Where a word may stay, and why.
EXCEPTIONS = {
    ("docs/networks.md", "outlier scissors"): "the name under which the rule was published",
}


def prose(text):
    """A page without code, line for line."""
    text = re.sub(
        r"^( *)```.*?^\1```$", lambda code: "\n" * code[0].count("\n"), text, flags=re.M | re.S
    )
    return re.sub(r"`[^`]*`", lambda code: "\n" * code[0].count("\n"), text)


def found_in(text, words):
    """(line, word, what to write instead)."""
    for pattern, instead in words.items():
        for match in re.finditer(rf"\b{pattern}\b", text, re.I):
            yield text.count("\n", 0, match.start()) + 1, match[0].lower(), instead


def messages(tree):
    """String constants with more than one word that are no docstrings, with their lines."""
    nodes = list(ast.walk(tree))
    said = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if id(node) not in said and " " in node.value.strip():
            yield node.lineno, node.value


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_use_plain_words(page):
    name = page.relative_to(ROOT).as_posix()
    text = page.read_text("utf-8")
    # The page of commands is their help, which is fenced and is prose all the same.
    text, words = (text, WORDS) if name == "docs/cli.md" else (prose(text), WORDS | IN_PAGES)
    found = list(found_in(text, words))
    assert [each for each in found if (name, each[1]) not in EXCEPTIONS] == []


def test_messages_use_plain_words():
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for line, text in messages(ast.parse(path.read_text("utf-8"))):
            at = f"{path.relative_to(ROOT)}:{line}"
            found += [(at, word, instead) for _, word, instead in found_in(text, WORDS)]
    assert found == []


def test_exceptions_are_needed():
    for name, word in EXCEPTIONS:
        found = found_in(prose((ROOT / name).read_text("utf-8")), WORDS | IN_PAGES)
        assert word in {each[1] for each in found}, f"{name} no longer says {word!r}"


def test_old_words_are_found_in_prose_and_not_in_code():
    page = "It mends `anew`.\n\n```python\nliars = 2  # anew\n```\n\nBegun anew."
    assert [(line, word) for line, word, _ in found_in(prose(page), WORDS)] == [
        (1, "mends"),
        (7, "anew"),
    ]
    (found,) = messages(ast.parse('"""A docstring, anew."""\nx = "solve anew"'))
    assert found == (2, "solve anew")
