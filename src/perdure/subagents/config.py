"""`config.json` of a state root: what may change while the orchestrator runs."""

import hashlib
from typing import Any, Final, Literal

import msgspec

from perdure import Document, InvalidValue
from perdure.base import jsonvalue
from perdure.subagents.model_names import parse_model
from perdure.subagents.paths import StateRoot


class ProviderConfig(msgspec.Struct, kw_only=True):
    """How much may run at a provider at once; None: any number."""

    slots: int | None = None


class MemoryConfig(msgspec.Struct, kw_only=True, rename="camel"):
    """What a launch must leave free, and what it is taken to need, in megabytes."""

    reserve_mb: int = 2048
    per_child_mb: int = 300
    warm_up_seconds: float = 30.0


class Constants(msgspec.Struct, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Numbers that can be set; times in milliseconds."""

    max_calls: int = 300
    loss_bound: int = 5
    checkpoint_ms: int = 10_000
    stall_ms: int = 600_000
    progress_ms: int = 600_000
    hibernate_ms: int = 120_000
    tracker_ms: int = 1_000
    idle_exit_ms: int = 10_000
    switch_timeout_ms: int = 300_000
    probe_ms: int = 900_000
    event_retention_ms: int = 604_800_000
    wait_check_ms: int = 5_000


class AgentsConfig(msgspec.Struct, kw_only=True, rename="camel"):
    """All settings, with their defaults. Unknown keys are allowed at the top, and errors below `k`."""

    default_model: str | None = None
    providers: dict[str, ProviderConfig] = {}
    pools: dict[str, list[str]] = {}
    memory: MemoryConfig = msgspec.field(default_factory=MemoryConfig)
    writer_lock: Literal["queue", "off"] = "queue"
    on_quit: Literal["pause", "continue"] = "pause"
    models: str | None = None
    """module:name of a `Models` for the hosts; without it the providers of the harness."""
    extensions: str | None = None
    """module:name of a `Registry` whose extensions the hosts get besides the coding tools."""
    k: Constants = msgspec.field(default_factory=Constants)

    def slots(self, provider: str) -> int | None:
        """How many may run at a provider; None: any number."""
        found = self.providers.get(provider)
        return None if found is None else found.slots


class InEffect(msgspec.Struct, kw_only=True):
    """Which settings the orchestrator decides by."""

    digest: str
    since: float
    problem: str = ""
    """What is wrong with the file as it is now; the settings in effect are older then."""


InEffectDoc: Document[Any] = Document("agents.settings", InEffect, scope="session")
EMPTY: Final = b"{}"


class ConfigWatch:
    """The settings in effect: the newest valid content of the file. A change is told by content, not by time."""

    def __init__(self, root: StateRoot) -> None:
        self._root = root
        self._seen: bytes | None = None
        self.current = AgentsConfig()
        self.digest = _digest(EMPTY)
        self.problem = ""
        """What is wrong with the file as it is; the settings in effect are older."""
        self.look()

    def look(self) -> bool:
        """Take up the file if it changed; True if other settings are in effect now."""
        content = _read(self._root)
        if content == self._seen:
            return False
        self._seen = content
        try:
            current = parse_config(content)
        except InvalidValue as error:
            self.problem = str(error)
            return False
        changed = _digest(content) != self.digest
        self.current, self.digest, self.problem = current, _digest(content), ""
        return changed


def load_config(root: StateRoot) -> AgentsConfig:
    """What the file says now. Raises `InvalidValue`."""
    return parse_config(_read(root))


def parse_config(content: bytes) -> AgentsConfig:
    """Settings from the file's content. Raises `InvalidValue` that names what is wrong."""
    try:
        raw = jsonvalue.decode(content)
    except InvalidValue as error:
        raise InvalidValue(f"config.json is no JSON: {error}") from error
    if not isinstance(raw, dict):
        raise InvalidValue(f"config.json holds an object, not {type(raw).__name__}")
    try:
        config = msgspec.convert(raw, AgentsConfig)
    except msgspec.ValidationError as error:
        raise InvalidValue(f"config.json: {error}") from error
    for provider, settings in config.providers.items():
        if settings.slots is not None and settings.slots < 1:
            raise InvalidValue(f"config.json: providers.{provider}.slots counts from 1")
    for where, numbers in (("k", config.k), ("memory", config.memory)):
        for field in msgspec.structs.fields(numbers):
            if getattr(numbers, field.name) < 0:
                raise InvalidValue(f"config.json: {where}.{field.encode_name} is not below 0")
    sound: set[str] = set()
    for name in config.pools:
        _check_pool(config.pools, name, (), sound)
    if config.default_model is not None and config.default_model not in config.pools:
        _check_model("defaultModel", config.default_model)
    return config


def _check_pool(pools: dict[str, list[str]], name: str, above: tuple[str, ...], sound: set[str]) -> None:
    """A pool names models and other pools, one at least, and never itself."""
    if name in above:
        raise InvalidValue(f"config.json: pools.{name} holds itself: {' > '.join((*above, name))}")
    if not pools[name]:
        raise InvalidValue(f"config.json: pools.{name} is empty")
    for member in pools[name] if name not in sound else ():
        if member in pools:
            _check_pool(pools, member, (*above, name), sound)
        else:
            _check_model(f"pools.{name}", member)
    sound.add(name)


def _check_model(where: str, model: str) -> None:
    try:
        parse_model(model)
    except InvalidValue as error:
        raise InvalidValue(f"config.json: {where}: {error}") from error


def _read(root: StateRoot) -> bytes:
    try:
        return root.config.read_bytes()
    except FileNotFoundError:
        return EMPTY
    except OSError as error:
        return f"unreadable: {error}".encode()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]
