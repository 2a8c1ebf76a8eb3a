"""Sessions and transactions: everything durable is a commit on one line; a block is stored whole or not at all."""

import asyncio

from perdure import ROOT, Harness, InvocationEnded, NestedTransaction, entry
from perdure.models.messages import UserMessage


@entry("app.note", version=1)
class Note:
    """An entry kind of our own: its fields are stored, `to_model` is what a model reads of it."""

    text: str

    def to_model(self) -> list[UserMessage]:
        return [UserMessage(f"Note: {self.text}")]


async def main() -> None:
    async with Harness.open("memory:") as harness:
        session = harness.session
        before = session.seq
        async with session.transaction() as tx:
            first = tx.append_entry(ROOT, Note("bring an umbrella"))
            note = await tx.entry(Note, first)
            print("read back before the commit:", note and note.text)
        print("commits made:", session.seq - before)

        try:
            async with session.transaction() as tx:
                tx.append_entry(ROOT, Note("never stored"))
                raise ValueError("changed my mind")
        except ValueError:
            print("rolled back; commits made:", session.seq - before)

        async with session.transaction() as tx:
            try:
                async with session.transaction():
                    pass
            except NestedTransaction as error:
                print("nested:", error.code)
        try:
            tx.append_entry(ROOT, Note("too late"))
        except InvocationEnded as error:
            print("after its block:", error.code)

        root = await harness.root()
        print("entries:", [kind.kind for kind in await root.entries()])


asyncio.run(main())
