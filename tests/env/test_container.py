"""Containers: what is refused before an engine is asked, and what a real engine's container does when it goes."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from perdure.env.container import Container, ContainerEnv
from perdure.env.errors import ConnectionLost, EnvError, NotReachable
from perdure.testing.env_suite import PATIENCE_SECONDS, run
from tests.env.engine import MODEST, Engine

OWN_ROOT = [*MODEST, "--network", "none", "--rootfs"]
"""Podman takes this machine's root, under an overlay, for an image."""


@pytest.mark.parametrize("name", ["", "--privileged", "a b", "a\0b", "a\nb"])
async def test_a_name_that_the_engine_could_misread_is_refused(name: str) -> None:
    with pytest.raises(NotReachable, match="not a name of a container"):
        Container(name, engine="docker")
    with pytest.raises(NotReachable, match="not a name of an image"):
        await Container.run(name, engine="docker")


async def test_without_an_engine_that_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotReachable, match="no container engine"):
        ContainerEnv("some")
    with pytest.raises(NotReachable, match="no-such-engine cannot be run"):
        await ContainerEnv("some", engine="no-such-engine").read("x")


@pytest.mark.slow
async def test_a_container_that_is_not_there_is_told(engine: Engine) -> None:
    env = ContainerEnv("no-such-container", engine=engine.name)
    with pytest.raises(NotReachable, match="no-such-container"):
        await env.read("x")
    await env.close()


@pytest.mark.slow
async def test_a_container_without_python_is_told_with_what_to_do(engine: Engine) -> None:
    env = ContainerEnv(engine.container, engine=engine.name, python="no-such-python")
    with pytest.raises(NotReachable, match=r"no-such-python.*Python 3\.9"):
        await env.read("x")
    await env.close()


@pytest.mark.slow
async def test_a_container_under_a_name_is_found_again_and_removed_in_the_end(engine: Engine) -> None:
    if engine.name != "podman":
        pytest.skip("this needs an image that is always there: Podman takes the machine's own root")
    for keep in (True, False):
        async with await Container.run(
            "/:O", name="perdure-test-again", options=OWN_ROOT, engine=engine.name, keep=keep
        ) as container:
            env = ContainerEnv(container, "/")
            assert (await run(env, "test -e /tmp/mark; echo $?; touch /tmp/mark"))[0] == (b"1\n" if keep else b"0\n")
            if keep:
                stop = [engine.name, "stop", "perdure-test-again"]
                subprocess.run(stop, capture_output=True, check=True)  # noqa: ASYNC221
    listed = subprocess.run([engine.name, "ps", "--all"], capture_output=True, check=True).stdout  # noqa: ASYNC221
    assert b"perdure-test-again" not in listed


@pytest.mark.slow
async def test_a_container_that_goes_in_the_middle_of_a_command_is_told(engine: Engine) -> None:
    if engine.name != "podman":
        pytest.skip("this needs an image that is always there: Podman takes the machine's own root")
    container = await Container.run("/:O", options=OWN_ROOT, engine=engine.name)
    env = ContainerEnv(container, "/")

    async def cut_off() -> None:
        async with asyncio.timeout(3 * PATIENCE_SECONDS), await env.exec("echo begun; sleep 1111") as execution:
            async for chunk in execution:
                assert chunk.data == b"begun\n"
                await container.close()

    with pytest.raises(EnvError) as caught:
        await cut_off()
    assert isinstance(caught.value, ConnectionLost | NotReachable) or "closed" in str(caught.value)


@pytest.mark.slow
async def test_a_container_that_does_not_start_is_not_left_behind(engine: Engine) -> None:
    with pytest.raises(NotReachable, match=f"{engine.name} run"):
        await Container.run("perdure-test.invalid/no-such-image", options=["--pull", "never"], engine=engine.name)
    listed = subprocess.run([engine.name, "ps", "--all"], capture_output=True, check=True).stdout  # noqa: ASYNC221
    assert b"no-such-image" not in listed
