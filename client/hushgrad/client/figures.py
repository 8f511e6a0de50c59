"""How numbers are written for people: what was spent rounded up, what is left rounded down, spans of time in words."""

from decimal import ROUND_FLOOR, Context, Decimal

from hushgrad.accountant import claims

_DOWN = Context(prec=4, rounding=ROUND_FLOOR)

_SPANS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))


def up(value: float) -> str:
    """Returns a number with four significant digits that is at least the value: for what was promised or spent.

    >>> up(0.12341), up(0.5), up(123456.0), up(0.0)
    ('0.1235', '0.5', '123500', '0')
    """
    return f"{claims.rounded_up(value):.6g}"


def down(value: float) -> str:
    """Returns a number with four significant digits that is at most the value: for what is left.

    >>> down(9.9998766), down(0.5002), down(0.0)
    ('9.999', '0.5002', '0')
    """
    return f"{float(_DOWN.plus(Decimal(repr(float(value))))):.6g}"


def rise(before: float, after: float) -> float:
    """Returns by how much a reading rose at most, from two readings that were rounded up to four digits.

    The first one was up to one unit of its last digit smaller before it was rounded.

    >>> rise(0.2213, 0.2387), rise(0.0, 0.3)
    (0.0175, 0.3)
    """
    first, second = Decimal(repr(float(before))), Decimal(repr(float(after)))
    # Four significant digits, the last of them at this place; repr may show fewer.
    unit = Decimal(0) if first == 0 else Decimal(1).scaleb(first.adjusted() - 3)
    return claims.rounded_up(float(max(second - first, Decimal(0)) + unit))


def span(seconds: float) -> str:
    """Returns a span of time in its two largest units, never exact to more than a person can use.

    >>> span(0.4), span(75), span(7_260), span(200_000)
    ('0.4 s', '1 min 15 s', '2 h 1 min', '2 d 8 h')
    """
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f} s"
    for at, (unit, name) in enumerate(_SPANS):
        if seconds >= unit:
            if at + 1 == len(_SPANS):
                return f"{seconds:.0f} {name}"
            smaller, smaller_name = _SPANS[at + 1]
            whole, part = divmod(round(seconds / smaller), round(unit / smaller))
            return f"{whole} {name} {part} {smaller_name}" if part else f"{whole} {name}"
    return f"{seconds:.0f} s"


def count(number: int, one: str) -> str:
    """Returns a number with its noun.

    >>> count(1, "row"), count(200_002, "row")
    ('1 row', '200,002 rows')
    """
    return f"{number:,} {one}{'' if number == 1 else 's'}"
