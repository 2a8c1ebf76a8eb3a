"""What a model is asked for a summary with."""

from perdure.agent.context import ContextBuilder
from perdure.agent.summary import Part, request_by_record, summary_message, task_text, written_part
from perdure.base.ids import EntryId
from perdure.models.messages import Attachment, UserMessage, text_of
from perdure.testing.strict import check_encoding, check_pairing
from tests.agent.transcripts import Transcript, result, turn, user


def record(made: Transcript, cut: int, tokens: int, begin: int | None = None) -> Part:
    start = None if begin is None else EntryId(begin)
    return written_part(ContextBuilder(made.entries).places(), start, EntryId(cut), tokens)


def test_the_task_names_its_length_and_the_wishes() -> None:
    assert "at most 100 words" in task_text(None, 10)
    assert "at most 1500 words" in task_text(None, 100_000)
    assert "Half of that length" in task_text(None, 100, shorter=True)
    assert task_text("keep names", 100).endswith("keep names")


def test_a_record_tells_who_said_and_did_what_and_ends_at_the_cut() -> None:
    made = Transcript()
    made.add(user("hello"))
    made.add(turn("let me look", "a"))
    made.add(result("a", "found"))
    made.add(turn("failed", stop="error"))
    made.add(UserMessage([Attachment("ab" * 32, "image/png", "cat.png")]))
    made.add(user("newer"))
    text, after = record(made, 6, 1_000)
    assert after is None
    assert text.split("\n\n") == [
        "Person: hello",
        "Assistant: let me look",
        'Assistant calls t: {"n":"let me look"}',
        "Result of t: found",
        "Person: [image/png cat.png]",
    ]


def test_a_record_comes_in_parts_that_leave_nothing_out() -> None:
    made = Transcript()
    for number in range(20):
        made.add(user(f"<{number}> " + "x" * 100))
    made.add(user("summary of old"), head=3)
    begin, parts = None, []
    while True:
        part = record(made, 18, 100, begin)
        parts.append(part.text)
        if part.next is None:
            break
        begin = part.next
    assert parts[0].startswith("Earlier summary: summary of old")
    assert not any("Earlier summary" in part for part in parts[1:])
    assert [number for number in range(20) if f"<{number}>" in "".join(parts)] == list(range(2, 17))


def test_a_text_larger_than_a_part_is_cut_between_characters_and_says_so() -> None:
    made = Transcript()
    made.add(user("👨‍👩‍👧" * 5_000))
    made.add(user("new"))
    text, after = record(made, 2, 300)
    assert after is None
    assert len(text.encode()) < 1_000
    assert "bytes left out]" in text
    request = request_by_record(text, "task", "so far")
    check_encoding(request)
    check_pairing(request.messages)
    assert "<earlier-summary>\nso far\n</earlier-summary>" in text_of(request.messages[0])


def test_a_summary_is_well_formed_text() -> None:
    assert "\ud83d" not in text_of(summary_message("half \ud83d"))
