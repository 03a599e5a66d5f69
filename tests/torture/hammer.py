"""A process to be killed: works on mailboxes as fast as it can, and says of every call that it begins and how it ended.

Started as ``hammer.py inside DATABASE SEED`` (broker and all agents in one process), ``hammer.py server DATABASE
SOCKETS`` (the broker behind a socket for each agent) or ``hammer.py client SOCKET NAME SEED`` (one agent before its
socket). One line of JSON before and after each call; a kill leaves all of a line or, at the end, a piece of one.
"""

import json
import os
import random
import sys
import time
from functools import partial
from pathlib import Path

import trio

import hive_broker
from hive_broker import open_mailbox_client, serve_mailbox

AGENTS = ("iris", "otto", "ruth")
LEASE_SECONDS = 0.3
MAX_DELIVERIES = 4


def say(**facts):
    """Write one whole line in one call."""
    os.write(1, json.dumps(facts).encode() + b"\n")


class Journal:
    """Says what is called, and what came of it, with the instants at which it began and ended."""

    def __init__(self, agent, *, cancelled_is_void):
        self.agent = agent
        self._fate_of_cancelled = "void" if cancelled_is_void else "unknown"
        self._number = 0

    async def call(self, verb, work, shown, **facts):
        """Make one call; what it answers is said before this returns."""
        self._number += 1
        key = {"agent": self.agent, "number": self._number}
        say(**key, verb=verb, at=time.monotonic_ns(), facts=facts)
        try:
            answer = await work()
        except trio.Cancelled:
            say(**key, fate=self._fate_of_cancelled, at=time.monotonic_ns())
            raise
        except hive_broker.BrokerUnavailable as exc:
            say(**key, fate="unknown" if exc.may_be_done else "void", at=time.monotonic_ns())
            return None
        except hive_broker.MessageRefused:
            if verb != "wake":  # an inbox that is full takes no more of them
                raise
            say(**key, fate="void", at=time.monotonic_ns())
            return None
        say(**key, fate="answered", at=time.monotonic_ns(), answer=shown(answer))
        return answer


class Hammer:
    """All that one agent does at the same time."""

    def __init__(self, mailbox, wake, *, seed, cancelled_is_void):
        self.mailbox = mailbox
        self.wake = wake
        self.dice = random.Random(seed)  # noqa: S311 -- dice
        self.journal = Journal(mailbox.name, cancelled_is_void=cancelled_is_void)
        self.prefix = f"{mailbox.name}.{os.getpid()}"
        self.keys = 0
        self.seen = []

    async def run(self):
        """Until killed."""
        async with trio.open_nursery() as nursery:
            for work in (self.write, self.write, self.give_up, self.take_turns, self.take_for_a_while, self.be_woken):
                nursery.start_soon(work)

    def next_key(self):
        self.keys += 1
        return f"{self.prefix}.{self.keys}"

    async def send(self, **more):
        key = more.pop("key", None) or self.next_key()
        filler = "x" * self.dice.choice([0, 0, 0, 0, 100, 5000]) if "turn_id" not in more else ""
        message = {"to": self.dice.choice([*AGENTS, "operator"]), "body": f"{key} {filler}".strip()}
        if self.seen and self.dice.random() < 0.3:
            message["in_reply_to"] = self.dice.choice(self.seen)
        message |= more
        facts = {"key": key, "size": len(message["body"]), "to": message["to"]}
        return await self.journal.call(
            "send",
            partial(self.mailbox.send, **message),
            lambda sent: {"id": sent.id, "duplicate": sent.duplicate},
            **facts,
        )

    async def write(self):
        """Messages to everybody."""
        while True:
            await self.send()

    async def give_up(self):
        """Messages whose caller does not wait for long."""
        while True:
            with trio.move_on_after(self.dice.random() * 0.004):
                await self.send()
            await trio.sleep(0.001)

    async def recv(self, turn_id):
        limit = self.dice.randint(1, 5)
        received = await self.journal.call(
            "recv",
            partial(self.mailbox.recv, limit=limit, turn_id=turn_id),
            lambda received: {"popped": [[d.message.id, d.attempt] for d in received.deliveries]},
            turn=turn_id,
        )
        popped = [] if received is None else [delivery.message.id for delivery in received.deliveries]
        self.seen = [*self.seen, *popped][-50:]
        return popped

    async def take_turns(self):
        """Turns that pop, and end well or not."""
        while True:
            await self.mailbox.wait_unread()
            turn = await self.journal.call(
                "open_turn", partial(self.mailbox.open_turn, cause="mail"), lambda turn: {"turn": turn.id}
            )
            if turn is None:
                continue
            for _ in range(self.dice.randint(1, 3)):
                with trio.move_on_after(1 if self.dice.random() < 0.9 else self.dice.random() * 0.003):
                    await self.recv(turn.id)
            if self.dice.random() < 0.5:
                twice = {"key": self.next_key(), "turn_id": turn.id, "to": self.dice.choice(AGENTS)}
                twice["in_reply_to"] = None
                for _ in range(2):
                    await self.send(**twice)
            ending = self.dice.choices(["acked", "returned", "blameless"], [6, 3, 1])[0]
            how = {"acked": ending == "acked", "blameless": ending == "blameless", "record": {"ending": ending}}
            await self.journal.call(
                "close_turn",
                partial(self.mailbox.close_turn, turn.id, **how),
                lambda closed: {"acked": closed.acked, "returned": closed.returned, "dead": closed.dead},
                turn=turn.id,
                acked=how["acked"],
            )

    async def take_for_a_while(self):
        """Pops outside turns: most run out, some are acked."""
        while True:
            await self.mailbox.wait_unread()
            popped = await self.recv(None)
            if popped and self.dice.random() < 0.5:
                up_to = self.dice.choice(popped)
                await self.journal.call(
                    "ack_until",
                    partial(self.mailbox.ack_until, up_to),
                    lambda acked: {"acked": acked.acked, "never_read": acked.never_read},
                    up_to=up_to,
                )
            await trio.sleep(self.dice.random() * 0.02)

    async def be_woken(self):
        """Labels that say something now and then."""
        while True:
            key = self.next_key()
            await self.journal.call(
                "wake",
                partial(self.wake, label="ci", body=key),
                lambda id_: {"id": id_},
                key=key,
                size=len(key),
                to=self.mailbox.name,
            )
            await trio.sleep(self.dice.random() * 0.02)


def open_broker(database, *, lease_seconds=LEASE_SECONDS):
    """The broker as it is tortured: leases and lives are short, so that much comes back and some of it dies."""
    return hive_broker.open_broker(
        database, owner="to be killed", lease_seconds=lease_seconds, max_deliveries=MAX_DELIVERIES
    )


async def run_inside(database, seed):
    """Broker and agents in this process."""
    say(opening=True)
    async with open_broker(database) as broker, trio.open_nursery() as nursery:
        await broker.set_agents(AGENTS)
        for name in AGENTS:
            mailbox = broker.mailbox(name)

            async def wake(mailbox=mailbox, **words):
                return (await mailbox.wake(**words)).id

            hammer = Hammer(mailbox, wake, seed=f"{seed} {name}", cancelled_is_void=True)
            nursery.start_soon(hammer.run)


async def run_server(database, sockets):
    """The broker, and a door to it for each agent."""
    say(opening=True)
    async with open_broker(database) as broker, trio.open_nursery() as nursery:
        await broker.set_agents(AGENTS)
        for name in AGENTS:
            serve = partial(serve_mailbox, Path(sockets) / name, broker.mailbox(name), runs_turns=True)
            await nursery.start(serve)
        say(serving=True)


async def run_client(socket, name, seed):
    """One agent before its socket."""
    say(opening=True)

    async def wake(*, label, body):
        line = json.dumps({"cmd": "wake", "from": label, "body": body}).encode() + b"\n"
        written = False
        try:
            async with await trio.open_unix_socket(socket) as stream:
                written = True
                await stream.send_all(line)
                answer = b""
                while not answer.endswith(b"\n"):
                    chunk = await stream.receive_some()
                    if not chunk:
                        raise trio.BrokenResourceError
                    answer += chunk
        except (OSError, trio.BrokenResourceError) as exc:
            raise hive_broker.BrokerUnavailable("away", may_be_done=written) from exc
        said = json.loads(answer)
        if said["ok"]:
            return said["sent"]["id"]
        raise getattr(hive_broker, said["kind"].replace("Closed", "Unavailable"))(said["error"])

    async with open_mailbox_client(socket, name=name, runs_turns=True) as mailbox:
        await Hammer(mailbox, wake, seed=seed, cancelled_is_void=False).run()


MODES = {"inside": run_inside, "server": run_server, "client": run_client}

if __name__ == "__main__":
    trio.run(MODES[sys.argv[1]], *sys.argv[2:])
