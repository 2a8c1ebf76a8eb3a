"""The receiver of webhooks that an example shows: who may sign, what is expected, and what nobody learns."""

import importlib.util
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from perdure import Error, Signal, StorageInUse, TaskId

EXAMPLE = Path(__file__).parents[2] / "examples/48_parked_overnight.py"
Other: Signal[str] = Signal("ops.other", schema=str)


def load() -> Any:
    spec = importlib.util.spec_from_file_location("parked_overnight", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


example = load()


class World:
    """A receiver, and what it delivered."""

    def __init__(self, folder: Path) -> None:
        self.delivered: list[Any] = []
        self.in_use = False
        self.expectations = example.Expectations(folder / "host.db")
        self.receiver = example.Receiver(self.expectations, example.SECRET, self._deliver)

    async def _deliver(self, *what: Any) -> None:
        if self.in_use:
            raise StorageInUse("somebody has it open")
        self.delivered.append(what)

    async def post(self, body: bytes, headers: dict[str, str], method: str = "POST") -> int:
        status: int = await example.post(self.receiver, body, headers, method)
        return status


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.expectations.close()


def signed(data: Any, *, late: float = 0, secret: str = example.SECRET) -> tuple[bytes, dict[str, str]]:
    body, at = json.dumps(data), datetime.now(UTC) - timedelta(seconds=late)
    signature = Webhook(secret).sign("msg_1", at, body)
    headers = {"webhook-id": "msg_1", "webhook-timestamp": str(int(at.timestamp())), "webhook-signature": signature}
    return body.encode(), headers


async def test_what_is_signed_and_expected_is_delivered_as_often_as_it_is_sent(world: World) -> None:
    await world.expectations.expect("night", "run-1", TaskId(7), example.Done, "done")
    for _ in range(2):
        assert await world.post(*signed({"run": "run-1", "result": "passed"})) == 202
    assert world.delivered == [("night", 7, "ops.ci-done", "done", {"result": "passed"})] * 2


async def test_what_nobody_waits_for_is_answered_alike(world: World) -> None:
    bodies: list[Any] = [{"run": "run-9", "result": "passed"}, {}, [], "run-1", {"run": 7}, {"run": ["run-1"]}]
    for data in bodies:
        assert await world.post(*signed(data)) == 202
    assert world.delivered == []


@pytest.mark.parametrize(
    "change",
    [
        {"webhook-signature": "v1,bm90IHNpZ25lZA=="},
        {"webhook-signature": "nonsense"},
        {"webhook-signature": "v1,!!!"},
        {"webhook-signature": ""},
        {"webhook-timestamp": "nan"},
        {"webhook-timestamp": "1"},
        {"webhook-id": "msg_2"},
    ],
)
async def test_a_forged_signature_is_refused(world: World, change: dict[str, str]) -> None:
    await world.expectations.expect("night", "run-1", TaskId(7), example.Done, "done")
    body, headers = signed({"run": "run-1", "result": "passed"})
    assert await world.post(body, {**headers, **change}) == 401
    assert world.delivered == []


async def test_another_body_an_old_message_and_another_secret_are_refused(world: World) -> None:
    await world.expectations.expect("night", "run-1", TaskId(7), example.Done, "done")
    data = {"run": "run-1", "result": "passed"}
    body, headers = signed(data)
    assert await world.post(body.replace(b"passed", b"failed"), headers) == 401
    assert await world.post(*signed(data, late=3600)) == 401
    assert await world.post(*signed(data, late=-3600)) == 401
    assert await world.post(*signed(data, secret="whsec_b3RoZXI=")) == 401
    assert await world.post(b"\xff\xfe", headers) == 401
    assert await world.post(body, {}) == 401
    assert world.delivered == []


async def test_only_small_posts_are_read(world: World) -> None:
    assert await world.post(*signed({"run": "x" * 70_000})) == 413
    assert await world.post(b"", {}, method="GET") == 405


async def test_a_session_that_is_busy_elsewhere_makes_the_sender_try_again(world: World) -> None:
    await world.expectations.expect("night", "run-1", TaskId(7), example.Done, "done")
    world.in_use = True
    assert await world.post(*signed({"run": "run-1", "result": "passed"})) == 503
    world.in_use = False
    assert await world.post(*signed({"run": "run-1", "result": "passed"})) == 202
    assert len(world.delivered) == 1


async def test_expecting_is_kept_and_idempotent_and_never_taken_over(world: World, tmp_path: Path) -> None:
    for _ in range(2):
        await world.expectations.expect("night", "run-1", TaskId(7), example.Done, "done")
    for other in (("day", TaskId(7), example.Done, "done"), ("night", TaskId(8), example.Done, "done")):
        with pytest.raises(Error, match="another task"):
            await world.expectations.expect(other[0], "run-1", *other[1:])
    with pytest.raises(Error, match="another task"):
        await world.expectations.expect("night", "run-1", TaskId(7), Other, "done")
    again = example.Expectations(tmp_path / "host.db")
    assert again.find("run-1") == ("night", 7, "ops.ci-done", "done")
    assert again.find("run-2") is None
    again.close()
