"""Operations of compiled functions on whole vectors, which LLVM does not find in loops: transposing, pairing bf16.

They take 2-D arrays whose columns lie side by side, rows at any distance, and write whole vectors: sizes are multiples
of LANES. A word is 32 bits: one fp32, or a pair of bf16 in a uint32, as AVX-512 BF16 multiplies them.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils, codegen, config
from numba.extending import intrinsic

_GIVEN: str | None = config.CPU_FEATURES  # type: ignore[attr-defined]
_KNOWN: str = codegen.get_host_cpu_features() if _GIVEN is None else _GIVEN  # type: ignore[no-untyped-call]
FEATURES = {feature[1:] for feature in _KNOWN.split(",") if feature.startswith("+")}
"""Of the CPU that Numba compiles for, by LLVM's names."""
LANES = 16 if "avx512f" in FEATURES else 8 if "avx2" in FEATURES else 4
"""fp32 in a vector."""
HAS_PAIRS = "avx512bf16" in FEATURES
"""Whether this CPU multiplies pairs of bf16."""

INDEX, WORD = ir.IntType(64), ir.IntType(32)
FLOATS, WORDS = ir.VectorType(ir.FloatType(), LANES), ir.VectorType(WORD, LANES)
_BYTE, _BF16 = ir.IntType(8), ir.IntType(16)


class BFloat(ir.Type):  # type: ignore[misc]
    """LLVM's bfloat, which llvmlite does not know."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BFloat)

    def __hash__(self) -> int:
        return hash(BFloat)


class Matrix:
    """An array of one or two dimensions, in the function that `builder` writes."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any) -> None:
        array = context.make_array(kind)(context, builder, value)
        self.dtype = kind.dtype
        self._builder = builder
        self._data = builder.bitcast(array.data, _BYTE.as_pointer())
        self._size = INDEX(kind.dtype.bitwidth // 8)
        self._stride = INDEX(0)
        if kind.ndim == 2:
            self._stride = cgutils.unpack_tuple(builder, array.strides)[0]  # type: ignore[no-untyped-call]

    def load(self, row: Any, column: Any, kind: Any) -> Any:
        """A `kind` from there on."""
        return self._builder.load(self._place(row, column, kind), align=self.dtype.bitwidth // 8)

    def store(self, value: Any, row: Any, column: Any) -> None:
        """Put `value` there."""
        self._builder.store(value, self._place(row, column, value.type), align=self.dtype.bitwidth // 8)

    def _place(self, row: Any, column: Any, kind: Any) -> Any:
        builder = self._builder
        offset = builder.add(builder.mul(row, self._stride), builder.mul(column, self._size))
        return builder.bitcast(builder.gep(self._data, [offset]), kind.as_pointer())


def steps(builder: Any, begin: Any, end: Any, step: int) -> Any:
    """A loop over begin, begin + step, … below end: a context that gives the index."""
    return cgutils.for_range_slice(builder, begin, end, INDEX(step), intp=INDEX)


def sizes(context: Any, builder: Any, kinds: Any, values: Any) -> list[Any]:
    """Integers of any kind as INDEX."""
    return [context.cast(builder, value, kind, types.int64) for kind, value in zip(kinds, values, strict=True)]


def _transpose(_context: Any, target: Any, source: Any, num_rows: Any, num_columns: Any) -> Any:  # pragma: no cover
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to, of = (Matrix(context, builder, *pair) for pair in zip(signature.args[:2], arguments[:2], strict=True))
        M, N = sizes(context, builder, signature.args[2:], arguments[2:])
        with steps(builder, INDEX(0), M, LANES) as (m, _), steps(builder, INDEX(0), N, LANES) as (n, _):
            rows = [_words_in_row(builder, to, of, builder.add(m, INDEX(i)), n) for i in range(LANES)]
            _store_transposed(builder, to, rows, m, n)
        return context.get_dummy_value()

    return types.void(target, source, num_rows, num_columns), generate


def _store_transposed(builder: Any, to: Matrix, rows: list[Any], m: Any, n: Any) -> None:  # pragma: no cover
    """LANES rows of LANES words, whose place before was (m, n)."""
    half = LANES // 2
    lower, upper = (WORDS([first + i // 2 + i % 2 * LANES for i in range(LANES)]) for first in (0, half))
    for _ in range(LANES.bit_length() - 1):  # each time, the elements of a row alternate with those of half the rows on
        rows = [builder.shuffle_vector(rows[i], rows[i + half], which) for i in range(half) for which in (lower, upper)]
    for i, row in enumerate(rows):
        to.store(row, builder.add(n, INDEX(i)), m)


def _words_in_row(builder: Any, to: Matrix, of: Matrix, row: Any, n: Any) -> Any:  # pragma: no cover
    """LANES words as `to` holds them, from word n of a row of `of` on: as they lie there, or rounded to bf16."""
    if to.dtype == of.dtype:
        return of.load(row, n, WORDS)
    column = builder.mul(n, INDEX(2))
    if of.dtype != types.float32:
        return of.load(row, column, WORDS)
    return builder.bitcast(_rounded(builder, of.load(row, column, ir.VectorType(ir.FloatType(), 2 * LANES))), WORDS)


def narrow(builder: Any, numbers: Any, kind: Any) -> Any:
    """A vector of fp32 as arrays of that kind hold it: as it is, or the nearest bf16."""
    return numbers if kind == types.float32 else _rounded(builder, numbers)


def _rounded(builder: Any, numbers: Any) -> Any:  # pragma: no cover
    """The nearest bf16 of a vector of fp32, as integers of 16 bits."""
    size = numbers.type.count
    halves = builder.fptrunc(numbers, ir.VectorType(BFloat(), size))
    return builder.bitcast(halves, ir.VectorType(_BF16, size))


def _pack_rows(_context: Any, target: Any, source: Any, num_words: Any, width: Any) -> Any:  # pragma: no cover
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to, of = (Matrix(context, builder, *pair) for pair in zip(signature.args[:2], arguments[:2], strict=True))
        M, N = sizes(context, builder, signature.args[2:], arguments[2:])
        with steps(builder, INDEX(0), M, 1) as (m, _), steps(builder, INDEX(0), N, LANES) as (n, _):
            to.store(_packed(builder, to, of, m, n), m, n)
        return context.get_dummy_value()

    return types.void(target, source, num_words, width), generate


def _pack_columns(_context: Any, target: Any, source: Any, num_words: Any, width: Any) -> Any:  # pragma: no cover
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to, of = (Matrix(context, builder, *pair) for pair in zip(signature.args[:2], arguments[:2], strict=True))
        M, N = sizes(context, builder, signature.args[2:], arguments[2:])
        with steps(builder, INDEX(0), M, LANES) as (m, _), steps(builder, INDEX(0), N, LANES) as (n, _):
            rows = [_packed(builder, to, of, builder.add(m, INDEX(i)), n) for i in range(LANES)]
            _store_transposed(builder, to, rows, m, n)
        return context.get_dummy_value()

    return types.void(target, source, num_words, width), generate


def _packed(builder: Any, to: Matrix, of: Matrix, m: Any, n: Any) -> Any:  # pragma: no cover
    if to.dtype == types.float32:
        return of.load(m, n, WORDS)
    first = builder.mul(m, INDEX(2))
    halves = [_halves(builder, of, row, n) for row in (first, builder.add(first, INDEX(1)))]
    low, high = (builder.zext(half, WORDS) for half in halves)
    return builder.or_(low, builder.shl(high, WORDS([16] * LANES)))


def _halves(builder: Any, of: Matrix, row: Any, n: Any) -> Any:  # pragma: no cover
    """LANES bf16 from number n of a row of `of` on."""
    if of.dtype == types.float32:
        return _rounded(builder, of.load(row, n, FLOATS))
    return of.load(row, n, ir.VectorType(_BF16, LANES))


def _copy_rows(_context: Any, target: Any, source: Any, num_rows: Any, num_words: Any) -> Any:  # pragma: no cover
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to, of = (Matrix(context, builder, *pair) for pair in zip(signature.args[:2], arguments[:2], strict=True))
        M, N = sizes(context, builder, signature.args[2:], arguments[2:])
        numbers_in_word = INDEX(WORD.width // of.dtype.bitwidth)
        with steps(builder, INDEX(0), M, 1) as (m, _), steps(builder, INDEX(0), N, LANES) as (n, _):
            to.store(of.load(m, builder.mul(n, numbers_in_word), WORDS), m, n)
        return context.get_dummy_value()

    return types.void(target, source, num_rows, num_words), generate


def _turn(_context: Any, numbers: Any, cos: Any, sin: Any, direction: Any) -> Any:  # pragma: no cover
    kinds = (numbers, cos, sin, direction)

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        of, *table = (Matrix(context, builder, *pair) for pair in zip(kinds[:3], arguments[:3], strict=True))
        M, half = cgutils.unpack_tuple(builder, context.make_array(cos)(context, builder, arguments[1]).shape)  # type: ignore[no-untyped-call]
        undefined = FLOATS(ir.Undefined)
        sign = builder.insert_element(undefined, arguments[3], WORD(0))
        sign = builder.shuffle_vector(sign, undefined, WORDS([0] * LANES))
        with steps(builder, INDEX(0), M, 1) as (m, _), steps(builder, INDEX(0), half, LANES) as (n, _):
            places = (m, n), (m, builder.add(n, half))
            first, second = (_wide(builder, of, *place) for place in places)
            c, s = (x.load(m, n, FLOATS) for x in table)
            s = builder.fmul(s, sign)
            one = builder.fsub(builder.fmul(first, c), builder.fmul(second, s), flags=("contract",))
            other = builder.fadd(builder.fmul(second, c), builder.fmul(first, s), flags=("contract",))
            for place, value in zip(places, (one, other), strict=True):
                of.store(narrow(builder, value, of.dtype), *place)
        return context.get_dummy_value()

    return types.void(*kinds), generate


def _wide(builder: Any, of: Matrix, m: Any, n: Any) -> Any:  # pragma: no cover
    if of.dtype == types.float32:
        return of.load(m, n, FLOATS)
    halves = builder.zext(of.load(m, n, ir.VectorType(_BF16, LANES)), WORDS)
    return builder.bitcast(builder.shl(halves, WORDS([16] * LANES)), FLOATS)


def _numbers_in(_context: Any, words: Any) -> Any:  # pragma: no cover
    def generate(_context: Any, _builder: Any, _signature: Any, _arguments: Any) -> Any:
        return INDEX(2 if words.dtype == types.uint32 else 1)

    return types.int64(words), generate


transpose: Callable[[Any, Any, int, int], None] = intrinsic(_transpose)  # type: ignore[assignment]
"""`transpose(target, source, M, N)`: fill target (N, M) from the words of source, (M, N): words, or numbers that are
neighbours in a row, bf16 in uint16 or fp32, which is rounded where words are pairs."""
pack_rows: Callable[[Any, Any, int, int], None] = intrinsic(_pack_rows)  # type: ignore[assignment]
"""`pack_rows(target, source, M, N)`: fill M rows of N words from as many of fp32, or, where words are pairs, from 2 M
rows of bf16 in uint16 or of fp32, which is rounded."""
pack_columns: Callable[[Any, Any, int, int], None] = intrinsic(_pack_columns)  # type: ignore[assignment]
"""`pack_columns(target, source, M, N)`: the same, transposed: fill target, (N, M)."""
copy_rows: Callable[[Any, Any, int, int], None] = intrinsic(_copy_rows)  # type: ignore[assignment]
"""`copy_rows(target, source, M, N)`: M rows of N words, from as many of fp32, or of 2 N bf16 in uint16."""
turn: Callable[[Any, Any, Any, Any], None] = intrinsic(_turn)  # type: ignore[assignment]
"""`turn(numbers, cos, sin, direction)`: rotate rows of fp32, or bf16 in uint16, by the rows of a table (M, half).

Number i pairs with half + i; half is a multiple of LANES, or 0. `direction` is 1, or -1 to turn back.
"""
numbers_in: Callable[[Any], int] = intrinsic(_numbers_in)  # type: ignore[assignment]
"""Numbers in each word of an array: 1 or 2."""
