"""A SentencePiece BPE model as a `tokenizer.json`, checked against `sentencepiece` itself.

SentencePiece writes spaces as `▁`, puts one in front of every text, and merges over the whole of it, the piece with the
best score first. Characters it has no piece for become bytes, or unknown. Control pieces such as `</s>` are never met
in a text; user-defined ones always are, and never merged.

One difference is left: a text that is nothing but one user-defined piece has no `▁` in front.
"""

import re
from collections import Counter
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, normalizers

from tokenmill_core.errors import ConfigError, InputError
from tokenmill_tokenizer.engines.nasty_texts import nasty_texts
from tokenmill_tokenizer.files.recovered_merges import recover_merges
from tokenmill_tokenizer.files.tokenizer_file import TokenizerFile, added_token, bpe_document

SPACE = "▁"
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 1, 2, 3, 4, 5
_MODEL_TYPES = {1: "unigram", 2: "BPE", 3: "word", 4: "character"}
_BPE = 2


def read_sentencepiece(content: bytes, url: str) -> TokenizerFile:
    """The tokenizer of the model in `content`.

    Errors: `ConfigError` where `sentencepiece` is not installed; `InputError` for what is no BPE model, for what
    `tokenizers` cannot do, or where the two give other ids on a text of the check.
    """
    library, messages = _import()
    model = messages.ModelProto()
    try:
        model.ParseFromString(content)
    except Exception as error:  # of a class that depends on how protobuf was built
        raise InputError(f"{url}: not a SentencePiece model ({error}); is the file whole?") from error
    _refuse_what_cannot_be(model, url)
    imported = _convert(model, url)
    _check(imported.tokenizer_json, library.SentencePieceProcessor(model_proto=content), model, url)
    return imported


def _import() -> tuple[Any, Any]:
    try:
        import sentencepiece
        from sentencepiece import sentencepiece_model_pb2
    except ImportError as error:
        raise ConfigError(
            f"a SentencePiece model is read with sentencepiece and protobuf, which cannot be imported ({error}): "
            "pip install 'tokenmill-tokenizer[sentencepiece]'"
        ) from error
    return sentencepiece, sentencepiece_model_pb2


def _refuse_what_cannot_be(model: Any, url: str) -> None:
    trainer = model.trainer_spec
    if trainer.model_type != _BPE:
        kind = _MODEL_TYPES.get(trainer.model_type, "unknown")
        raise InputError(
            f"{url}: a SentencePiece {kind} model, and only BPE models can be imported; "
            "convert it with transformers and import the tokenizer.json"
        )
    if trainer.treat_whitespace_as_suffix or not model.normalizer_spec.escape_whitespaces:
        raise InputError(f"{url}: a SentencePiece model that writes spaces in an unusual way, which cannot be imported")
    unused = sum(piece.type == _UNUSED for piece in model.pieces)
    if unused:
        raise InputError(f"{url}: {unused} pieces are marked as unused, which cannot be imported")


def _convert(model: Any, url: str) -> TokenizerFile:
    pieces = [piece.piece for piece in model.pieces]
    # Equal scores are merged leftmost first. Of runs of one character that makes the longest piece there is, then the
    # next: as if longer pieces had the better score.
    order = sorted(_of_type(model, _NORMAL), key=lambda n: (-model.pieces[n].score, -len(pieces[n])))
    scores = sorted({model.pieces[n].score for n in order}, reverse=True)
    rank_of_score = {score: rank for rank, score in enumerate(scores)}
    merges = recover_merges({pieces[n]: rank_of_score[model.pieces[n].score] for n in order}, list)
    known = {pieces[n] for n in order}
    for piece, pair in merges.items():
        if not known.issuperset(pair):
            raise InputError(
                f"{url}: piece {piece!r} has characters without a piece of their own; it cannot be imported"
            )
    user_defined = [pieces[n] for n in _of_type(model, _USER_DEFINED)]
    trainer = model.trainer_spec
    document = bpe_document(
        {piece: index for index, piece in enumerate(pieces)},
        [merges[pieces[n]] for n in order if pieces[n] in merges],
        [
            added_token(pieces[n], n, special=kind != _USER_DEFINED)
            for kind in (_UNKNOWN, _CONTROL, _USER_DEFINED)
            for n in _of_type(model, kind)
        ],
        normalizer=_normalizer(model.normalizer_spec, user_defined),
        decoder=_decoder(model),
        unk_token=pieces[trainer.unk_id],
        fuse_unk=True,
        byte_fallback=trainer.byte_fallback,
    )
    end, beginning, padding = (
        pieces[n] if 0 <= n < len(pieces) and model.pieces[n].type == _CONTROL else None
        for n in (trainer.eos_id, trainer.bos_id, trainer.pad_id)
    )
    return TokenizerFile(document, end, beginning, padding)


def _of_type(model: Any, kind: int) -> list[int]:
    return [index for index, piece in enumerate(model.pieces) if piece.type == kind]


def _normalizer(spec: Any, user_defined: list[str]) -> Any:
    steps: list[Any] = []
    if spec.precompiled_charsmap:
        steps.append(normalizers.Precompiled(spec.precompiled_charsmap))
    if spec.remove_extra_whitespaces:
        steps += [normalizers.Replace(Regex(r"\A +"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    steps.append(normalizers.Replace(" ", SPACE))
    if spec.add_dummy_prefix:
        steps.append(normalizers.Prepend(SPACE))
    if spec.remove_extra_whitespaces:
        steps.append(normalizers.Replace(Regex(rf"{SPACE}+\z"), ""))
    if spec.add_dummy_prefix and user_defined:
        # `tokenizers` normalises the pieces it looks for too, and they have no space in front in the middle of a text.
        alone = "|".join(re.escape(piece) for piece in user_defined)
        steps.append(normalizers.Replace(Regex(rf"\A{SPACE}(?=(?:{alone})\z)"), ""))
    return normalizers.Sequence(steps)


def _decoder(model: Any) -> Any:
    steps: list[Any] = [decoders.Replace(SPACE, " ")]
    if model.trainer_spec.byte_fallback:
        steps.append(decoders.ByteFallback())
    steps.append(decoders.Fuse())
    if model.normalizer_spec.add_dummy_prefix:
        steps.append(decoders.Strip(content=" ", left=1, right=0))
    return decoders.Sequence(steps)


def _check(tokenizer_json: bytes, theirs: Any, model: Any, url: str) -> None:
    """Both give the same ids for texts that tell tokenizers apart, and for all pieces of the model."""
    ours = Tokenizer.from_buffer(tokenizer_json)
    ours.encode_special_tokens = True
    for text in _texts(model):
        ids = ours.encode(text, add_special_tokens=False).ids
        expected = theirs.encode(text)
        if ids != expected:
            raise InputError(
                f"{url}: cannot be imported, tokenizers would give other ids than sentencepiece for {text[:200]!r} "
                f"({_first_difference(ids, expected)}); where such texts do not matter, convert it with transformers "
                "and import the tokenizer.json"
            )


def _first_difference(ids: list[int], expected: list[int]) -> str:
    place = next(
        (n for n, (a, b) in enumerate(zip(ids, expected, strict=False)) if a != b), min(len(ids), len(expected))
    )
    return f"from the {place + 1}th id on {ids[place : place + 5]} and not {expected[place : place + 5]}"


def _texts(model: Any) -> list[str]:
    pieces = [piece.piece for piece in model.pieces]
    user_defined = [pieces[n] for n in _of_type(model, _USER_DEFINED)]
    control = [pieces[n] for n in _of_type(model, _CONTROL)]
    others = [piece.replace(SPACE, " ") for piece in pieces if piece not in user_defined]
    amid = [f"a{piece}b {piece} {piece}{piece}" for piece in user_defined]
    joined = [" ".join(others), "".join(others), f"a{SPACE}b {SPACE} {SPACE * 3}"]
    texts = [*nasty_texts(control, others), *amid, *joined, *_runs(model)]
    return [text for text in texts if text.replace(" ", SPACE) not in user_defined]


def _runs(model: Any) -> list[str]:
    """Runs of the characters of pieces that have the same score: which of them is merged first is a matter of place."""
    normal = [model.pieces[n] for n in _of_type(model, _NORMAL)]
    times = Counter(piece.score for piece in normal)
    tied = [piece.piece for piece in normal if times[piece.score] > 1 and len(piece.piece) > 1]
    starts = sorted({piece[0] for piece in tied})[:100]
    return [*tied, "".join(tied), *(f"x{start * length}y" for start in starts for length in range(1, 40))]
