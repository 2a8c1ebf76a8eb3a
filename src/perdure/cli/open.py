"""Opening sessions for commands: to run, or only to read."""

import importlib
import os
import sys
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from perdure.agent.settings import Settings
from perdure.base.errors import InvalidValue
from perdure.cli.config import Config
from perdure.extensions.registry import Registry
from perdure.harness.control import ControlServer
from perdure.harness.harness import Harness
from perdure.models.provider import ProviderModels
from perdure.session.store import Store
from perdure.storage.open import open_storage
from perdure.storage.protocol import Storage
from perdure.tools import coding_tools

EXAMPLE: Final = "--app module:name, such as myapp.agents:registry, where `registry = Registry([…])`"


@asynccontextmanager
async def running(path: Path, config: Config, *, app: str | None = None) -> AsyncIterator[Harness]:
    """A harness on a session's file, with its control socket; closed in good order at the end."""
    models = ProviderModels(base_url=config.base_url)
    settings = Settings(instructions=config.instructions)
    async with (
        models,
        Harness.open(
            store(path, config), registry=registry(config.app if app is None else app), models=models, settings=settings
        ) as harness,
        ControlServer(harness),
    ):
        yield harness


@asynccontextmanager
async def marking(path: Path, config: Config, *, app: str | None = None) -> AsyncIterator[Harness]:
    """A harness that only commits a mark: it schedules nothing and leaves interrupted work as it is. Without an `app`
    it knows no names but the built-in ones."""
    known = None if app is None else registry(app)
    async with Harness.open(store(path, config), registry=known, recover=False) as harness:
        yield harness


@asynccontextmanager
async def reading(path: Path) -> AsyncIterator[Store]:
    """Read-only access to a session, also while another process owns it."""
    storage = open_storage(path, read_only=True)
    head = await storage.open()
    try:
        reader = Store(storage, _nothing_to_wait_for)
        reader.seq, reader.next_id, reader.epoch = head.seq, head.next_id, head.epoch
        yield reader
    finally:
        await storage.close()


async def _nothing_to_wait_for() -> None:
    """A read-only store has no commits under way."""


def store(path: Path, config: Config) -> Storage:
    """The store of a session's file."""
    if config.durability not in ("power", "process"):
        raise InvalidValue(f'durability is "power" or "process", not {config.durability!r}')
    return open_storage(path, durability=config.durability)  # type: ignore[arg-type]


def registry(app: str | None) -> Registry:
    """The coding tools and what the app brings. `app` is module:registry; the module may lie in the current folder."""
    extensions = [coding_tools]
    if app is not None:
        extensions.extend(_app_registry(app).snapshot().extensions.values())
    return Registry(dict.fromkeys(extensions))


def _app_registry(app: str) -> Registry:
    module, _, name = app.partition(":")
    if not all(map(str.isidentifier, (*module.split("."), name))):
        raise InvalidValue(f"not an app: {app!r}", hint=EXAMPLE)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            hint = f"run this where {module.replace('.', '/')}.py lies, or install it for {sys.executable}"
            raise InvalidValue(f"the app {app!r}: there is no module {error.name!r}", hint=hint) from error
        raise _broken(app, error) from error
    except (Exception, SystemExit) as error:
        raise _broken(app, error) from error
    found: Any = getattr(loaded, name, None)
    if isinstance(found, Registry):
        return found
    registries = [known for known, value in vars(loaded).items() if isinstance(value, Registry)]
    what = f"is a {type(found).__name__}, not a Registry" if hasattr(loaded, name) else f"is not in {loaded.__name__}"
    hint = f"--app {module}:{registries[0]}" if registries else EXAMPLE
    raise InvalidValue(f"the app {app!r}: {name!r} {what}", hint=hint)


def _broken(app: str, error: BaseException) -> InvalidValue:
    """The app's own mistake: where it is in the app's files, as far as they are known."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if len(frames) > 1 else ""
    hint = f"python -c 'import {app.partition(':')[0]}' shows where it fails"
    return InvalidValue(f"the app {app!r} cannot be loaded: {type(error).__name__}: {error}{place}", hint=hint)
