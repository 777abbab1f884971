"""Numbers as people write them, in reports, figures and on the terminal."""

from __future__ import annotations

import math


def number(value: float | None, *, digits: int = 3) -> str:
    """A number as people write it: whole ones with commas, others to `digits` significant figures, minus as −.

    Below 10^−digits in size, only that is said; files hold the number itself.
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "not defined"
    if isinstance(value, float) and math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    if isinstance(value, int) or (value.is_integer() and abs(value) >= 10**digits):
        return f"{int(value):,}".replace("-", "−")
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    if abs(value) < 10.0**-digits:
        return f"{'< ' if value > 0 else '> −'}{10.0**-digits:.{digits}f}"
    return f"{value:,.{places}f}".replace("-", "−")
