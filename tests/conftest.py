"""What holds for every test: the property tests' profiles, and no settings from the machine that runs them."""

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "default", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow], database=None
)
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")

_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY", "GROQ_API_KEY", "MISTRAL_API_KEY")


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key or a setting of the person who runs the tests must not change what they show."""
    for name in [*_KEYS, *(name for name in os.environ if name.startswith("PERDURE_"))]:
        monkeypatch.delenv(name, raising=False)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the tests that ought to be marked slow. Only a hint: a busy machine must not fail a run."""
    unmarked = [
        f"{report.duration:6.2f} s  {report.nodeid}"
        for report in terminalreporter.stats.get("passed", [])
        if report.when == "call" and report.duration > 4 * 0.25 and not {"slow", "long"} & set(report.keywords)
    ]
    if unmarked:
        terminalreporter.section("not marked slow, but took over 1 s")
        for line in sorted(unmarked, reverse=True):
            terminalreporter.line(line)
