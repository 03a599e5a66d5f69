"""A turn of the real Claude CLI with no account: a scripted model asks for a file and reports what it says."""

import re
import sys
import tempfile
from pathlib import Path

import trio

from hive_agent.testing import (
    ScriptedModel,
    Usage,
    call,
    claude_command,
    claude_test_environment,
    open_scripted_model,
    say,
)


def script(notes: Path) -> ScriptedModel:
    """When it is woken the model reads its notes; what the tool answers it repeats."""
    model = ScriptedModel()
    model.when(last_user=re.compile("wake"), tools={"Read"}).reply(
        say("Let me look at my notes."),
        call("Read", file_path=str(notes)),
        usage=Usage(input=1200, output=30),
    )
    model.when(tool_result=("Read", "water the plants")).reply(
        lambda request: say(f"My notes say: {request.search('water.*')[0]}")
    )
    return model


async def main() -> int:
    """Run one turn and print its answer."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        notes = home / "notes.txt"
        notes.write_text("water the plants at six\n")
        model = script(notes)
        async with open_scripted_model(model) as served:
            with trio.fail_after(60):
                turn = await trio.run_process(
                    [claude_command(), "-p", "--tools", "Read"],
                    stdin=b"wake up",
                    env=claude_test_environment(home, served.base_url),
                    cwd=home,
                    capture_stdout=True,
                    check=False,
                )
        print(turn.stdout.decode().strip())
        print(f"{len(model.requests)} requests, {len(model.unmatched)} of them unmatched")
        return turn.returncode


if __name__ == "__main__":
    sys.exit(trio.run(main))
