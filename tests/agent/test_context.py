"""The context that a model reads: heads, edits, pairing, and the same result however it was reached."""

import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.agent.context import ContextBuilder, ContextEntry, build_context, for_model
from perdure.agent.pairing import check_pairing
from perdure.agent.prompt import whole
from perdure.base.errors import InvalidValue
from perdure.base.ids import ConversationId, EntryId
from perdure.models.messages import Message, SystemMessage, Usage, encode_messages
from perdure.storage.records import Entry
from tests.agent.transcripts import (
    Transcript,
    random_transcript,
    random_transcripts,
    result,
    slowly,
    system,
    told,
    told_without_ids,
    transcript,
    turn,
    user,
)

PROMPT_CHANGES: list[Message] = [
    user("go"),
    system("read", A="one", B="two"),
    turn("ok"),
    system("read", "bash", A="three"),
    user("on"),
]


def seen(entries: list[ContextEntry]) -> list[str]:
    messages = build_context(entries).messages
    check_pairing(messages)
    return told(messages)


def test_a_stored_entry_is_decoded_to_its_light_view() -> None:
    stored = Entry(EntryId(4), ConversationId(1), 2, "perdure.user", 1, encode_messages([user("hi")]), head=EntryId(3))
    assert ContextEntry.of(stored) == ContextEntry(EntryId(4), "perdure.user", [user("hi")], EntryId(3), None)
    assert ContextEntry.of(Entry(EntryId(5), ConversationId(1), 2, "app.note", 1)).messages == []


def test_entries_without_messages_and_failed_attempts_are_left_out() -> None:
    made = Transcript()
    made.add(user("hi"))
    made.add()
    made.add(turn("half", stop="aborted"))
    made.add(turn("broken", "x", stop="error"))
    made.add(turn("hello"))
    assert seen(made.entries) == ["u:hi", "a:hello"]


def test_the_range_begins_at_the_newest_head() -> None:
    made = Transcript()
    made.add(user("old"))
    made.add(user("first"), head=0)
    made.add(user("second"), head=0)
    made.add(turn("new"))
    assert seen(made.entries) == ["u:second", "a:new"]


def test_a_summary_stands_in_front_of_what_it_kept() -> None:
    made = Transcript()
    made.add(user("old"))
    made.add(turn("older answer"))
    kept = made.add(user("kept"))
    made.add(turn("kept answer"))
    made.add(user("summary"), head=kept)
    made.add(user("next"))
    assert seen(made.entries) == ["u:summary", "u:kept", "a:kept answer", "u:next"]


def test_a_summary_may_also_take_the_place_of_the_last_entry_it_tells_of() -> None:
    made = Transcript()
    made.add(user("old"))
    last = made.add(turn("older answer"))
    made.add(user("kept"))
    made.add(user("summary"), head=last, edits=last)
    made.add(user("edit of what is gone"), edits=last)
    assert seen(made.entries) == ["u:summary", "u:kept"]


def test_a_summary_placed_inside_a_tool_round_does_not_part_the_pair_and_only_the_newest_is_seen() -> None:
    made = Transcript()
    made.add(user("old"))
    kept = made.add(turn("works", "x"))
    made.add(user("summary 1"), head=kept)
    made.add(result("x"))
    made.add(turn("end"))
    assert seen(made.entries) == ["u:summary 1", "a:works[x]", "r:x=done", "a:end"]
    made.add(user("summary 2"), head=kept)
    assert seen(made.entries) == ["u:summary 2", "a:works[x]", "r:x=done", "a:end"]
    made.add(user("summary 3"), head=5)
    assert seen(made.entries) == ["u:summary 3", "a:end"]


def test_a_summary_can_be_edited_and_can_be_summarized() -> None:
    made = Transcript()
    made.add(user("old"))
    kept = made.add(user("kept"))
    summary = made.add(user("summary"), head=kept)
    made.add(user("better summary"), edits=summary)
    assert seen(made.entries) == ["u:better summary", "u:kept"]
    made.add(user("summary of summary"), head=summary, edits=summary)
    made.add(user("next"))
    assert seen(made.entries) == ["u:summary of summary", "u:next"]


def test_the_newest_edit_wins_and_an_edit_can_be_edited() -> None:
    made = Transcript()
    said = made.add(user("said"))
    made.add(user("after"))
    first = made.add(user("edit 1"), edits=said)
    assert seen(made.entries) == ["u:edit 1", "u:after"]
    second = made.add(user("edit 2"), edits=said)
    made.add(user("edit of the edit that lost"), edits=first)
    assert seen(made.entries) == ["u:edit 2", "u:after"]
    made.add(user("edit of edit 2"), edits=second)
    assert seen(made.entries) == ["u:edit of edit 2", "u:after"]
    made.add(edits=said)
    assert seen(made.entries) == ["u:after"]


def test_an_edit_of_what_lies_before_the_range_stands_nowhere() -> None:
    made = Transcript()
    old = made.add(user("old"))
    made.add(user("new"), head=0)
    made.add(user("edit"), edits=old)
    assert seen(made.entries) == ["u:new"]


def test_results_of_a_turn_that_was_edited_away_are_dropped_even_if_an_older_call_has_the_same_id() -> None:
    made = Transcript()
    made.add(turn("lost", "x"))
    away = made.add(turn("away", "x"))
    made.add(result("x", "of away"))
    made.add(edits=away)
    assert seen(made.entries) == ["a:lost[x]", "r:x=?"]


def test_an_edited_result_stays_with_its_call() -> None:
    made = Transcript()
    made.add(turn("", "x", "y"))
    long = made.add(result("x", "a long result"))
    made.add(result("y"))
    made.add(user("next"))
    made.add(result("x", "shortened"), edits=long)
    assert seen(made.entries) == ["a:[x,y]", "r:x=shortened", "r:y=done", "u:next"]
    made.add(edits=long)
    assert seen(made.entries) == ["a:[x,y]", "r:x=?", "r:y=done", "u:next"]


def test_an_older_head_is_followed_back_by_the_builder_that_holds_it_and_refused_by_another() -> None:
    made = Transcript()
    made.add(user("old"))
    made.add(user("new"), head=0)
    made.add(user("newer"), head=0)
    builder = ContextBuilder()
    for entry in made.entries:
        builder.append(entry)
    assert told(builder.messages()) == ["u:newer"]
    back = ContextEntry(EntryId(4), "test", head=EntryId(1))
    assert not builder.covers(back)
    with pytest.raises(InvalidValue, match="before what is held"):
        builder.append(back)
    assert told(build_context([*made.entries, back]).messages) == ["u:old", "u:new", "u:newer"]
    builder.append(ContextEntry(EntryId(4), "test", head=EntryId(2)))
    assert told(builder.messages()) == ["u:new", "u:newer"]


def test_the_context_of_an_earlier_moment_can_be_had_across_one_head() -> None:
    made = Transcript()
    made.add(user("old"))
    made.add(turn("answer"))
    builder = ContextBuilder(made.entries)
    before = builder.context()
    for entry in (
        ContextEntry(EntryId(3), "test", [user("edited")], edits=EntryId(1)),
        ContextEntry(EntryId(4), "test", [user("new")], head=EntryId(4)),
    ):
        builder.append(entry)
        builder.context()
    assert builder.context_up_to(EntryId(2)) == before
    assert told(builder.context_up_to(EntryId(3)).messages) == ["u:edited", "a:answer"]
    assert builder.context_up_to(EntryId(9)) is builder.context()
    builder.append(ContextEntry(EntryId(5), "test", [user("newest")], head=EntryId(5)))
    assert told(builder.context_up_to(EntryId(4)).messages) == ["u:new"]
    with pytest.raises(InvalidValue, match="not held"):
        builder.context_up_to(EntryId(3))


@pytest.mark.slow
@given(random_transcripts, st.integers(1, 40))
@settings(max_examples=300)
def test_the_context_up_to_an_entry_is_the_one_that_was_built_there(entries: list[ContextEntry], newest: int) -> None:
    whole_history = [ContextEntry(entry.id, entry.kind, entry.messages, None, entry.edits) for entry in entries]
    assert ContextBuilder(whole_history).context_up_to(EntryId(newest)) == build_context(whole_history[:newest])


def test_entries_come_in_the_order_of_their_ids() -> None:
    with pytest.raises(InvalidValue, match="not newer"):
        build_context([ContextEntry(EntryId(2), "test"), ContextEntry(EntryId(2), "test")])


def test_a_snapshot_never_changes_under_a_model() -> None:
    builder = ContextBuilder(transcript(user("go"), turn("", "x")))
    before = builder.messages()
    assert before is builder.messages()
    builder.append(ContextEntry(EntryId(3), "test", [result("x")]))
    builder.append(ContextEntry(EntryId(4), "test", [user("next")]))
    assert told(before) == ["u:go", "a:[x]", "r:x=?"]
    assert told(builder.messages()) == ["u:go", "a:[x]", "r:x=done", "u:next"]


def test_an_entry_that_adds_no_messages_leaves_the_snapshot_alone() -> None:
    builder = ContextBuilder(transcript(user("go")))
    before = builder.context()
    builder.append(ContextEntry(EntryId(2), "app.note"))
    assert builder.context() is before


def test_a_model_without_system_updates_gets_the_folded_prompt() -> None:
    context = build_context(transcript(*PROMPT_CHANGES))
    view = for_model(context, system_updates=False)
    assert view.system == "three\n\ntwo"
    assert told(view.messages) == ["u:go", "a:ok", "u:on"]
    assert [tool.name for tool in view.tools] == ["read", "bash"]


def test_a_model_with_system_updates_gets_the_first_prompt_and_each_change_at_its_place() -> None:
    context = build_context(transcript(*PROMPT_CHANGES))
    view = for_model(context, system_updates=True)
    assert view.system == "one\n\ntwo"
    assert told(view.messages) == ["u:go", "a:ok", "s:A", "u:on"]
    assert [tool.name for tool in view.tools] == ["read", "bash"]


def test_a_context_without_a_prompt_goes_as_it_is() -> None:
    view = for_model(build_context(transcript(user("go"))), system_updates=True)
    assert (view.system, told(view.messages), view.tools) == ("", ["u:go"], [])


def test_a_range_that_begins_anew_may_bring_the_whole_prompt_with_its_summary() -> None:
    made = Transcript()
    made.add(user("old"))
    made.add(system("read", A="one", B="two"))
    made.add(turn("ok"))
    kept = made.add(user("kept"))
    made.add(turn("fine"))
    prompt = whole(build_context(made.entries).prompt)
    assert prompt is not None
    made.add(user("summary"), prompt, head=kept)
    context = build_context(made.entries)
    assert told(context.messages) == ["s:A,B", "u:summary", "u:kept", "a:fine"]
    assert for_model(context, system_updates=True).system == "one\n\ntwo"


def test_usage_from_before_a_summary_or_an_edit_measures_nothing() -> None:
    made = Transcript()
    made.add(user("go"))
    kept = made.add(turn("big", usage=Usage(input=9)))
    assert build_context(made.entries).measured == 1
    summary = made.add(user("summary"), head=kept)
    assert build_context(made.entries).measured is None
    made.add(turn("small", usage=Usage(input=2)))
    assert build_context(made.entries).measured == 2
    made.add(user("other summary"), edits=summary)
    assert build_context(made.entries).measured is None


@given(random_transcripts)
@pytest.mark.slow
@settings(max_examples=1_000)
def test_any_transcript_gives_what_the_rules_say_and_what_a_strict_provider_takes(entries: list[ContextEntry]) -> None:
    messages = build_context(entries).messages
    check_pairing(messages)
    assert told_without_ids(messages) == slowly(entries)


@pytest.mark.slow
def test_after_any_number_of_summaries_and_restarts_at_most_the_newest_is_seen() -> None:
    for seed in range(2_000):
        summaries = [
            msgspec.structs.replace(entry, messages=[user("summary"), *entry.messages], edits=None)
            if entry.head is not None and entry.head < entry.id
            else entry
            for entry in random_transcript(seed, 25)
        ]
        messages = build_context(summaries).messages
        check_pairing(messages)
        assert told(messages).count("u:summary") <= 1


@given(random_transcripts, st.data())
@pytest.mark.slow
@settings(max_examples=300)
def test_growing_step_by_step_gives_the_same_as_building_from_scratch(
    entries: list[ContextEntry], data: st.DataObject
) -> None:
    builder = ContextBuilder()
    for count, entry in enumerate(entries, 1):
        if not builder.covers(entry):
            builder = ContextBuilder(entries[: count - 1])
        builder.append(entry)
        if data.draw(st.booleans()):
            assert builder.context() == build_context(entries[:count])
    assert builder.context() == build_context(entries)


@given(random_transcripts, st.integers(0, 30), st.integers(0, 30))
@pytest.mark.slow
@settings(max_examples=300)
def test_a_range_cut_anywhere_by_a_fork_or_a_head_still_pairs(
    entries: list[ContextEntry], begin: int, end: int
) -> None:
    for system_updates in (False, True):
        view = for_model(build_context(entries[begin:end]), system_updates)
        check_pairing(view.messages)
        assert system_updates or not any(isinstance(message, SystemMessage) for message in view.messages)


@given(random_transcripts)
@pytest.mark.slow
@settings(max_examples=300)
def test_what_was_sent_stays_at_the_front_while_a_conversation_only_grows(entries: list[ContextEntry]) -> None:
    """Only a result that comes late, a head, an edit or a system message before the first answer may change it."""
    plain = [ContextEntry(entry.id, entry.kind, entry.messages) for entry in entries]
    builder = ContextBuilder()
    before: list[str] = []
    answered = False
    for entry in plain:
        builder.append(entry)
        now = told(builder.messages())
        if answered:
            same = [old for old, new in zip(before, now, strict=False) if old != new]
            assert all(line.endswith("=?") for line in same)
            assert len(now) >= len(before)
        before, answered = now, any(line.startswith("a:") for line in now)


@pytest.mark.slow
def test_turn_two_thousand_costs_about_what_turn_one_hundred_costs() -> None:
    builder = ContextBuilder()

    def turns(begin: int, count: int) -> float:
        started = time.perf_counter()
        for number in range(begin, begin + count):
            said: list[Message] = [user("go"), turn("", f"c{number}"), result(f"c{number}"), turn("ok")]
            for offset, message in enumerate(said):
                builder.append(ContextEntry(EntryId(number * 4 + offset + 1), "test", [message]))
                for_model(builder.context(), system_updates=False)
        return (time.perf_counter() - started) / count

    turns(0, 50)
    early = turns(50, 100)
    turns(150, 1_800)
    late = min(turns(1_950, 50), turns(2_000, 50))
    assert late < early * 4 + 0.001
