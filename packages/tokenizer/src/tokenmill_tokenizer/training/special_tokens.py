"""Special tokens: ids that stand for no text. They come first, in the order of the settings here."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from tokenmill_core.manifest import Frozen

Token = Annotated[str, Field(min_length=1)]


class ChatFormat(StrEnum):
    """How turns of a conversation are marked."""

    CHATML = "chatml"
    """`<|im_start|>role`, a line end, the turn, `<|im_end|>`."""
    LLAMA3 = "llama3"
    """The beginning token, if there is one; `<|start_header_id|>role<|end_header_id|>`, a blank line, the turn without
    white space around it, `<|eot_id|>`."""


CHAT_TOKENS = {
    ChatFormat.CHATML: ("<|im_start|>", "<|im_end|>"),
    ChatFormat.LLAMA3: ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
}
CHAT_TEMPLATES = {
    ChatFormat.CHATML: (
        "{% for message in messages %}"
        "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
        "{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    ChatFormat.LLAMA3: (
        "{{ bos_token or '' }}"
        "{% for message in messages %}"
        "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}"
        "{{ message['content'] | trim + '<|eot_id|>' }}"
        "{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
    ),
}
"""Jinja templates for `transformers`' `apply_chat_template`."""
FIM_TOKENS = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>")
"""For texts whose middle is filled in."""


class SpecialTokens(Frozen):
    """The special tokens of a tokenizer."""

    end_of_document: Token = "<|endoftext|>"
    """Special token that closes a document; it gets id 0."""
    beginning_of_document: Token | None = None
    """Special token that opens one."""
    padding: Token | None = None
    """Special token that fills up short sequences."""
    chat: ChatFormat | None = None
    """Special tokens for conversations, `chatml` or `llama3`, with the template that `transformers` writes them by."""
    fill_in_the_middle: bool = False
    """Special tokens for filling in a text's middle: <|fim_prefix|>, <|fim_middle|>, <|fim_suffix|>, <|fim_pad|>."""
    special_tokens: tuple[Token, ...] = ()
    """Further special tokens."""
    reserved_tokens: int = Field(default=0, ge=0, le=1 << 16)
    """How many special tokens are kept for later, from <|reserved_0|> on."""

    def specials(self) -> list[str]:
        """All special tokens in the order of their ids."""
        roles = [self.end_of_document, self.beginning_of_document, self.padding]
        chat: Sequence[str] = CHAT_TOKENS[self.chat] if self.chat else ()
        fim = FIM_TOKENS if self.fill_in_the_middle else ()
        reserved = (f"<|reserved_{n}|>" for n in range(self.reserved_tokens))
        return [*(token for token in roles if token is not None), *chat, *fim, *self.special_tokens, *reserved]

    @property
    def chat_template(self) -> str | None:
        """The Jinja template of the chat format."""
        return None if self.chat is None else CHAT_TEMPLATES[self.chat]
