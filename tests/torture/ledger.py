"""What killed processes had been told, held against what the database says: every promise as one check."""

import json
from collections import Counter, defaultdict

import attrs
from hammer import AGENTS, MAX_DELIVERIES


@attrs.define
class Call:
    """One call of a process that is dead now.

    ``fate`` is ``answered``; ``void``: refused or cancelled, so that nothing was done; ``unknown``: cancelled, or the
    broker went away; ``open``: the process was killed meanwhile.
    """

    verb: str
    agent: str
    facts: dict
    began: int
    fate: str = "open"
    ended: int | None = None
    answer: dict = attrs.field(factory=dict)


def calls_of(lines):
    """The calls that one process spoke of."""
    calls = {}
    for line in lines:
        if "number" not in line:
            continue
        key = (line["agent"], line["number"])
        if "verb" in line:
            calls[key] = Call(line["verb"], line["agent"], line["facts"], line["at"])
        else:
            calls[key].fate, calls[key].ended = line["fate"], line["at"]
            calls[key].answer = line.get("answer", {})
    return list(calls.values())


class Ledger:
    """All calls of all processes, and the rows as they are in the end.

    Args:
        calls: of ``calls_of``.
        deaths: of whoever held the broker.
        rows: of the table of messages, by id, as dictionaries.
        turns: of the table of turns, by id.
    """

    def __init__(self, calls, deaths, rows, turns):
        self.deaths = deaths
        self.rows = rows
        self.turns = turns
        self.by_verb = defaultdict(list)
        for call in calls:
            self.by_verb[call.verb].append(call)
        self.writes = self.by_verb["send"] + self.by_verb["wake"]
        self.notices = {
            id_: json.loads(row["body"])
            for id_, row in rows.items()
            if (row["sender"], row["from_mailbox"]) == ("system", 0)
        }

    def answered(self, verb):
        return [call for call in self.by_verb[verb] if call.fate == "answered"]

    def check(self):
        """Every promise."""
        self.check_nothing_acknowledged_is_lost()
        self.check_every_row_was_asked_for_once()
        self.check_what_was_cancelled_was_not_done()
        self.check_ids()
        self.check_handled_rows_stay_handled()
        self.check_rows_are_handled_by_somebody_who_saw_them()
        self.check_attempts()
        self.check_dead_letters()
        self.check_turns()

    def check_nothing_acknowledged_is_lost(self):
        """MSG-1: what was answered with an id is there under it, whole."""
        for call in self.writes:
            if call.fate == "answered":
                row = self.rows.get(call.answer["id"])
                assert row is not None, f"lost: {call}"
                sender = call.agent if call.verb == "send" else "ci"
                assert (row["sender"], row["recipient"]) == (sender, call.facts["to"]), f"changed: {call}"
                assert (row["body"].split(" ")[0], len(row["body"])) == (call.facts["key"], call.facts["size"])

    def check_every_row_was_asked_for_once(self):
        """MSG-9: no row that nobody wrote, no two of one key; a repeated send has the first one's id."""
        asked = {call.facts["key"] for call in self.writes if call.fate != "void"}
        found = Counter(row["body"].split(" ")[0] for id_, row in self.rows.items() if id_ not in self.notices)
        assert not set(found) - asked, "rows that nobody wrote"
        assert not [key for key, number in found.items() if number > 1], "messages that are there twice"
        ids = defaultdict(list)
        for call in self.writes:
            if call.fate == "answered":
                ids[call.facts["key"]].append((call.ended, call.answer["id"], call.answer.get("duplicate", False)))
        for key, answers in ids.items():
            assert len({id_ for _, id_, _ in answers}) == 1, f"two ids for {key}"
            assert all(duplicate for _, _, duplicate in sorted(answers)[1:]), f"{key} was stored anew"
        owners = Counter(answers[0][1] for answers in ids.values())
        assert not [id_ for id_, number in owners.items() if number > 1], "ids that were given out twice"

    def check_what_was_cancelled_was_not_done(self):
        """EMBED-1: a call that was cancelled, or refused, changed nothing."""
        void = {call.facts["key"] for call in self.writes if call.fate == "void"}
        assert not void & {row["body"].split(" ")[0] for row in self.rows.values()}

    def check_ids(self):
        """REL-5: ids have no gap but where a broker was killed with ids noted and not committed, one at each death."""
        ids = sorted(self.rows)
        gaps = [(low, high) for low, high in zip([0, *ids], ids, strict=False) if high > low + 1]
        sends = [call for call in self.writes if call.fate == "answered" and not call.answer.get("duplicate")]
        used = set()
        for low, high in gaps:
            latest = max((call.began for call in sends if call.answer["id"] <= low), default=0)
            first = min((call.ended for call in sends if call.answer["id"] >= high), default=None)
            explained = {
                number
                for number, death in enumerate(self.deaths)
                if latest < death.to_ns and (first is None or first > death.from_ns) and number not in used
            }
            assert explained, f"ids {low + 1} to {high - 1} are missing and nobody was killed then"
            used.add(min(explained))

    def check_handled_rows_stay_handled(self):
        """REL-1, MSG-5, MSG-7: what a call acked is acked for ever, and no later call pops it."""
        acked_at = {}
        for call in self.answered("close_turn"):
            for id_ in call.answer["acked"]:
                acked_at[id_] = min(call.ended, acked_at.get(id_, call.ended))
        for call in self.answered("ack_until"):
            for id_, row in self.rows.items():
                if row["recipient"] == call.agent and id_ <= call.facts["up_to"]:
                    assert row["acked_at"] is not None or row["dead_at"] is not None, f"{id_} is not handled: {call}"
                    if row["acked_at"] is not None:
                        acked_at[id_] = min(call.ended, acked_at.get(id_, call.ended))
        for id_ in acked_at:
            assert self.rows[id_]["acked_at"] is not None, f"{id_} was acked and is not"
        for call in self.answered("recv"):
            for id_, _ in call.answer["popped"]:
                assert call.began < acked_at.get(id_, call.began + 1), f"{id_} came back: {call}"

    def check_rows_are_handled_by_somebody_who_saw_them(self):
        """MSG-5: a row is acked because somebody acked up to it, or because a turn that had got it ended well."""
        up_to = defaultdict(int)
        for call in self.by_verb["ack_until"]:
            up_to[call.agent] = max(up_to[call.agent], call.facts["up_to"])
        got = {(call.facts["turn"], id_) for call in self.answered("recv") for id_, _ in call.answer["popped"]}
        ended_well = {call.facts["turn"] for call in self.by_verb["close_turn"] if call.facts["acked"]}
        for id_, row in self.rows.items():
            if row["acked_at"] is not None and id_ > up_to[row["recipient"]]:
                assert row["turn_id"] in ended_well, f"{id_} is acked, and nobody did it"
                assert (row["turn_id"], id_) in got, f"{id_} is acked by a turn that never got it"

    def check_attempts(self):
        """MSG-5: every pop counts once, and no row was popped more often than somebody asked."""
        seen = defaultdict(list)
        for call in self.answered("recv"):
            for id_, attempt in call.answer["popped"]:
                assert self.rows[id_]["recipient"] == call.agent, "a row of somebody else"
                seen[id_].append(attempt)
        unheard = Counter(call.agent for call in self.by_verb["recv"] if call.fate in ("open", "unknown"))
        for id_, row in self.rows.items():
            attempts = seen[id_]
            assert len(set(attempts)) == len(attempts), f"{id_} was in two places: attempts {sorted(attempts)}"
            assert max(attempts, default=0) <= row["attempts"], f"an attempt at {id_} is forgotten"
            assert row["attempts"] <= len(attempts) + unheard[row["recipient"]], f"{id_} was popped by nobody"

    def check_dead_letters(self):
        """MSG-6: a row is dead after so many failures and not before; its sender is told once."""
        told = Counter(notice["id"] for notice in self.notices.values() if notice["event"] == "dead_letter")
        for id_, row in self.rows.items():
            is_dead = row["dead_at"] is not None
            assert is_dead == (row["failures"] >= MAX_DELIVERIES), f"{id_}: {row}"
            is_told = is_dead and row["from_mailbox"] == 1
            assert told[id_] == is_told, f"{id_}: its sender was told {told[id_]} times"

    def check_turns(self):
        """TURN-4, REL-5: turns of one agent follow one another, each with an id of its own."""
        opened = [call.answer["turn"] for call in self.answered("open_turn")]
        assert len(set(opened)) == len(opened), "a turn's id was given out twice"
        # What a recv without an answer may have popped is not acked by a turn that ends well: it comes again.
        unheard = {call.facts["turn"] for call in self.by_verb["recv"] if call.fate == "unknown"}
        for call in self.answered("close_turn"):
            turn = call.facts["turn"]
            expected = {
                "acked" if call.facts["acked"] else "returned",
                "lost",
                *(["returned"] if turn in unheard else []),
            }
            assert self.turns[turn]["outcome"] in expected, f"{self.turns[turn]}: {call}"
        for name in AGENTS:
            last = 0.0
            for _, turn in sorted((id_, turn) for id_, turn in self.turns.items() if turn["agent"] == name):
                assert turn["closed_at"] is not None
                assert last <= turn["opened_at"], "two turns at once"
                last = turn["closed_at"]
