"""Messages as people hold them."""

import msgspec

from perdure import AssistantMessage, SystemMessage, Text, Thinking, ToolResultMessage, UserMessage
from perdure.models.messages import Message, decode_messages, encode_messages


def test_a_message_tells_its_role_and_its_text() -> None:
    messages: list[Message] = [
        SystemMessage(sections={"about": "You are kind.", "gone": None, "tools": "Use them."}),
        UserMessage(content="Hi"),
        AssistantMessage(content=[Thinking("hm"), Text("Hel"), Text("lo")]),
        ToolResultMessage(call_id="1", name="look", content=[Text("nothing")]),
    ]
    told = [(message.role, message.text) for message in messages]
    assert told == [
        ("system", "You are kind.\n\nUse them."),
        ("user", "Hi"),
        ("assistant", "Hello"),
        ("tool_result", "nothing"),
    ]
    stored = encode_messages(messages)
    assert [one["role"] for one in msgspec.json.decode(stored)] == [message.role for message in messages]
    assert decode_messages(stored) == messages
