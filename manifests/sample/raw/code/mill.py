"""A mill, as small as one can be."""


def grind(grain: str) -> list[int]:
    """The bytes of the grain, one after another."""
    return list(grain.encode("utf-8"))


def sack(tokens: list[int], size: int) -> list[list[int]]:
    """Tokens in sacks of equal size; what does not fill a sack stays on the floor."""
    return [tokens[start : start + size] for start in range(0, len(tokens) - size + 1, size)]
