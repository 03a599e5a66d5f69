"""A tool as a value: schema and checking come from one class, and texts are cut where they must be."""

from contextlib import suppress

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hive_agent._errors import AgentError, ToolRefused
from hive_agent._mcp._clamp import TEXT_LIMIT, clamp, cut, width
from hive_agent._mcp._messaging import ACK_UNTIL, RECV, SEND
from hive_agent._mcp._tool import MAX_INTEGER, Tool, argument


def test_the_schema_says_what_the_class_says():
    """SURF-3: what a model is shown is what is checked."""
    assert SEND.input_schema["required"] == ["to", "body"]
    assert {name: prop["type"] for name, prop in SEND.input_schema["properties"].items()} == {
        "to": "string",
        "body": "string",
        "in_reply_to": "integer",
    }
    assert RECV.input_schema["properties"]["max"]["minimum"] == 1
    assert all(prop["description"] and prop["examples"] for prop in SEND.input_schema["properties"].values())


@pytest.mark.parametrize("given_value", [12, 12.0, "12", " 12 "])
def test_a_whole_number_may_come_as_text_or_with_a_zero_fraction(given_value):
    """SURF-6: models write numbers in all these ways."""
    assert ACK_UNTIL.check({"up_to": given_value}).value.up_to == 12


@pytest.mark.parametrize(
    "wrong",
    [
        True,
        1.5,
        "twelve",
        "",
        "\N{FULLWIDTH DIGIT TWO}",
        [12],
        {"id": 12},
        0,
        -3,
        "-1",
        2**63,
        1e300,
        float("nan"),
        float("inf"),
    ],
)
def test_a_wrong_number_is_answered_with_the_field_the_rule_and_an_example(wrong):
    """SURF-6: one sentence, from which a model can mend its call."""
    with pytest.raises(
        ToolRefused, match=r"^`up_to` must be a whole number, 1 or more, but .* was given; for example 12$"
    ):
        ACK_UNTIL.check({"up_to": wrong})


@pytest.mark.parametrize("wrong", [12, True, ["x"], {"x": 1}, "half a pair \ud800"])
def test_text_must_be_text(wrong):
    """SURF-6: nothing that is not valid Unicode text reaches a mailbox."""
    with pytest.raises(ToolRefused, match="`body` must be text"):
        SEND.check({"to": "otto", "body": wrong})


def test_a_wrong_value_is_not_repeated_at_length():
    """SEC-5: a sentence never carries a body."""
    with pytest.raises(ToolRefused) as caught:
        ACK_UNTIL.check({"up_to": "secret" * 1000})
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("missing", [{}, {"to": None}])
def test_a_missing_argument_is_named(missing):
    """SURF-6: a null for a required argument is a missing one."""
    with pytest.raises(ToolRefused, match="`to` is missing: it must be text"):
        SEND.check({"body": "hello"} | missing)


def test_a_null_for_an_optional_argument_is_the_default():
    """SURF-6: models fill in every name of a schema."""
    assert SEND.check({"to": "otto", "body": "x", "in_reply_to": None}).value.in_reply_to is None


def test_unknown_names_are_ignored_and_reported():
    """ENV-1: they are for the log, not a reason to fail."""
    checked = RECV.check({"max": 2, "wait": True, "from": "otto"})
    assert checked.value.max == 2
    assert checked.ignored == ("from", "wait")


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(
        st.text(), st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists)
    )
)
def test_no_arguments_can_do_worse_than_be_refused(arguments):
    """REL-4: whatever comes, the answer is a value or a sentence."""
    for tool in (SEND, RECV, ACK_UNTIL):
        for name in [*tool.input_schema["properties"], "other"]:
            with suppress(ToolRefused):
                tool.check(arguments | {name: arguments.get("", None)})


def test_a_number_without_a_minimum_may_be_negative():
    """SURF-6: the bound of a row id holds both ways."""

    @attrs.frozen(kw_only=True)
    class Shift:
        by: int = argument("How far.", example=-1)

    async def never(_call, _arguments):
        raise AssertionError("not called")

    tool = Tool(name="shift", title="Shift", description="Shift it.", input_type=Shift, handler=never)
    assert tool.check({"by": "-4"}).value.by == -4
    with pytest.raises(ToolRefused, match="a whole number, but"):
        tool.check({"by": -MAX_INTEGER - 1})


@given(st.text(max_size=300), st.integers(min_value=0, max_value=100))
def test_a_cut_text_is_the_longest_beginning_that_fits(text, limit):
    """SURF-3: counted as the client counts, in UTF-16 units."""
    head = cut(text, limit)
    assert text.startswith(head)
    assert width(head) == len(head.encode("utf-16-le", "surrogatepass")) // 2 <= limit
    if head != text:
        assert width(text[: len(head) + 1]) > limit


@pytest.mark.parametrize("char", ["x", "ж", "🐝"])
def test_a_result_is_never_over_the_limit_and_says_how_much_is_left_out(char):
    """SURF-3: the client would cut it without a word."""
    text = clamp(char * 100_000)
    assert TEXT_LIMIT - 100 < width(text) <= TEXT_LIMIT
    assert f"{100_000 - text.count(char):,} more characters were left out" in text
    assert clamp("short") == "short"


def test_the_base_error_cannot_be_raised():
    """House rule: an error says whose fault it was."""
    with pytest.raises(TypeError, match="raise one of its leaves"):
        AgentError("something")
