"""Random changes of bytes, of JSON values and of lines of text; the same seed, the same changes."""

import copy
import json

NUMBERS = (b"0", b"-1", b"1e308", b"1e999", b"-0.0", b"nan", b"inf", b"1e-320", b"9" * 30,
           b"9" * 5000, b"0x10", b"1_000", b"18446744073709551616", b"65536")  # fmt: skip
BYTES = (b"\x00", b"\xff", b"\xff\xff\xff\xff", b"\x00" * 8, b"\xff" * 8, b"\n", b"\r", b"\r\n\r\n",
         b'"', b"'", b",", b";", b"\t", b"\\", b"{", b"}", b"[", b"]", b"[" * 2000, b'{"a":' * 2000,
         b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", "ä".encode(), b"\\ud800",
         b"null", b"true", b"NA", b" ", b"2024-02-30", b"2024-01-01T00:00:00Z")  # fmt: skip
VALUES = (None, True, False, 0, -1, 1, 2, 0.5, -1.5, 1e300, 1e-300, 10**9, 10**18, 10**30, 10**400,
          "", "x", "nan", "\x00", "\ud800", "x" * 3000, [], [[]], {}, {"$": "x"}, {"@": "x"},
          {"#": "inf"}, {"#": "x"}, {"$float": "nan"}, [1, "a", None], [0.0] * 50)  # fmt: skip


def change_bytes(rng, data, others=(), tokens=()):
    """Some changes, one after the other."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5, 10))):
        data = _CHANGES[rng.randrange(len(_CHANGES))](rng, data, others, tokens)
    return bytes(data)


def _place(rng, data):
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.choice((1, 1, 2, 4, 8, 32, 200)))


def _flip(rng, data, others, tokens):
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return data


def _overwrite(rng, data, others, tokens):
    if data:
        data[rng.randrange(len(data))] = rng.randrange(256)
    return data


def _delete(rng, data, others, tokens):
    start, end = _place(rng, data)
    return data[:start] + data[end:]


def _repeat(rng, data, others, tokens):
    start, end = _place(rng, data)
    times = rng.choice((1, 1, 2, 5, 100))
    return data[:end] + data[start:end] * times + data[end:]


def _insert(rng, data, others, tokens):
    start, end = _place(rng, data)
    what = rng.choice((*BYTES, *NUMBERS, *tokens))
    return data[:start] + what + data[start if rng.random() < 0.5 else end :]


def _number(rng, data, others, tokens):
    """Another number where digits are."""
    digits = [i for i, byte in enumerate(data) if 48 <= byte <= 57]
    if not digits:
        return data
    start = end = rng.choice(digits)
    while end < len(data) and data[end : end + 1] in (b"%d" % i for i in range(10)):
        end += 1
    return data[:start] + rng.choice(NUMBERS) + data[end:]


def _splice(rng, data, others, tokens):
    if not others:
        return data
    other = rng.choice(others)
    start, _ = _place(rng, other)
    return data[: rng.randrange(len(data) + 1)] + other[start:]


def _cut(rng, data, others, tokens):
    return data[: rng.randrange(len(data) + 1)]


def _swap(rng, data, others, tokens):
    """Two lines in the place of each other."""
    lines = data.split(b"\n")
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[i], lines[j] = lines[j], lines[i]
    return bytearray(b"\n".join(lines))


_CHANGES = (_flip, _overwrite, _delete, _repeat, _insert, _number, _splice, _cut, _swap)


def change_json(rng, value):
    """A copy of nested lists and dictionaries with some values replaced, deleted or moved."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 2, 4))):
        place, key = _inside(rng, value)
        if place is None:
            return rng.choice(VALUES)
        what = rng.randrange(6)
        if what == 0:
            del place[key]
        elif what == 1:
            place[key] = [place[key]] * rng.choice((1, 2, 30))
        elif what == 2 and isinstance(place, list):
            place.insert(key, copy.deepcopy(rng.choice(place)))
        elif what == 3 and isinstance(place, dict):
            place[rng.choice(("", "x", "name", "a" * 500, "\ud800"))] = place.pop(key)
        else:
            place[key] = copy.deepcopy(rng.choice(VALUES))
    return value


def _inside(rng, value):
    """A container in it, and one of its keys."""
    found = None, None
    while isinstance(value, dict | list) and value:
        key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
        found = value, key
        if rng.random() < 0.2:
            break
        value = value[key]
    return found


def json_bytes(value):
    """As text, also where it is no text that can be encoded."""
    return json.dumps(value).encode()
