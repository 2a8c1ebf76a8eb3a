"""The system prompt as stored changes: what is folded is what was rendered, step by step."""

from hypothesis import given
from hypothesis import strategies as st

from perdure.agent.prompt import KEEP, PromptState, Rendered, apply, change, fold, render_system, whole
from perdure.models.messages import Message, SystemMessage, ToolOffer, decode_messages, encode_messages, text_of

READ = ToolOffer("read", "Read a file.", {"type": "object"})
BASH = ToolOffer("bash", "Run a command.", {"type": "object"})


def after(*steps: list[Rendered], tools: tuple[ToolOffer, ...] = ()) -> PromptState:
    state = PromptState()
    for rendered in steps:
        message = change(state, rendered, tools)
        state = state if message is None else apply(state, message)
    return state


def test_the_first_change_tells_everything() -> None:
    message = change(PromptState(), [("intro", "Be kind."), ("rules", "Be brief.")], [READ])
    assert message == SystemMessage(sections={"intro": "Be kind.", "rules": "Be brief."}, tools=[READ])


def test_nothing_new_makes_no_message() -> None:
    state = apply(PromptState(), SystemMessage(sections={"intro": "Be kind."}, tools=[READ]))
    assert change(state, [("intro", "Be kind."), ("unseen", None), ("blank", " \n")], [READ]) is None
    assert change(PromptState(), [], []) is None


def test_only_what_changed_is_told() -> None:
    state = after([("a", "1"), ("b", "2")], tools=(READ,))
    assert change(state, [("a", "1"), ("b", "3")], [READ]) == SystemMessage(sections={"b": "3"})
    assert change(state, [("a", "1"), ("b", "2"), ("c", "4")], [READ]) == SystemMessage(sections={"c": "4"})
    assert change(state, [("a", "1"), ("b", "2")], [READ, BASH]) == SystemMessage(tools=[READ, BASH])
    assert change(state, [("a", "1"), ("b", "2")], []) == SystemMessage(tools=[])


def test_a_section_that_is_left_out_or_gone_is_removed() -> None:
    state = after([("a", "1"), ("b", "2"), ("c", "3")])
    message = change(state, [("a", "1"), ("b", None)], [])
    assert message == SystemMessage(sections={"b": None, "c": None})
    assert apply(state, message) == PromptState({"a": "1"})


def test_an_order_is_told_when_the_changes_alone_would_give_another() -> None:
    state = after([("a", "1"), ("b", "2")])
    message = change(state, [("new", "0"), ("b", "2"), ("a", "1")], [])
    assert message == SystemMessage(sections={"new": "0"}, order=["new", "b", "a"])
    assert list(apply(state, message).sections) == ["new", "b", "a"]


def test_an_order_passes_over_unknown_names_and_leaves_unnamed_ones_last() -> None:
    state = after([("a", "1"), ("b", "2"), ("c", "3")])
    assert list(apply(state, SystemMessage(order=["c", "lost", "c"])).sections) == ["c", "a", "b"]


def test_a_section_that_raised_keeps_its_last_text() -> None:
    state = after([("a", "1"), ("b", "2")])
    assert change(state, [("a", KEEP), ("b", "2")], []) is None
    assert change(state, [("a", KEEP), ("b", "3"), ("new", KEEP)], []) == SystemMessage(sections={"b": "3"})


def test_of_two_sections_with_one_name_the_later_text_counts() -> None:
    assert after([("a", "1"), ("b", "2"), ("a", "3")]).sections == {"a": "3", "b": "2"}


def test_the_prompt_is_its_sections_with_a_blank_line_between() -> None:
    assert render_system(after([("a", "Be kind.\n"), ("b", "\nBe brief.")])) == "Be kind.\n\nBe brief."
    assert render_system(PromptState()) == ""


def test_a_change_never_touches_the_state_it_starts_from() -> None:
    state = after([("a", "1")])
    apply(state, SystemMessage(sections={"a": "2"}, order=["a"]))
    assert state == PromptState({"a": "1"})


_TARGETS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["1", "2", None, KEEP]))),
        st.sampled_from([(), (READ,), (BASH, READ), (READ, BASH)]),
    ),
    max_size=8,
)


@given(_TARGETS)
def test_folding_gives_what_was_rendered_at_every_step_also_after_being_stored(
    targets: list[tuple[list[Rendered], tuple[ToolOffer, ...]]],
) -> None:
    state = PromptState()
    stored: list[Message] = []
    for rendered, tools in targets:
        expected = {name: state.sections.get(name) if text is KEEP else text for name, text in rendered}
        message = change(state, rendered, tools)
        if message is not None:
            stored += decode_messages(encode_messages([message]))
            state = apply(state, message)
        shown = [(name, text) for name, text in expected.items() if text is not None]
        assert (list(state.sections.items()), state.tools) == (shown, tools)
        folded = fold(stored)
        assert (list(folded.sections.items()), folded.tools) == (shown, tools)
        assert change(state, shown, tools) is None


@given(_TARGETS)
def test_one_whole_message_gives_the_state_at_once(
    targets: list[tuple[list[Rendered], tuple[ToolOffer, ...]]],
) -> None:
    state = PromptState()
    for rendered, tools in targets:
        message = change(state, rendered, tools)
        state = state if message is None else apply(state, message)
    told = whole(state)
    assert (told is None) == (state == PromptState())
    if told is not None:
        assert apply(PromptState(), told) == state
        assert list(apply(PromptState(), told).sections) == list(state.sections)
        assert all(text in text_of(told) for text in state.sections.values())
