"""TOML into dataclasses."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from dokl.base import config
from dokl.base.errors import BadInput, UnknownName


@dataclass(frozen=True)
class Inner:
    size: int = 3
    share: float = 0.5
    names: tuple[str, ...] = ()
    maybe: int | None = None
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outer:
    inner: Inner
    title: str
    strict: bool = False


def test_sections_and_defaults():
    made = config.parse(Outer, {"title": "t", "inner": {"names": ["a", "b"], "share": 1}})
    assert made == Outer(Inner(names=("a", "b"), share=1.0), "t")
    assert isinstance(made.inner.share, float)
    assert config.parse(Outer, {"title": "t"}).inner == Inner()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "title is missing"),
        ({"title": 3}, "title must be text, got 3"),
        ({"title": "t", "strict": 1}, "strict must be true or false"),
        ({"title": "t", "inner": 3}, "[inner] must be a section"),
        ({"title": "t", "inner": {"size": 1.5}}, "[inner] size must be a whole number, got 1.5"),
        ({"title": "t", "inner": {"size": True}}, "[inner] size must be a whole number"),
        ({"title": "t", "inner": {"share": "x"}}, "[inner] share must be a number"),
        ({"title": "t", "inner": {"names": [1]}}, "[inner] names must be a list, each entry text"),
        ({"title": "t", "inner": {"maybe": "x"}}, "[inner] maybe must be a whole number"),
        ({"title": "t", "inner": {"more": 1}}, "[inner] more must be a table"),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(data, message):
    with pytest.raises(BadInput) as caught:
        config.parse(Outer, data)
    assert message in str(caught.value)


def test_the_nearest_key_is_named():
    with pytest.raises(UnknownName, match="section 'iner': did you mean 'inner'"):
        config.parse(Outer, {"title": "t", "iner": {}})
    with pytest.raises(UnknownName, match=r"key in \[inner\] 'sise': did you mean 'size'"):
        config.parse(Outer, {"title": "t", "inner": {"sise": 1}})


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(BadInput, match="no such file"):
        config.read_toml(tmp_path / "x.toml")
    (tmp_path / "x.toml").write_text("a = \n")
    with pytest.raises(BadInput, match=r"not valid TOML: .*line 1"):
        config.read_toml(tmp_path / "x.toml")
    (tmp_path / "x.toml").write_text("a = 3\n")
    assert config.read_toml(tmp_path / "x.toml") == {"a": 3}
