"""The process of a host: how it starts, what it lets in, what it leaves behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perdure.subagents.host.errors_file import ERRORS_BYTES
from perdure.subagents.host.link import HostGone, HostLink, HostRefused
from perdure.subagents.protocol import News
from tests.subagents.hosting import Bench, until

pytestmark = pytest.mark.slow


async def test_r012_r208_a_host_that_is_asked_to_end_settles_nothing_and_the_next_one_goes_on(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"a": [{"say": "done", "once": {"say": "never", "hold": 60}}]})
    launch = bench.launch()
    async with bench.host(launch):
        await bench.asked(1)
        bench.processes[0].send_signal(signal.SIGTERM)
        assert bench.processes[0].wait(10) == 0
    found = await bench.evidence(launch)
    assert (found.marker, found.task_taken, found.settled, found.text) == (True, True, False, "")
    launch = bench.launch(2)
    async with bench.host(launch) as link:
        await until(link, "settled")
    assert (await bench.evidence(launch)).text == "done"


def test_what_a_host_writes_to_standard_error_is_bounded_r015(tmp_path: Path) -> None:
    log = tmp_path / "stderr.log"
    noisy = (
        "import os, sys\n"
        "from perdure.subagents.host.errors_file import bounded_errors\n"
        "with bounded_errors():\n"
        "    for number in range(20000):\n"
        "        print('x' * 99, file=sys.stderr)\n"
        "    os.system('head -c 1000000 /dev/zero >&2')\n"
        "raise ValueError('last words')\n"
    )
    for _ in range(2):
        with open(log, "ab") as errors:
            subprocess.run([sys.executable, "-c", noisy], stderr=errors, check=False)
        assert log.stat().st_size <= ERRORS_BYTES
        assert b"last words" in log.read_bytes()
        assert b"not kept" in log.read_bytes()


async def test_the_settings_name_modules_beside_them_and_the_calls_folder_gives_none(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"a": [{"say": "done"}]})
    bench.root.config.write_text('{"models": "own_models:Models"}')
    (bench.root.path / "own_models.py").write_text("from tests.subagents.scripted import Scripted as Models\n")
    for name in ("own_models.py", "msgspec.py", "perdure.py"):
        (bench.work / name).write_text("raise SystemExit('read from the project')\n")
    async with bench.host(bench.launch()) as link:
        await until(link, "settled")


async def test_a_host_whose_models_cannot_be_had_refuses_and_ends(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"a": []})
    bench.root.config.write_text('{"models": "no_such_module:Models"}')
    launch = bench.launch()
    process = bench.start(launch)
    link = await bench.connect(launch)
    try:
        with pytest.raises(HostRefused, match="no_such_module"):
            await link.begin(launch, "n1")
        assert process.wait(10) == 0
    finally:
        await link.disconnect()
        bench.kill()
    assert not bench.root.call_store(launch.wid, launch.key).exists()


async def test_r011_news_of_before_are_told_to_whoever_connects_next(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"a": [{"call": "bash", "args": {"command": "true"}}, {"say": "done"}]})
    launch = bench.launch()
    async with bench.host(launch) as link:
        await until(link, "settled")
        second = await HostLink.connect(bench.root, launch.exec)
        assert second.hello.begun
        assert await second.begin(launch, "n1") == "begun", "beginning again changes nothing"
        seen = list[News]()
        await until(second, "settled", seen)
        await second.disconnect()
    assert [news.what for news in seen if news.what in ("request", "tool", "settled")] == [
        "request",
        "tool",
        "request",
        "settled",
    ]


async def test_a_call_that_waits_is_told_when_the_host_is_gone(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"a": [{"say": "never", "hold": 60}]})
    async with bench.host(bench.launch()) as link:
        await bench.asked(1)
        bench.kill()
        assert [news.what async for news in link.news()][-1:] != ["settled"]
        with pytest.raises(HostGone):
            await link.deliver("s1", "steer", "Anybody there?")


async def test_a_host_listens_after_less_than_half_a_second_of_work(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"a": [{"say": "done"}]})
    launch = bench.launch()
    began = time.monotonic()
    process = bench.start(launch)
    link = await bench.connect(launch)
    spent = _cpu(process.pid)
    elapsed = time.monotonic() - began
    await link.disconnect()
    bench.kill()
    assert spent < 0.8, f"0.24 s where it was measured first, now {spent:.2f} s of CPU in {elapsed:.2f} s"


def _cpu(pid: int) -> float:
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def test_what_comes_before_the_beginning_or_after_the_end_is_held(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"a": [{"say": "done"}]})
    launch = bench.launch()
    bench.start(launch)
    link = await bench.connect(launch)
    try:
        assert await link.deliver("s1", "steer", "Early") == "held"
        assert await link.begin(launch, "n1") == "begun"
        await until(link, "settled")
        assert await link.deliver("s2", "steer", "Late") == "held"
        assert (await bench.evidence(launch)).taken == []
    finally:
        await link.disconnect()
        bench.kill()
    assert len(bench.requests) == 1
