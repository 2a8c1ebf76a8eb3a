"""The type of what a parked call keeps; see the stub beside this file, which gives it a default for type checkers."""

from typing import TypeVar

C_co = TypeVar("C_co", covariant=True)
