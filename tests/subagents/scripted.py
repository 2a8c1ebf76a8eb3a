"""The scripted models of hosts, under the name that the tests' settings use."""

from perdure.testing.scripted_hosts import Scripted, folder, made, requests

__all__ = ["Scripted", "folder", "made", "requests"]
