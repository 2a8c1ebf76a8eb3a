"""How many tokens a context takes."""

import pytest

from perdure.agent.context import build_context
from perdure.agent.estimate import (
    IMAGE_TOKENS,
    estimate_message,
    estimate_messages,
    estimate_text,
    estimate_tools,
    tokens_in_use,
)
from perdure.models.messages import (
    AssistantMessage,
    Attachment,
    Message,
    SystemMessage,
    Text,
    ToolCall,
    ToolOffer,
    Usage,
    UserMessage,
)
from tests.agent.transcripts import Transcript, result, system, transcript, turn, user


def test_english_takes_about_a_token_for_four_letters() -> None:
    assert estimate_text("") == 0
    assert estimate_text("abc") == 1
    assert estimate_text("word " * 800) == 1_000


@pytest.mark.parametrize("text", ["日本語の文章です", "한국어 문장입니다", "👩‍👩‍👧‍👦👩‍👩‍👧‍👦"])
def test_scripts_with_one_sign_a_word_take_far_more_than_a_quarter_of_a_token_each(text: str) -> None:
    assert estimate_text(text) > len(text) / 2


def test_half_a_surrogate_pair_is_no_obstacle() -> None:
    assert estimate_text("\ud83d") == 1


def test_an_image_takes_the_same_whatever_its_name_and_a_call_counts_its_arguments() -> None:
    picture = UserMessage([Text("look"), Attachment("0" * 64, "image/png", name="n" * 500)])
    assert IMAGE_TOKENS < estimate_message(picture) < IMAGE_TOKENS + 20
    small = AssistantMessage([ToolCall("x", "write", {"text": ""})])
    large = AssistantMessage([ToolCall("x", "write", {"text": "a" * 30_000})])
    raw = AssistantMessage([ToolCall("x", "write", "a" * 30_000)])
    assert estimate_message(small) < 20
    assert 7_000 < estimate_message(large) < 12_000
    assert 7_000 < estimate_message(raw) < 12_000


def test_tools_and_changes_of_the_prompt_count() -> None:
    offer = ToolOffer("read", "d" * 400, {"type": "object", "properties": {"path": {"type": "string"}}})
    assert 110 < estimate_tools([offer]) < 150
    assert estimate_message(SystemMessage(sections={"a": "t" * 400, "b": None}, tools=[offer])) > 210


def test_the_reported_usage_counts_with_an_estimate_of_what_came_after() -> None:
    after: list[Message] = [result("x", "r" * 4_000), user("next")]
    context = build_context(
        transcript(system(A="s" * 9_000), user("u" * 9_000), turn("a", "x", usage=Usage(input=100, output=20)), *after)
    )
    assert tokens_in_use(context) == 120 + estimate_messages(after)


def test_without_a_report_everything_is_estimated_the_prompt_once() -> None:
    messages: list[Message] = [user("u" * 400), turn("a" * 400)]
    context = build_context(transcript(system(A="s" * 400), *messages, system(A="t" * 400)))
    assert tokens_in_use(context) == 100 + estimate_messages(messages)


def test_an_answer_from_before_a_summary_does_not_count_as_a_report() -> None:
    made = Transcript()
    made.add(user("go"))
    kept = made.add(turn("huge", usage=Usage(input=900_000)))
    assert tokens_in_use(build_context(made.entries)) == 900_000
    made.add(user("summary"), head=kept)
    assert tokens_in_use(build_context(made.entries)) < 100
