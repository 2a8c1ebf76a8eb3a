"""What strict providers ask of a message list, and that foreign lists are put right."""

import pytest

from perdure.agent.pairing import NO_OUTPUT, NO_RESULT, NO_TEXT, check_pairing, paired
from perdure.base.errors import InvalidValue
from perdure.models.messages import (
    AssistantMessage,
    Attachment,
    Message,
    SystemMessage,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from tests.agent.transcripts import result, system, told, turn, user


def sent(*messages: Message) -> list[str]:
    made = paired(messages)
    check_pairing(made)
    assert paired(made) == made
    return told(made)


def test_results_stand_behind_their_turn_in_the_order_of_the_calls() -> None:
    assert sent(turn("", "x", "y", "z"), result("z", "3"), user("steer"), system(A="s"), result("x", "1")) == [
        "a:[x,y,z]", "r:x=1", "r:y=?", "r:z=3", "u:steer", "s:A",
    ]  # fmt: skip


def test_a_call_without_a_result_gets_an_error_result() -> None:
    assert paired([turn("", "x")])[1] == ToolResultMessage("x", "t", NO_RESULT, is_error=True)


def test_the_first_of_two_results_wins_and_results_without_a_call_are_dropped() -> None:
    assert sent(result("x", "0"), turn("", "x"), result("x", "1"), result("x", "2"), result("y", "3")) == [
        "a:[x]", "r:x=1",
    ]  # fmt: skip


def test_ids_that_repeat_are_made_unique_in_call_and_result_alike() -> None:
    assert sent(
        turn("1", "x"), result("x", "1"), turn("2", "x-2", "x"), result("x", "3"), result("x-2", "2"), turn("3", "x"),
        user("u"), result("x", "4"),
    ) == ["a:1[x]", "r:x=1", "a:2[x-2,x-3]", "r:x-2=2", "r:x-3=3", "a:3[x-4]", "r:x-4=4", "u:u"]  # fmt: skip


def test_an_id_is_the_same_whatever_comes_later() -> None:
    messages: list[Message] = [turn("1", "x"), turn("2", "x", ""), turn("3", "x", "")]
    whole = told(paired(messages))
    for count in range(len(messages)):
        part = told(paired(messages[:count]))
        assert whole[: len(part)] == part


def test_an_empty_id_and_one_that_fills_the_limit_get_ids_that_providers_take() -> None:
    long = "i" * 64
    assert sent(turn("1", "", ""), turn("2", long), turn("3", long)) == [
        "a:1[call,call-2]", "r:call=?", "r:call-2=?", f"a:2[{long}]", f"r:{long}=?", f"a:3[{long[:62]}-2]",
        f"r:{long[:62]}-2=?",
    ]  # fmt: skip


def test_one_turn_may_use_one_id_for_two_tools() -> None:
    answer = AssistantMessage([ToolCall("x", "read", {}), ToolCall("x", "bash", {})])
    made = paired([answer, ToolResultMessage("x", "bash", "b"), ToolResultMessage("x", "read", "r")])
    assert made[1:] == [ToolResultMessage("x", "read", "r"), ToolResultMessage("x-2", "bash", "b")]


def test_a_result_carries_the_name_of_its_call() -> None:
    assert paired([turn("", "x"), ToolResultMessage("x", "renamed", "r")])[1] == ToolResultMessage("x", "t", "r")


def test_results_of_a_failed_attempt_do_not_go_to_an_older_call_with_the_same_id() -> None:
    assert sent(turn("1", "x"), turn("2", "x", stop="aborted"), result("x", "2")) == ["a:1[x]", "r:x=?"]


def test_system_messages_before_the_first_answer_stand_at_the_front() -> None:
    before: list[Message] = [user("u"), system(A="1"), turn("half", stop="error"), user("v"), system(B="2")]
    assert sent(*before, turn("a"), system(C="3")) == ["s:A", "s:B", "u:u", "u:v", "a:a", "s:C"]


def test_nothing_is_sent_empty() -> None:
    assert paired([user(" \n"), UserMessage([]), UserMessage([Text(""), Text("x")])]) == [
        user(NO_TEXT), user(NO_TEXT), UserMessage([Text("x")]),
    ]  # fmt: skip
    assert paired([turn("", "x"), result("x", "")])[1] == result("x", NO_OUTPUT)
    assert paired([SystemMessage(), AssistantMessage([]), AssistantMessage([Text(" ")])]) == []
    picture = UserMessage([Attachment("00", "image/png")])
    assert paired([picture]) == [picture]


def test_an_answer_of_thoughts_only_is_left_out_and_signed_thoughts_are_kept() -> None:
    signed = Thinking("", signature="s")
    assert paired([AssistantMessage([signed])]) == []
    answer = AssistantMessage([signed, Thinking(""), Text("", provider={"signature": "s"}), Text("a")])
    assert paired([answer]) == [AssistantMessage([answer.content[0], answer.content[2], answer.content[3]])]


def test_messages_that_are_right_go_through_as_the_same_objects() -> None:
    messages: list[Message] = [system(A="1"), user("u"), turn("a", "x"), result("x"), turn("b")]
    assert all(a is b for a, b in zip(paired(messages), messages, strict=True))


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([result("x")], "not due"),
        ([turn("", "x")], "no result"),
        ([turn("", "x"), user("u"), result("x")], "no result"),
        ([turn("", "x", "y"), result("y"), result("x")], "not due"),
        ([turn("", "x"), result("x"), result("x")], "not due"),
        ([turn("", "x"), result("x"), turn("", "x"), result("x")], "used before"),
        ([turn("", ""), result("")], "empty"),
        ([turn("", "x"), ToolResultMessage("x", "other", "r")], "another tool"),
        ([turn("half", stop="aborted")], "failed attempt"),
        ([user("")], "nothing in it"),
        ([UserMessage([Text("a"), Text(" ")])], "nothing in it"),
        ([AssistantMessage([Thinking("hm")])], "nothing in it"),
        ([SystemMessage()], "changes nothing"),
    ],
    ids=str,
)
def test_a_strict_check_finds_each_fault(messages: list[Message], fault: str) -> None:
    with pytest.raises(InvalidValue, match=fault):
        check_pairing(messages)
