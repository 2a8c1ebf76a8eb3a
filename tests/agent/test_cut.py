"""Where a summary may cut."""

from perdure import CompactionSettings
from perdure.agent.context import ContextBuilder
from perdure.agent.cut import Limits, choose_cut, limits
from perdure.models.messages import Message
from tests.agent.transcripts import Transcript, result, system, turn, user

TEN = "x" * 24
"""A message of ten tokens, its marks included."""


def cut(made: Transcript, keep: int, room: int | None = None) -> tuple[int, int, int] | None:
    """The first entry that stays, and the tokens before and behind it."""
    found = choose_cut(ContextBuilder(made.entries).places(), keep, room)
    return None if found is None else (found.at, found.older, found.kept)


def talk(*messages: Message) -> Transcript:
    made = Transcript()
    for message in messages:
        made.add(message)
    return made


def test_at_least_what_is_asked_for_stays_and_as_little_more_as_can_be() -> None:
    said: list[Message] = [user(TEN), turn(TEN)]
    made = talk(*said * 4)
    assert cut(made, 20) == (7, 60, 20)
    assert cut(made, 21) == (6, 50, 30)
    assert cut(made, 41) == (3, 20, 60)  # an answer would do, but its question is near
    assert cut(made, 0) == (8, 70, 10)
    assert cut(made, 1_000) == (2, 10, 70)


def test_there_has_to_be_something_to_summarize() -> None:
    assert cut(talk(), 10) is None
    assert cut(talk(user(TEN)), 0) is None
    assert cut(talk(system("tool", a="text"), user(TEN)), 0) is None
    assert cut(talk(user(TEN), turn(TEN)), 0) == (2, 10, 10)


def test_calls_stay_with_their_results_and_an_open_round_stays_whole() -> None:
    made = talk(user(TEN), turn(TEN, "a", "b"), result("a"), result("b"), turn(TEN), user(TEN))
    assert {found[0] for keep in range(200) if (found := cut(made, keep))} <= {2, 5, 6}
    still_open = talk(user(TEN), turn(TEN), user(TEN), turn(TEN, "a", "b"), result("b"), user("said meanwhile"))
    assert {found[0] for keep in range(200) if (found := cut(still_open, keep))} <= {2, 3, 4}
    assert cut(still_open, 0) is not None


def test_a_call_that_never_got_a_result_holds_nothing_up() -> None:
    made = talk(user(TEN), turn(TEN, "lost"), user(TEN), turn(TEN), user(TEN), turn(TEN))
    assert cut(made, 10) == (6, 50 + made_call(), 10)


def made_call() -> int:
    """What the call itself takes, beside its turn."""
    whole = cut(talk(user(TEN), turn(TEN, "lost"), user(TEN), turn(TEN)), 10)
    assert whole is not None
    return whole[1] - 30


def test_what_does_not_fit_is_not_kept() -> None:
    made = talk(user(TEN), turn(TEN), user("x" * 400), turn(TEN), user(TEN))
    assert cut(made, 30) == (3, 20, 124)
    assert cut(made, 30, room=50) == (4, 124, 20)
    assert cut(made, 30, room=5) == (5, 134, 10)


def test_attempts_that_failed_and_the_prompt_are_no_places() -> None:
    made = talk(user(TEN), turn(TEN, stop="error"), system(a="new"), turn(TEN, stop="aborted"), turn(TEN))
    found = cut(made, 0)
    assert found is not None
    assert found[0] == 5


def test_the_earlier_summary_does_not_count_as_something_older() -> None:
    made = talk(user(TEN), turn(TEN), user(TEN))
    made.add(user("summary " * 50), head=3)
    assert cut(made, 0) is None
    made.add(turn(TEN))
    assert cut(made, 0) == (5, 10, 10)
    found = choose_cut(ContextBuilder(made.entries).places(), 0)
    assert found is not None
    assert found.earlier == 104


def test_a_window_too_small_for_the_settings_gives_each_its_share() -> None:
    settings = CompactionSettings()
    assert limits(200_000, settings) == Limits(200_000 - 16_384 - 32_768, 200_000 - 16_384, 20_000)
    assert limits(32_000, settings) == Limits(8_000, 16_000, 5_333)
    for window in (1, 100, 8_192, 50_000, 128_000, 1_000_000):
        found = limits(window, settings)
        assert 0 <= found.background <= found.block <= window
        assert found.keep <= found.block // 3
