"""What ``set_status`` promises (SELF-1)."""

from __future__ import annotations

import pytest

from conformance._client import Caller
from conformance.plugin import Lacking

_LIMIT_CHARACTERS = 200


def _kept(caller: Caller) -> str:
    if caller.door.state_dir is None:
        raise Lacking("the state folders of the subject's agents cannot be read from here")
    file = caller.door.state_dir / "hyperhive-status"
    return file.read_text(encoding="utf-8").strip() if file.exists() else ""


@pytest.mark.contract("SELF-1")
async def test_a_status_is_kept_in_the_state_folder_until_it_is_cleared(iris: Caller) -> None:
    """SELF-1: the newest one; an empty one clears it."""
    for text in ("reading", "schreibt über Käfer, 3 of 7"):
        await iris.ok("set_status", text=text)
        assert _kept(iris) == text
    await iris.ok("set_status", text="")
    assert _kept(iris) == ""


@pytest.mark.contract("SELF-1")
async def test_a_status_has_at_most_two_hundred_characters(iris: Caller) -> None:
    """SELF-1: characters, not bytes; the refusal says the limit."""
    await iris.ok("set_status", text="ä" * _LIMIT_CHARACTERS)
    assert str(_LIMIT_CHARACTERS) in await iris.refused("set_status", text="a" * (_LIMIT_CHARACTERS + 1))


@pytest.mark.contract("SELF-1")
@pytest.mark.parametrize("text", ["one\ntwo", "one\r\ntwo", "one\u2028two"], ids=["line feed", "crlf", "separator"])
async def test_a_status_is_one_line(iris: Caller, text: str) -> None:
    """SELF-1: a second line has no room where it is shown."""
    assert (await iris.refused("set_status", text=text)).strip()


@pytest.mark.contract("SELF-1")
async def test_a_refused_status_leaves_the_old_one(iris: Caller) -> None:
    """SELF-1: nothing is done by halves."""
    await iris.ok("set_status", text="busy")
    await iris.refused("set_status", text="x" * (_LIMIT_CHARACTERS + 1))
    await iris.refused("set_status", text="one\ntwo")
    assert _kept(iris) == "busy"
