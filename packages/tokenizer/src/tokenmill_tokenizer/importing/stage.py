"""The `import-tokenizer` stage: a file of somebody else's ─▶ `tokenizer.json`, and files for other libraries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from pydantic import Field, model_validator
from tokenizers import Tokenizer

from tokenmill_core import storage
from tokenmill_core.errors import InputError
from tokenmill_core.manifest import Frozen, ManifestBase, TokenizerManifest
from tokenmill_core.stage import Inputs, Phase, Report, Stage, StageType, Task, Work
from tokenmill_tokenizer.files.dataset_files import dataset_files, write_file
from tokenmill_tokenizer.files.tokenizer_file import TokenizerFile
from tokenmill_tokenizer.importing.huggingface import read_huggingface
from tokenmill_tokenizer.importing.ids import check_given_ids, check_written_ids
from tokenmill_tokenizer.importing.sentencepiece import read_sentencepiece
from tokenmill_tokenizer.importing.source import Kind, find_source, kind_of, main_file, named
from tokenmill_tokenizer.importing.tiktoken import PUBLISHED, Published, read_tiktoken
from tokenmill_tokenizer.open import USUAL_END_TOKENS
from tokenmill_tokenizer.splits import Split, SplitRule

_PHASE = "import"


class ImportTokenizerConfig(Frozen):
    """Settings of `prep import-tokenizer`."""

    split: Split | None = None
    """tiktoken ranks alone: how text is cut before merging. None: what the file's name stands for (`cl100k_base`)."""
    pattern: str | None = None
    """tiktoken ranks alone: a regular expression in place of `split`."""
    special_tokens: dict[str, int] = {}
    """tiktoken ranks alone: special tokens and their ids, in place of those that the file's name stands for."""
    end_of_document: str | None = None
    """Special token that closes a document. None: what its settings say, or a usual one that is there."""
    beginning_of_document: str | None = None
    """Special token that opens a document. None: what its settings say, or none."""
    padding: str | None = None
    """Special token that fills up short sequences. None: what its settings say, or none."""
    pad_to_multiple: int = Field(default=128, ge=1, le=1 << 16)
    """The manifest's `padded_vocab_size`, the rows of a model's embedding, is the next multiple of this."""

    @model_validator(mode="after")
    def _one_way_to_cut(self) -> "ImportTokenizerConfig":
        if self.split and self.pattern is not None:
            raise ValueError(f"pattern: {self.pattern!r} and split {self.split} both say how to cut; leave one out")
        SplitRule(pattern=self.pattern)
        return self


@dataclass(frozen=True)
class ImportTokenizerStage(Stage):
    """See the module's docstring."""

    name: ClassVar[str] = "import-tokenizer"
    version: ClassVar[int] = 1
    tools: ClassVar[tuple[str, ...]] = ("tokenmill-tokenizer", "tokenizers")

    config: ImportTokenizerConfig
    inputs: Inputs
    dataset_name: str

    def phases(self) -> Sequence[Phase]:
        """One pass over one file."""
        return (Phase(_PHASE, self.plan, self.run),)

    def plan(self, work: Work) -> Sequence[Task]:
        """One task."""
        return [Task(index=0, payload={}, weight=max(main_file(self.inputs.raw[0]).bytes, 1))]

    def run(self, task: Task, work: Work) -> Report:
        """Read, convert, and write the files."""
        read = self._read()
        tokenizer = _load(read.tokenizer_json, main_file(self.inputs.raw[0]).url)
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        imported = self._with_roles(read, vocabulary)
        special_tokens = _special_tokens(imported, tokenizer, vocabulary)
        contents, notes = dataset_files(imported, special_tokens)
        files = tuple(write_file(work.path(_PHASE, name), content) for name, content in contents.items())
        extra = {
            # Ids can have gaps, so the highest one counts, not their number.
            "vocab_size": max(vocabulary.values(), default=-1) + 1,
            "special_tokens": special_tokens,
            "end_of_document": imported.end_of_document,
            "beginning_of_document": imported.beginning_of_document,
            "padding": imported.padding,
        }
        return Report(files=files, notes=notes, extra=extra)

    def _read(self) -> TokenizerFile:
        group = self.inputs.raw[0]
        contents = {file.name: storage.read_bytes(file.url) for file in group.files}
        file = main_file(group)
        content = contents.pop(file.name)
        kind = kind_of(content, file.url)
        if kind is Kind.TIKTOKEN:
            return self._read_tiktoken(content, file.url)
        for setting in ("split", "pattern", "special_tokens"):
            if getattr(self.config, setting):
                raise InputError(f"{setting}: {file.url} says this itself, only tiktoken ranks do not; leave it out")
        if kind is Kind.SENTENCEPIECE:
            return read_sentencepiece(content, file.url)
        return read_huggingface(content, contents)

    def _read_tiktoken(self, content: bytes, url: str) -> TokenizerFile:
        published = PUBLISHED.get(self.inputs.raw[0].name)
        split, pattern = self.config.split, self.config.pattern
        if published is None and not (split or pattern):
            raise InputError(
                f"{url}: tiktoken ranks do not say how text is cut; give --split ({', '.join(Split)}) or --pattern "
                f"REGEX, or the file one of the names {', '.join(PUBLISHED)}"
            )
        published = published or Published(Split.CL100K)
        rule = SplitRule(split=split or published.split, pattern=pattern)
        try:
            return read_tiktoken(content, rule, self.config.special_tokens or published.special_tokens)
        except InputError as error:
            raise InputError(f"{url}: {error}") from error

    def _with_roles(self, imported: TokenizerFile, vocabulary: Mapping[str, int]) -> TokenizerFile:
        """With what the settings say of end, beginning and padding, all of them tokens that it has."""
        usual = next((token for token in USUAL_END_TOKENS if token in vocabulary), None)
        chosen = replace(
            imported,
            end_of_document=self.config.end_of_document or imported.end_of_document or usual,
            beginning_of_document=self.config.beginning_of_document or imported.beginning_of_document,
            padding=self.config.padding or imported.padding,
        )
        for role in ("end_of_document", "beginning_of_document", "padding"):
            token = getattr(chosen, role)
            if token is not None and token not in vocabulary:
                raise InputError(
                    f"{role}: {self.inputs.raw[0].name} has no token {token!r}; name one that it has"
                    + (f", such as {usual!r}" if usual else "")
                )
        return chosen

    def manifest(self, common: dict[str, Any], work: Work) -> ManifestBase:
        """The tokenizer manifest, with what was found in the file."""
        found = work.reports(_PHASE)[0].extra
        multiple = self.config.pad_to_multiple
        return TokenizerManifest(**common, **found, padded_vocab_size=-(-found["vocab_size"] // multiple) * multiple)


def _load(tokenizer_json: bytes, url: str) -> Any:
    try:
        check_written_ids(tokenizer_json)
        tokenizer = Tokenizer.from_buffer(tokenizer_json)
        check_given_ids(tokenizer_json, tokenizer)
    except InputError as error:
        raise InputError(f"{url}: {error}") from error
    except Exception as error:  # the library raises bare Exception
        raise InputError(f"{url}: not a tokenizer.json that tokenizers can load: {error}") from error
    return tokenizer


def _special_tokens(imported: TokenizerFile, tokenizer: Any, vocabulary: Mapping[str, int]) -> dict[str, int]:
    """Special tokens and their ids, in the order of ids; a token with a part to play is one."""
    found = {token.content: index for index, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    for token in (imported.end_of_document, imported.beginning_of_document, imported.padding):
        if token is not None:
            found[token] = vocabulary[token]
    return dict(sorted(found.items(), key=lambda item: item[1]))


def build(config: ImportTokenizerConfig, inputs: Sequence[str], name: str | None) -> ImportTokenizerStage:
    """The stage for one INPUT."""
    group = named(find_source(inputs))
    return ImportTokenizerStage(config=config, inputs=Inputs(raw=(group,)), dataset_name=name or group.name)


STAGE = StageType(config=ImportTokenizerConfig, build=build)
