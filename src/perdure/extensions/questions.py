"""Asking people: a question stands as long as a task sleeps on its key, and is answered by one built-in signal."""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from perdure.base import jsonvalue
from perdure.models.messages import ToolCall
from perdure.tasks.signals import Signal, check_key
from perdure.tasks.states import Question, SignalKey

__all__ = ["PersonAnswer", "PersonReply", "Question", "ToolCall", "ask"]

ANSWER_LENGTH: Final = 20_000
"""Characters of an answer: some pages. What is longer belongs into a file."""
NOTE_LENGTH: Final = 4_000
NAME_LENGTH: Final = 200

YES: Final = (True, "yes")
NO: Final = (False, "no")


class PersonReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What somebody answered. Who it was is what the surface says; nobody checks it here."""

    answer: Annotated[str, Meta(min_length=1, max_length=ANSWER_LENGTH)] | bool
    note: Annotated[str, Meta(max_length=NOTE_LENGTH)] = ""
    """For the model: why, or what instead."""
    by: Annotated[str, Meta(max_length=NAME_LENGTH)] = ""
    """Who answered."""

    @property
    def allows(self) -> bool:
        """Whether it is a yes."""
        return self.answer is True or self.answer == "yes"


PersonAnswer: Final[Signal[PersonReply]] = Signal("perdure.answer", schema=PersonReply)
"""The signal that answers questions. Built in: every surface can deliver it, whatever is installed."""


def ask(key: str, question: Question) -> SignalKey[PersonReply]:
    """The key of a question, to sleep on: `Sleep(signals=[ask("size", Question("Which size?"))])`.

    The question is open while the task sleeps on it, and gone in the commit that ends the sleep. Its answer is read
    with `read_signal(PersonAnswer, "size")`.
    """
    check_key(key)
    if isinstance(question, Question):
        question = msgspec.structs.replace(question, arguments=_own(question.arguments))
    return SignalKey(PersonAnswer.name, key, question)


def _own(arguments: Any) -> Any:
    jsonvalue.check(arguments, path="/arguments")
    return jsonvalue.copied(arguments)
