"""Exchange by method "squares": sums per origin, signed by it, relayed, the newest wins.

A node keeps an account: the newest entry of every known origin, as it was sealed. It
sends its own again when it has 5 % more rows, or when none came for `QUIET_SECONDS` (`sealing`),
and passes on what is news, both no faster than `bytes_per_second` allows: what waits for its turn
is sent as it is by then. Neighbours report which versions they have (`VERSIONS`), again
and again while they differ, and send what the other lacks; so whatever is lost, repeated, late or
forgotten in a crash, accounts agree in the end, and then there is silence. The total is added up
from the account and the node's own sums, so no row can be missing or count twice.

What is believed of an entry is in `roll`, whose rows are left out of the total in `standing`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dokl.base.errors import BadInput
from dokl.live.certificates.signing import seal_and_entry
from dokl.live.protocol import pieces, sealing, standing
from dokl.live.protocol.effects import Effect, Save, SaveSealed, SendHello, SendTheta
from dokl.live.protocol.messages import (
    PIECE,
    SUMS,
    VERSIONS,
    Message,
    mark_of,
)
from dokl.live.protocol.neighbours import Neighbour
from dokl.live.protocol.node import LiveNode
from dokl.live.protocol.roll import Roll, claimed_origin, entry_faults, opened
from dokl.live.protocol.sealing import UNKNOWN, Sealed
from dokl.live.protocol.standing import Standing
from dokl.live.protocol.versions import (
    Version,
    apart,
    list_bytes,
    pack_versions,
    unpack_versions,
)
from dokl.live.sums import SumsLearner, forgetting
from dokl.network.sums import origins
from dokl.network.sums.origins import Account, Entry, most_bytes

SOLVE_SECONDS = 1.0  # between two solutions of the total, and between two own entries
AGAIN_SECONDS = 1.0  # until what a neighbour still lacks is sent once more
SLOW_SECONDS = 5.0  # between lists of versions in the end
LISTS = 0.1  # share of a link that lists of versions take at most
LEAST_SECONDS = 0.05  # between two messages to everybody
REFUSED_SECONDS = 15.0  # the same where it was refused: it may be in order some time
LAPSE_SECONDS = 3 * REFUSED_SECONDS  # after which what was refused would have come again
QUIET_SECONDS = 30.0  # without a new row after which fewer than 5 % are sent
QUICK_TIMES = 10  # lists of versions that are sent at the quicker pace after a change


class SumSharing:
    """Sums per origin, by pushing; arrays and dictionaries in it are replaced, never written to.

    account: the newest entry of each origin, as others have it (of this node: as it sealed it, in
    this life or before). sealed: their bytes. arrived: when each came. theirs: what neighbours say
    they have. to_send: origins whose entries are due. sent_bytes: of the last message of an entry.
    sealing: what it seals next of its own. going: the origin whose entry is on its way in pieces,
    and those that are still to go. coming: what each neighbour has sent of a large entry. kept:
    what is left to experts that forget.
    """

    joining = False

    def __init__(self, node: LiveNode, roll: Roll, sealed: Sealed = UNKNOWN) -> None:
        self.node, self.roll = node, roll
        self.account: Account = {}
        self.sealed: Mapping[str, bytes] = {}
        self.arrived: Mapping[str, float] = {}
        self.theirs: Mapping[str, Mapping[bytes, Version]] = {}
        self.sent: Mapping[str, float] = {}
        self.to_send: tuple[str, ...] = ()
        self.going: tuple[str, tuple[bytes, ...]] = ("", ())
        self.coming: Mapping[str, tuple[pieces.Incomplete, ...]] = {}
        self.begun: float | None = None
        self.sent_bytes = 0
        self.sent_at = self.solved_at = self.told_at = self.said_at = float("-inf")
        self.learned_at = float("-inf")
        self.asked = self.hurt = False
        # Whose rows are in a stored state is not known, but where there is nobody else.
        self.unsolved = roll.names <= {node.name} and self.learner.listened(node.state)
        self.quick = 0
        self.standing = Standing()
        self.kept: Mapping[str, forgetting.Remainder] = {}
        rows = self.learner.own_rows(node.state)
        self.sealing = sealing.begin(node.incarnation, sealed[0], rows)
        if sealed[1]:
            self._know_own(origins.from_bytes(seal_and_entry(sealed[1])[2]), sealed[1])

    @property
    def learner(self) -> SumsLearner:
        """The node's, which knows what sums are."""
        assert isinstance(self.node.learner, SumsLearner)
        return self.node.learner

    @property
    def active(self) -> bool:
        """Whether there is any exchange."""
        return self.node.exchange.mode != "off"

    # -- events ------------------------------------------------------------------------------
    def samples(self, X: Any, Y: Any, now: float) -> list[Effect]:
        """Learn at once; own rows are sent when there are enough of them."""
        self._began(now)
        self.learned_at = now
        return self.node.learn(X, Y)

    def theta(self, peer: Neighbour, message: Message, now: float) -> list[Effect]:
        """An entry, of the neighbour's own or passed on, or which versions it has."""
        self._began(now)
        if message.kind == VERSIONS:
            return self._versions(peer, message, now)
        try:
            sealed = message.body if message.kind == SUMS else self._whole(peer, message.body, now)
        except BadInput as error:
            return self.node.refuse(peer.name, "signature", f"neighbour {peer.name!r}: {error}")
        return [] if sealed is None else self._sealed(peer, sealed, now)

    def _sealed(self, peer: Neighbour, sealed: bytes, now: float) -> list[Effect]:
        """A whole entry, hostile until its seal is found to be good."""
        try:
            entry = opened(self.roll, self.learner, sealed)
        except BadInput as error:
            name = claimed_origin(self.roll, sealed)
            of = f" sends sums of {name!r}" if name else ""
            text = f"neighbour {peer.name!r}{of}: {error}"
            return self.node.refuse(peer.name, "signature", text, name)
        return self._entry(peer, entry, sealed, now)

    def _whole(self, peer: Neighbour, piece: bytes, now: float) -> bytes | None:
        """The sealed entry that this piece completes, if it does."""
        most, kept = most_bytes(self.learner.m, self.learner.D), self.coming.get(peer.name, ())
        others = {name: each for name, each in self.coming.items() if name != peer.name}
        self.coming = others  # what does not fit together is not kept
        wait = pieces.expiry(self._pace(pieces.SIZE))
        left, whole = pieces.add(kept, piece, most, now, wait)
        self.coming = {**others, peer.name: left}
        return whole

    def _entry(self, peer: Neighbour, entry: Entry, sealed: bytes, now: float) -> list[Effect]:
        name, known = entry.origin, self.account.get(entry.origin)
        ahead = self.node.hours_ahead(entry.incarnation)
        if ahead > 0:
            text = f"neighbour {peer.name!r} sends sums of {name!r} from a start {ahead:.3g} hours"
            text += " later than can be: is its clock wrong?"
            return self.node.refuse(peer.name, "ahead", text, name)
        if name == self.node.name and (known is None or entry.version > known.version):
            return self._of_myself(entry, sealed)
        if known is not None and origins.newer(known, entry) is known:
            peer.repeated += 1
            self._has(peer, entry)
            if entry.version == known.version:
                peer.welcome(hello=False, about=name)
            return []
        wrong = entry_faults(
            self.roll, self.learner, known, entry, self.arrived.get(name, now), now
        )
        if wrong:
            text = f"neighbour {peer.name!r} sends sums of {name!r} that cannot be: {wrong[0]}"
            return self.node.refuse(peer.name, "sums", text, name)
        peer.welcome(hello=False, about=name)
        peer.received, peer.last_received = peer.received + 1, now
        self.account = {**self.account, name: entry}
        self.sealed = {**self.sealed, name: sealed}
        self.arrived = {**self.arrived, name: now}
        self.unsolved = True
        self._has(peer, entry)
        self._changed()
        if len(self.node.peers) > 1:
            self._want(name)
        return []

    def _has(self, peer: Neighbour, entry: Entry) -> None:
        """An entry is not sent back to its sender, whatever that reported before."""
        versions, mark = self.theirs.get(peer.name), mark_of(entry.origin)
        if versions is not None and versions.get(mark, (-1, -1)) < entry.version:
            self.theirs = {**self.theirs, peer.name: {**versions, mark: entry.version}}

    def _versions(self, peer: Neighbour, message: Message, now: float) -> list[Effect]:
        versions = unpack_versions(message.body)
        peer.welcome(hello=True)
        if self.theirs.get(peer.name) != versions:
            self.theirs = {**self.theirs, peer.name: versions}
            self.quick = QUICK_TIMES
        self.asked = self.asked or message.waiting
        self._offer(now)
        return []

    def _of_myself(self, entry: Entry, sealed: bytes) -> list[Effect]:
        """An entry that this node sealed and does not know: its clock went back, or its journal is
        lost. Lists of versions never get here: anybody can claim to hold any version, and only the
        seal proves that there is one.
        """
        rows, name = self._own_rows[0], self.node.name
        known = name in self.account
        self.sealing = sealing.surprise(self.sealing, entry, rows)
        if not known:
            self._know_own(entry, sealed)
            self._want(name)
        self._changed()
        return [SaveSealed(self.sealing.base, self.sealed[name])]

    def _know_own(self, entry: Entry, sealed: bytes) -> None:
        """What this node sealed last, in an earlier life."""
        name, old = self.node.name, not self.roll.seals.made(sealed)
        self.account, self.sealed = {**self.account, name: entry}, {**self.sealed, name: sealed}
        self.sealing = sealing.recall(self.sealing, entry, self._own_rows[0], old)

    def hello(self, peer: Neighbour, message: Message, now: float) -> list[Effect]:
        """Nothing to do with sums."""
        self._began(now)
        return []

    def peer_up(self, peer: Neighbour, now: float) -> list[Effect]:
        """It may have missed everything, and so may we."""
        self._began(now)
        self._changed()
        return self.node.greet(now)

    def peer_lost(self, peer: Neighbour, now: float) -> list[Effect]:
        """What it has is not known any more."""
        self.theirs = {
            name: versions for name, versions in self.theirs.items() if name != peer.name
        }
        self.coming = {name: each for name, each in self.coming.items() if name != peer.name}
        return []

    def finish(self, now: float) -> list[Effect]:
        """Nobody waits here."""
        self.node.announce()
        return []

    def change(self, roll: Roll) -> None:
        """Other names: a node that left the network takes its rows away. Another certificate
        of this node: what it has sealed gets a new seal.
        """
        self.roll = roll
        own = self.sealed.get(self.node.name)
        # Others stop to believe the old certificate some time, and those that start then cannot
        # check a seal of it.
        if own is not None and not roll.seals.made(own):
            self.sealing = replace(self.sealing, again=True)
        gone = set(self.account) - roll.names
        self.node.forget_refused_sums(float("inf"))  # other seals, other bounds, other names
        if gone:
            self.account = {n: entry for n, entry in self.account.items() if n not in gone}
            self.sealed = {n: data for n, data in self.sealed.items() if n not in gone}
            self.to_send = tuple(name for name in self.to_send if name not in gone)
            self.going = ("", ()) if self.going[0] in gone else self.going
            self.standing = standing.without(self.standing, gone)
            self.unsolved = True
            self._changed()

    # -- when it is time ---------------------------------------------------------------------
    def tick(self, now: float) -> list[Effect]:
        """Send own rows, forward entries, compare versions, solve: whatever is due."""
        self._began(now)
        wait = pieces.expiry(self._pace(pieces.SIZE))
        self.coming = {name: pieces.alive(kept, now, wait) for name, kept in self.coming.items()}
        if not self.active:
            return []
        self.node.forget_refused_sums(now - self._lapse)
        effects: list[Effect] = []
        due = self._announce_due()
        if due is not None and now >= due:
            effects += self._announce(now)
        if self._there and self._waits and now >= self._send_due():
            effects += self._send(now)
        if self._there and self._comparing and now >= self._compare_due():
            effects += self._compare(now)
        judging = self._judge_due()
        if judging is not None and now >= judging:
            self._judge(now)
        if self.unsolved and now >= self.solved_at + SOLVE_SECONDS:
            effects += self._solve(now)
        return effects

    def next_due(self) -> float | None:
        """When `tick` is wanted."""
        if not self.active or self.begun is None:
            return None
        judging = self._judge_due()
        times = [due for due in (judging, self._announce_due()) if due is not None]
        if self._there:
            times += [self._send_due()] if self._waits else []
            times += [self._compare_due()] if self._comparing else []
        times += [self.solved_at + SOLVE_SECONDS] if self.unsolved else []
        return min(times, default=None)

    def _judge_due(self) -> float | None:
        return standing.due(self.standing, self._own_rows[0], len(self.others))

    @property
    def _there(self) -> list[Neighbour]:
        """Who is sent to, refused ones included: sums have no weight that both ends must agree
        on, and what is in order again must be able to arrive.
        """
        return [peer for peer in self.node.peers.values() if peer.usable]

    def _send_due(self) -> float:
        """However often versions are compared meanwhile: that must not put an entry off."""
        return max(self.sent_at + self._pace(self.sent_bytes), self.told_at + LEAST_SECONDS)

    def _pace(self, size: int) -> float:
        """Seconds from a message of n bytes to the next one."""
        return max(self.node.exchange.every_seconds, LEAST_SECONDS, self._takes(size))

    def _takes(self, size: int) -> float:
        """Seconds for n bytes, by what sums may take of the link to a neighbour."""
        most = self.node.exchange.bytes_per_second
        return size / most if most else 0.0

    @property
    def _lapse(self) -> float:
        """Seconds after which sums that were refused would have come again, if they still were."""
        most = most_bytes(self.learner.m, self.learner.D)
        number, pace = pieces.number(most), self._pace(pieces.largest(most))
        return number * (LAPSE_SECONDS + (3 + len(self.account)) * pace)

    def _began(self, now: float) -> None:
        self.begun = now if self.begun is None else self.begun

    def _changed(self) -> None:
        self.quick, self.asked = QUICK_TIMES, True

    def _want(self, name: str) -> None:
        """Have an entry sent when it is its turn, which others that change more often leave it."""
        self.to_send = self.to_send if name in self.to_send else (*self.to_send, name)

    # -- own rows ----------------------------------------------------------------------------
    @property
    def _fewest(self) -> int:
        return max(self.node.exchange.fewest_rows, 1)

    @property
    def _own_rows(self) -> tuple[int, int]:
        """How many there are, and how many were sent."""
        own = self.account.get(self.node.name)
        return self.learner.own_rows(self.node.state), 0 if own is None else own.sums.rows

    def _announce_due(self) -> float | None:
        """When own rows are sealed: not before neighbours had the time to say what they have of
        this node's earlier life. None: there are too few, which could be read off.
        """
        begun = 0.0 if self.begun is None else self.begun
        rows = self._own_rows[0]
        if not self.sealing.allowed(rows, self._fewest):
            return None
        me = mark_of(self.node.name)
        versions_there = [self.theirs.get(peer.name) for peer in self._there]
        new = bool(versions_there) and all(
            versions is not None and me not in versions for versions in versions_there
        )
        at_once = new or self.node.name in self.account
        first = begun if at_once else begun + self.node.exchange.join_seconds
        quiet = max(begun, self.learned_at) + QUIET_SECONDS
        earliest = first if self.sealing.due(rows, self._fewest) else max(first, quiet)
        return max(earliest, self.said_at + SOLVE_SECONDS)

    def _announce(self, now: float) -> list[Effect]:
        """Seal own rows, or what is to follow on the entry before."""
        name, own = self.node.name, self.learner.own_sums(self.node.state)
        given = self.sealing, self.account.get(name), name, own, self._fewest
        self.sealing, entry = sealing.next_entry(*given)
        data = origins.to_bytes(entry, "<f4")
        self.account = {**self.account, name: origins.from_bytes(data)}
        self.sealed = {**self.sealed, name: self.roll.seals.seal(data)}
        self.said_at = now
        self._want(name)
        self._changed()
        return [SaveSealed(self.sealing.base, self.sealed[name])]

    # -- sending -----------------------------------------------------------------------------
    def _send(self, now: float) -> list[Effect]:
        """One entry or piece at a time: they are large, and a newer message makes an older go."""
        name, rest = self.going
        kind, body = PIECE, b""
        if not rest:
            lacked = [name for name in self.to_send if self._lacked(name)]
            self.to_send = tuple(lacked[1:])
            if not lacked:
                return []
            name, body = lacked[0], self.sealed[lacked[0]]
            kind, rest = (SUMS, ()) if len(body) <= pieces.WHOLE else (PIECE, pieces.cut(body))
        if kind == PIECE:
            body, *left = rest
            self.going = name, tuple(left)
        self.sent_at, self.sent = now, {**self.sent, name: now}
        data = self.node.pack_body(kind, body, now)
        self.sent_bytes = len(data)
        return [SendTheta(data)]

    def _lacked(self, name: str) -> bool:
        """Whether a neighbour may not have this node's entry of an origin."""
        versions = [self.theirs.get(peer.name) for peer in self._there]
        version, mark = self.account[name].version, mark_of(name)
        return any(each is None or each.get(mark, (-1, -1)) < version for each in versions)

    @property
    def _settled(self) -> bool:
        """Whether all neighbours are known to have just what this node has."""
        mine = unpack_versions(pack_versions(self.account))
        return all(self.theirs.get(peer.name) == mine for peer in self._there)

    @property
    def _waits(self) -> bool:
        """Whether something is still to be sent, so that lists would say the same again."""
        return bool(self.to_send or self.going[1])

    @property
    def _comparing(self) -> bool:
        return self.asked or (not self._settled and not self._waits)

    def _compare_due(self) -> float:
        pace = AGAIN_SECONDS / 2 if self.quick or self.asked else SLOW_SECONDS
        return self.told_at + max(pace, self._takes(list_bytes(self.account)) / LISTS)

    def _compare(self, now: float) -> list[Effect]:
        settled = self._settled
        self.told_at, self.asked, self.quick = now, False, max(0, self.quick - 1)
        self._offer(now)
        versions = pack_versions(self.account)
        return [SendHello(self.node.pack_body(VERSIONS, versions, now, not settled))]

    def _offer(self, now: float) -> None:
        """Send what a neighbour lacks, unless that is on its way already."""
        for peer in self._there:
            versions = self.theirs.get(peer.name)
            if versions is None:
                continue
            for name, entry in self.account.items():
                lacks = versions.get(mark_of(name), (-1, -1)) < entry.version
                refused = bool(peer.refuses & {mark_of(name), mark_of(self.node.name)})
                pause = REFUSED_SECONDS if refused else AGAIN_SECONDS
                size = len(self.sealed[name])
                again = max(pause * pieces.number(size), 2 * self._takes(size))
                late = now >= self.sent.get(name, float("-inf")) + again
                under_way = name in self.to_send or (self.going[1] and self.going[0] == name)
                if lacks and late and not under_way:
                    self._want(name)

    # -- the total ---------------------------------------------------------------------------
    @property
    def others(self) -> Account:
        """The entries of all other origins."""
        return {name: entry for name, entry in self.account.items() if name != self.node.name}

    @property
    def rows(self) -> int:
        """Rows in the total: all of this node's own, and those that others sent."""
        return self._own_rows[0] + sum(entry.sums.rows for entry in self.others.values())

    def _judge(self, now: float) -> None:
        """Look at what each origin's rows do to this node's own; solve again if one goes."""
        learner, before = self.learner, self.standing.out
        given = self.others, self.node.name, learner.own_sums(self.node.state), learner.rho
        self.standing = standing.judge(self.standing, *given, now)
        self.unsolved = self.unsolved or self.standing.out != before

    def _solve(self, now: float) -> list[Effect]:
        node, own = self.node, self.learner.own_sums(self.node.state)
        effects = list[Effect]()
        self.standing = standing.check_sizes(self.standing, self.others, own)
        if self.others:
            account, out = {**self.others, node.name: Entry(node.name, 0, own)}, self.standing.out
            self.kept = forgetting.remainders_now(self.kept, account, out, self.learner.fading)
            known = origins.total(account, out), forgetting.totals(self.kept, set(account) - out)
            state = self.learner.knowing(node.state, *known)
            self.hurt = self.learner.hurts(state)  # by flipped labels, say, which pass every check
            alone = own, forgetting.totals(self.kept, {node.name})
            node.state = self.learner.knowing(node.state, *alone) if self.hurt else state
        else:  # they have left the network, and take their rows with them
            node.state, self.kept, self.hurt = self.learner.forget_others(node.state), {}, False
            effects.append(Save())
        self.unsolved, self.solved_at = False, now
        self.node.step += 1
        self.node.combines += 1
        return effects

    def disputes(self, now: float) -> list[str]:
        """Whose rows hurt, in words."""
        return standing.problems(self.standing, now)

    def remarks(self, now: float) -> list[str]:
        """Whose rows are left out for now, which may be chance."""
        return standing.remarks(self.standing, self.hurt, now)

    @property
    def disagreement(self) -> float | None:
        """The share of rows that this account and a neighbour's do not have in common, in [0, 1],
        by what neighbours report to have, the mean over them; None while none has.
        """
        mine = unpack_versions(pack_versions(self.account))
        versions = [self.theirs[peer.name] for peer in self._there if peer.name in self.theirs]
        return sum(apart(mine, each) for each in versions) / len(versions) if versions else None

    def facts(self) -> dict[str, Any]:
        """For `/status`: rows by origin, and in the total."""
        rows = {name: entry.sums.rows for name, entry in sorted(self.others.items())}
        return {
            "rows": self.rows,
            "left_out": self.hurt,
            "hurting": sorted(self.standing.out),
            "origins": {**rows, self.node.name: self.learner.own_rows(self.node.state)},
        }

    # -- going back --------------------------------------------------------------------------
    def mark(self) -> dict[str, Any]:
        """All that changes."""
        return dict(vars(self))

    def back(self, mark: dict[str, Any]) -> None:
        """As it was at the mark."""
        vars(self).update(mark)
