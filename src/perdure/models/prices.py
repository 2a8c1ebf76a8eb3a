"""What a response costs, and how much fits a request, by the price list that the provider library brings.

The list is a snapshot bundled with that library: nothing is fetched. Imported only when first asked.
"""

from decimal import Decimal
from functools import lru_cache
from typing import Final

from genai_prices import Usage as PricedUsage
from genai_prices import calc_price
from genai_prices.types import ModelInfo

from perdure.models.messages import Usage

WINDOWS_KEPT: Final = 256
"""Models whose window is kept: looking it up takes a millisecond, and each request asks."""


def cost(provider: str, model: str, usage: Usage) -> float | None:
    """USD for the tokens, or None when the list has no price for the model."""
    found = _price(provider, model, usage)
    return float(found[0]) if found else None


@lru_cache(maxsize=WINDOWS_KEPT)
def context_window(provider: str, model: str) -> int | None:
    """Tokens that fit a request and its answer, or None when the list does not say."""
    found = _price(provider, model, Usage(input=1))
    return found[1].context_window if found else None


def _price(provider: str, model: str, usage: Usage) -> tuple[Decimal, ModelInfo] | None:
    priced = PricedUsage(
        input_tokens=usage.input,
        output_tokens=usage.output,
        cache_read_tokens=usage.cache_read or None,
        cache_write_tokens=usage.cache_write or None,
    )
    try:
        result = calc_price(priced, model, provider_id=provider)
    except (LookupError, ValueError):
        return None
    return result.total_price, result.model
