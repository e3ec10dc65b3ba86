"""What repeated tokens are worth: D′ = U + U·R*·(1 − e^(−R/R*)) (arXiv:2305.16264).

U is the number of unique tokens, R the number of repetitions, epochs − 1, and R* how many of them it takes until most
of what repetition can give is had. Up to four epochs a repeated token is worth almost as much as a new one.
"""

from decimal import Context, Decimal

R_STAR = Decimal("15.387756")
CHEAP_EPOCHS = 4
"""More cost more than they seem to."""
_CONTEXT = Context(prec=40)


def effective_tokens(drawn: int, unique: int) -> int:
    """How many new tokens `drawn` tokens of a source of `unique` ones are worth."""
    if drawn <= unique:
        return drawn
    repetitions = _CONTEXT.divide(Decimal(drawn - unique), Decimal(unique))
    left = _CONTEXT.exp(_CONTEXT.divide(-repetitions, R_STAR))
    return round(unique * (1 + R_STAR * (1 - left)))
