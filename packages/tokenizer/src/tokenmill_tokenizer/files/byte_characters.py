"""Byte-level BPE writes each byte as one printable character, after GPT-2: `Ġ` is a space, `Ċ` a line end."""

_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
_CHARACTER_OF_BYTE = {byte: byte for byte in _PRINTABLE} | {byte: 256 + n for n, byte in enumerate(_OTHERS)}
_BYTE_OF_CHARACTER = {character: byte for byte, character in _CHARACTER_OF_BYTE.items()}


def to_characters(token: bytes) -> str:
    """How a tokenizer.json spells `token`."""
    return token.decode("latin-1").translate(_CHARACTER_OF_BYTE)


def to_bytes(token: str) -> bytes | None:
    """The bytes that a tokenizer.json means by `token`, or none where a character in it stands for no byte."""
    values = [_BYTE_OF_CHARACTER.get(ord(character)) for character in token]
    return None if None in values else bytes(value for value in values if value is not None)
