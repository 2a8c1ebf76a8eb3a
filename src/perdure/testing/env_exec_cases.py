"""The cases of the environment suite that run commands, and look for what they leave behind."""

import asyncio

import pytest

from perdure.env.errors import EnvError
from perdure.env.protocol import ExecutionEnv
from perdure.testing.env_suite import EnvSuite, beating, beats, run

ESCAPES = {
    "background": f"{beating('beat')} &",
    "nohup": f"{beating('beat', 'nohup')} > /dev/null 2>&1 &",
    "setsid": f"{beating('beat', 'setsid')} &",
    "double fork": f"({beating('beat', 'setsid')} > /dev/null 2>&1 < /dev/null &) &",
    "empty environment": f"{beating('beat', 'env -i setsid')} > /dev/null 2>&1 &",
}
"""Ways in which a command's children outlive it elsewhere."""
BEGUN = "\nuntil [ -s beat ]; do sleep 0.02; done"


class ExecCases(EnvSuite):
    """Running a command to its end."""

    async def test_both_streams_and_the_exit_code_come_back(self, env: ExecutionEnv) -> None:
        out, err, end = await run(env, "echo out; echo err >&2; exit 7")
        assert (out, err) == (b"out\n", b"err\n")
        assert (end.code, end.signal, end.timed_out, end.survivors) == (7, None, False, ())

    async def test_a_sequence_is_run_without_a_shell(self, env: ExecutionEnv) -> None:
        out, _, end = await run(env, ["printf", "%s|", "$HOME", "a b", "*"])
        assert (out, end.code) == (b"$HOME|a b|*|", 0)

    async def test_input_of_any_size_is_read_and_none_is_an_empty_one(self, env: ExecutionEnv) -> None:
        data = b"0123456789abcdef" * 65_536
        out, _, end = await run(env, ["cat"], stdin=data)
        assert (out == data, end.code) == (True, 0)
        assert (await run(env, ["cat"]))[0] == b""
        assert (await run(env, "exit 0", stdin=data))[2].code == 0

    async def test_the_folder_and_variables_of_a_command_can_be_given(self, env: ExecutionEnv) -> None:
        await env.write("sub/x", b"")
        command = 'ls; echo $GIVEN; test -n "$PATH" && echo more'
        out, _, _ = await run(env, command, cwd="sub", variables={"GIVEN": "ü"})
        assert out == "x\nü\nmore\n".encode()
        with pytest.raises(EnvError):
            await env.exec("true", cwd="nowhere")

    async def test_output_comes_while_the_command_runs(self, env: ExecutionEnv) -> None:
        async with await env.exec("echo first; until [ -e go ]; do sleep 0.02; done; echo second") as execution:
            assert (await anext(aiter(execution))).data == b"first\n"
            await env.write("go", b"")
            assert b"".join([chunk.data async for chunk in execution]) == b"second\n"

    async def test_a_command_that_ended_by_a_signal_has_no_code(self, env: ExecutionEnv) -> None:
        end = (await run(env, "kill -9 $$"))[2]
        assert (end.code, end.signal) == (None, 9)

    async def test_a_program_that_is_not_there_ends_with_127(self, env: ExecutionEnv) -> None:
        _, err, end = await run(env, ["no-such-program-anywhere"])
        assert end.code == 127
        assert b"no-such-program-anywhere" in err

    async def test_waiting_alone_drops_the_output(self, env: ExecutionEnv) -> None:
        async with await env.exec("head -c 3000000 /dev/zero; exit 3") as execution:
            assert (await execution.wait()).code == 3

    async def test_a_slow_reader_makes_the_command_wait(self, env: ExecutionEnv) -> None:
        command = "echo 0 > written; for i in $(seq 64); do head -c 1000000 /dev/zero; echo $i > written; done"
        async with await env.exec(command) as execution:
            await anext(aiter(execution))
            await asyncio.sleep(0.3)
            reached = int(await env.read("written"))
            assert reached < 32  # not all of it is held for a reader that does not come


class ContainmentCases(EnvSuite):
    """Everything a command starts ends with it."""

    @pytest.mark.slow
    @pytest.mark.parametrize("way", list(ESCAPES))
    async def test_what_a_command_left_ends_with_it(self, env: ExecutionEnv, way: str) -> None:
        _, _, end = await run(env, ESCAPES[way] + BEGUN)
        assert (end.code, end.survivors) == (0, ())
        assert not await beats(env, "beat")

    @pytest.mark.slow
    @pytest.mark.parametrize("way", list(ESCAPES))
    async def test_a_time_out_ends_everything(self, env: ExecutionEnv, way: str) -> None:
        _, _, end = await run(env, ESCAPES[way] + BEGUN + "; sleep 60", timeout=2.5)
        assert (end.code, end.timed_out, end.survivors) == (None, True, ())
        assert not await beats(env, "beat")

    @pytest.mark.slow
    @pytest.mark.parametrize("way", list(ESCAPES))
    async def test_a_kill_ends_everything(self, env: ExecutionEnv, way: str) -> None:
        async with await env.exec(ESCAPES[way] + BEGUN + "; echo begun; sleep 60") as execution:
            async for chunk in execution:
                if b"begun" in chunk.data:
                    break
            await execution.kill()
            assert not await beats(env, "beat")
            end = await execution.wait()
            assert (end.code, end.timed_out, end.survivors) == (None, False, ())

    @pytest.mark.slow
    async def test_leaving_the_block_ends_everything_also_when_cancelled(self, env: ExecutionEnv) -> None:
        begun = asyncio.Event()

        async def call() -> None:
            async with await env.exec(ESCAPES["setsid"] + BEGUN + "; echo begun; sleep 60") as execution:
                async for chunk in execution:
                    if b"begun" in chunk.data:
                        begun.set()

        task = asyncio.ensure_future(call())
        await asyncio.wait_for(begun.wait(), 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not await beats(env, "beat")

    @pytest.mark.slow
    async def test_a_command_that_ignores_polite_signals_is_killed(self, env: ExecutionEnv) -> None:
        _, _, end = await run(env, "trap '' TERM INT HUP; while :; do sleep 0.1; done", timeout=0.3)
        assert end.timed_out
        assert end.survivors == ()

    @pytest.mark.slow
    async def test_a_command_may_clean_up_when_it_is_stopped(self, env: ExecutionEnv) -> None:
        command = "trap 'echo cleaned > trace; exit 5' TERM; echo ready; while :; do sleep 0.05; done"
        async with await env.exec(command) as execution:
            assert (await anext(aiter(execution))).data == b"ready\n"
            await execution.kill()
        assert await env.read("trace") == b"cleaned\n"

    @pytest.mark.slow
    async def test_reaping_a_tag_ends_what_runs_under_it_and_nothing_else(self, env: ExecutionEnv) -> None:
        async with (
            await env.exec(beating("mine") + " & wait", tag="conformance:1") as mine,
            await env.exec(beating("other") + " & wait", tag="conformance:11") as other,
        ):
            await run(env, "until [ -s mine ] && [ -s other ]; do sleep 0.02; done")
            assert await env.reap("conformance:1") == ()
            assert not await beats(env, "mine")
            assert await beats(env, "other")
            await mine.wait()
            await other.kill()

    async def test_reaping_a_tag_that_nothing_carries_does_nothing(self, env: ExecutionEnv) -> None:
        assert await env.reap("conformance:none") == ()
