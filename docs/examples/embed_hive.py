"""A hive inside another Trio program: one agent answers one question, and leaving the block stops everything."""

from pathlib import Path
from tempfile import TemporaryDirectory

import trio

from hive import AgentSettings, HiveConfig, RuntimeConfig, open_hive
from hive_agent.testing import ScriptedModel, call, open_scripted_model, say


async def main() -> None:
    model = ScriptedModel()  # stands in for a real model
    model.when(tool_result="mcp__hyperhive__send").reply(say("Done."))
    model.when(tool_result="mcp__hyperhive__recv").reply(call("mcp__hyperhive__send", to="operator", body="Forty-two."))
    model.when(last_user="unread").reply(call("mcp__hyperhive__recv"))

    with TemporaryDirectory() as folder:
        async with open_scripted_model(model) as served:
            runtime = RuntimeConfig(env={"ANTHROPIC_BASE_URL": served.base_url, "ANTHROPIC_API_KEY": "any"})
            config = HiveConfig(state_dir=Path(folder), agents={"ruth": AgentSettings(runtime=runtime)})
            async with open_hive(config) as hive:
                operator = hive.broker.mailbox("operator")
                await operator.send(to="ruth", body="What is six times seven?")
                await operator.wait_unread()
                answer = (await operator.recv()).deliveries[0].message
                await operator.ack_until(answer.id)  # handled: it never comes back
                print(f"{answer.sender}: {answer.body}")


trio.run(main)
