"""What type checkers read: a type parameter that is Any where nobody names it. `typing` has defaults from 3.13 on, and
what has them earlier takes longer to import than everything here."""

from typing import Any

from typing_extensions import TypeVar

C_co = TypeVar("C_co", covariant=True, default=Any)
