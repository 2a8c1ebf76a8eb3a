"""A container of a real engine, where one works: Podman takes this machine's own root as an image, under an overlay."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

IMAGE = os.environ.get("PERDURE_TEST_IMAGE", "")
"""An image with Python that is there already; nothing is fetched for tests."""
START_SECONDS = 60
MODEST = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024", "--security-opt", "seccomp=unconfined"]
"""What an engine that runs inside of a container of somebody else's can grant."""


class NoEngine(Exception):
    """Why there is no container."""


@dataclass
class Engine:
    """A container that runs."""

    name: str
    container: str

    def stop(self) -> None:
        """Remove the container."""
        subprocess.run([self.name, "rm", "--force", self.container], capture_output=True, check=False)


def start(folder: Path, settings: Path, patch: pytest.MonkeyPatch) -> Engine:
    """Start a container that sees the folder under its own path. Raises `NoEngine`."""
    said = "no docker or podman on this machine"
    for name in ("docker", "podman"):
        if shutil.which(name) is None:
            continue
        for runtime in ("", "runc") if name == "podman" else ("",):
            if runtime:
                (settings / "containers.conf").write_text(
                    f'[engine]\nruntime = "{runtime}"\ncgroup_manager = "cgroupfs"\n'
                )
                patch.setenv("CONTAINERS_CONF", str(settings / "containers.conf"))
            image = [IMAGE] if IMAGE or name == "docker" else ["--rootfs", "/:O"]
            if image == [""]:
                said = "docker is here, but PERDURE_TEST_IMAGE names no image"
                continue
            container = f"perdure-test-{os.urandom(6).hex()}"
            command = [
                name,
                "run",
                "--detach",
                "--name",
                container,
                "--network",
                "none",
                *MODEST,
                "--volume",
                f"{folder}:{folder}",
                *image,
            ]
            try:
                done = subprocess.run(
                    [*command, "sleep", "infinity"], capture_output=True, text=True, timeout=START_SECONDS, check=False
                )
            except subprocess.TimeoutExpired:
                said = f"{name} does not start a container"
                continue
            if done.returncode == 0:
                return Engine(name, container)
            Engine(name, container).stop()  # one that did not start is left behind
            said = f"{name} starts no container: {done.stderr.strip()[-300:]}"
    raise NoEngine(said)
