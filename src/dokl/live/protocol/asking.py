"""What neighbours have of each origin, and who is asked for what is lacking here.

One neighbour is asked at a time for the rows of an origin; where it does not answer soon, another
one is. An answer that comes late is still one. Who did not answer, or had nothing that belongs
here, is asked again ever less often, and only when nobody else can be. What neighbours report to
have decides only what they are asked for, and for a while whether rows are given up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dokl.live.protocol import logs
from dokl.live.protocol.logs import OriginLog, Version
from dokl.live.protocol.messages import mark_of

ASK_SECONDS = 1.0  # until a question is asked again, of another neighbour if there is one
SHY_SECONDS = 10.0  # in which a neighbour that did not help is asked only if nobody else can be
LATER = 0.3  # seconds before a question: what is lacking may be on its way
MOST_ASKED = 8  # questions that wait for the answer of one neighbour, which answers at a pace
PATIENCE = 30.0  # seconds after which rows are given up of which only later ones come
GAP_SECONDS = 5.0  # the same where nobody reports them: they may be on another way, and slower
DOUBLED = 4  # times that the pause between two questions to one neighbour doubles, at most

Question = tuple[str, bytes]  # a neighbour, and the mark of an origin


@dataclass(frozen=True)
class Tries:
    """Questions to a neighbour that brought no new rows: how many, when the last was asked, and
    when it was answered, None if it is not.
    """

    times: int
    asked: float
    answered: float | None = None

    @property
    def next(self) -> float:
        """When it may be asked again."""
        return self.asked + ASK_SECONDS * 2.0 ** min(self.times - 1, DOUBLED)


@dataclass(frozen=True)
class Gap:
    """Where the log of an origin ended when somebody answered with later rows than can follow; and
    for how long these have been lacking since, up to a time: `seconds` in which this process was
    awake.
    """

    end: int
    seconds: float
    until: float

    def at(self, now: float) -> Gap:
        """The same, now."""
        slept = now - self.until > ASK_SECONDS
        return Gap(self.end, self.seconds + (ASK_SECONDS if slept else now - self.until), now)


@dataclass(frozen=True)
class Asking:
    """theirs: what neighbours have, by the marks of origins. due: when the next neighbour may be
    asked for the rows of an origin. tries: what came of questions. useless: the last hash of what a
    neighbour has of an origin and does not belong here. met: when each neighbour came. gaps: the
    next rows of origins of which only later ones came. shown: the last place of an answer, as
    (number, hash up to there), where all of that was known here and no longer kept.
    """

    theirs: Mapping[str, Mapping[bytes, Version]] = field(default_factory=dict)
    due: Mapping[bytes, float] = field(default_factory=dict)
    tries: Mapping[Question, Tries] = field(default_factory=dict)
    useless: Mapping[Question, bytes] = field(default_factory=dict)
    met: Mapping[str, float] = field(default_factory=dict)
    gaps: Mapping[bytes, Gap] = field(default_factory=dict)
    shown: Mapping[Question, tuple[int, bytes]] = field(default_factory=dict)

    def meets(self, peer: str, now: float) -> Asking:
        """A neighbour came, and will say what it has."""
        return replace(self, met={**self.met, peer: now})

    def is_new(self, peer: str, now: float) -> bool:
        """Whether it came lately and has not reported what it has: for a while it is asked to."""
        return peer not in self.theirs and now < self.met.get(peer, now) + SHY_SECONDS

    def receive(self, peer: str, versions: Mapping[bytes, Version]) -> Asking:
        """A neighbour reports what it has."""
        return replace(self, theirs={**self.theirs, peer: versions})

    def loses(self, peer: str) -> Asking:
        """What a neighbour has is not known any more, and nothing is expected of it. `gaps` stays,
        or one that comes and goes would begin it again.
        """
        return replace(
            self,
            theirs={name: listed for name, listed in self.theirs.items() if name != peer},
            tries={key: each for key, each in self.tries.items() if key[0] != peer},
            useless={key: tip for key, tip in self.useless.items() if key[0] != peer},
            met={name: at for name, at in self.met.items() if name != peer},
            shown={key: place for key, place in self.shown.items() if key[0] != peer},
        )

    def expects(self, peer: str, origin: bytes) -> bool:
        """Whether this neighbour was asked for the rows of an origin, and has not answered."""
        tried = self.tries.get((peer, origin))
        return tried is not None and tried.answered is None

    def answered(
        self,
        peer: str,
        origin: bytes,
        tip: bytes,
        became: Iterable[str],
        whole: bool,
        end: int,
        now: float,
        shown: tuple[int, bytes] | None = None,
    ) -> Asking:
        """It answered; became: what `logs.add` made of each batch; tip: where its log ends; whole:
        whether the answer does, too; end: of the log here; shown: where it ends if all of it is
        known and no longer kept: what follows comes next. What was cut off after batches that came
        from somebody else in the meantime may belong here.
        """
        key, found = (peer, origin), set(became)
        due = {mark: at for mark, at in self.due.items() if mark != origin}
        tries, useless, gaps = dict(self.tries), dict(self.useless), dict(self.gaps)
        tried = tries.pop(key, Tries(1, now))
        if logs.GAP in found and (origin not in gaps or gaps[origin].end != end):
            gaps[origin] = Gap(end, 0.0, now)
        places = {each: place for each, place in self.shown.items() if each != key}
        if shown is not None and not whole and shown[0] > self.shown.get(key, (0, b""))[0]:
            places[key] = shown
        elif logs.NEW not in found:
            tries[key] = replace(tried, answered=now)
            if found <= logs.USELESS and (whole or logs.KNOWN not in found):
                useless[key] = tip
        return replace(self, due=due, tries=tries, useless=useless, gaps=gaps, shown=places)

    def is_shy(self, peer: str, origin: bytes, now: float) -> bool:
        """Whether it answered lately, and did not help with the rows of an origin."""
        tried = self.tries.get((peer, origin))
        at = None if tried is None else tried.answered
        return at is not None and now < at + SHY_SECONDS

    def _free(self, peer: str, origin: bytes, now: float) -> bool:
        """Whether it may be asked again."""
        tried = self.tries.get((peer, origin))
        return tried is None or now >= tried.next

    def lacking(
        self, there: Sequence[str], kept: Mapping[bytes, OriginLog], now: float
    ) -> list[Question]:
        """Who is to be asked for what, one for each origin: rather one that did not fail to help,
        then the one that begins earliest, and has most. kept: the logs here, by the marks of all
        origins of the network.
        """
        best: dict[bytes, tuple[tuple[bool, bool, int, int], str]] = {}
        for peer in there:
            for mark, theirs in self.theirs.get(peer, {}).items():
                if mark not in kept or not logs.lacks(kept[mark], theirs):
                    continue
                if self.useless.get((peer, mark)) == theirs.tip:
                    continue
                helps = not self.is_shy(peer, mark, now) and not self.expects(peer, mark)
                free = self._free(peer, mark, now)
                rank = (helps and free, free, -theirs.base, theirs.end)
                if mark not in best or rank > best[mark][0]:
                    best[mark] = rank, peer
        return [(peer, mark) for mark, (_, peer) in best.items()]

    def ask(self, lacking: Iterable[Question], now: float) -> tuple[Asking, list[Question]]:
        """The questions of these that are due, asked now; others of one neighbour in their turn.
        What nobody has more of leaves no gap.
        """
        due, tries, lacking = dict(self.due), dict(self.tries), list(lacking)
        lacked = {origin for _, origin in lacking}
        gaps = {origin: each.at(now) for origin, each in self.gaps.items() if origin in lacked}
        found = list[Question]()
        open_ones = [(key[0], each) for key, each in tries.items() if each.answered is None]
        waiting = Counter(peer for peer, each in open_ones if now < each.asked + ASK_SECONDS)
        for peer, origin in lacking:
            if now < due.setdefault(origin, now + LATER):  # it may be on its way
                continue
            if waiting[peer] >= MOST_ASKED or not self._free(peer, origin, now):
                due[origin] = now + LATER
                continue
            waiting[peer] += 1
            before = tries.get((peer, origin))
            tries[peer, origin] = Tries(1 if before is None else before.times + 1, now)
            due[origin] = now + ASK_SECONDS
            found.append((peer, origin))
        return replace(self, due=due, tries=tries, gaps=gaps), found

    def nobody_has(
        self, there: Iterable[str], name: str, log: OriginLog, number: int, now: float
    ) -> bool:
        """Whether no neighbour reports rows of an origin between its log here and row `number`, or
        of another log before that row, but for those that answered and did not help, and only later
        ones have come for GAP_SECONDS: a neighbour must not be believed at once that there are no
        others. One that has just come and reported nothing yet may have some, and one that has not
        answered yet: until only later rows have come for PATIENCE.
        """
        mark, since = mark_of(name), log.end if number > log.end else 0
        gap = self.gaps.get(mark)
        lasted = gap.seconds if gap is not None and gap.end == log.end else 0.0
        if not GAP_SECONDS <= lasted < PATIENCE:
            return lasted >= PATIENCE
        for peer in there:
            listed = self.theirs.get(peer)
            if listed is None:
                if self.is_new(peer, now):
                    return False
                continue
            each = listed.get(mark)
            if each is None or each.base >= number or each.end <= since:
                continue
            if not logs.lacks(log, each):  # the log here
                continue
            if not self.is_shy(peer, mark, now) and self.useless.get((peer, mark)) != each.tip:
                return False
        return True

    def lacked(self, others: Iterable[str], name: str, end: int) -> bool:
        """Whether one of these neighbours is not known to have an origin's rows up to `end`."""
        listed = (self.theirs.get(peer, {}).get(mark_of(name)) for peer in others)
        return any(each is None or each.end < end for each in listed)
