"""What attention does to a tile of scores between its products, on whole vectors that stay in registers.

    forward     scores ─ largest so far ─▶ P = 2^(scale · (scores - largest)) ─▶ words, and their sums
    backward    scores ─▶ P = 2^(scale · scores - log-sum) ─ · (gradient of P - inner) ─▶ that of scores, both in words

A row holds a key's scores, a column a query's. Words (`vectors`) are of one fp32 or of two bf16: of neighbours in a
column for products that sum over keys, in a row for those that sum over queries.
"""

import math
from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tokenmill_trainer.model.cpu.vectors import FLOATS, INDEX, LANES, WORD, WORDS, BFloat, Matrix, sizes, steps

SERIES = (1.0, 0.6931469775951022, 0.24022242077104478, 0.05550733744522396, 0.009671513182462798, 0.001326472874843953)
"""Of 2^x between -½ and ½: to 1e-7 of it, and 1 at 0."""
LEAST = -126.0
"""Of powers of two in fp32; where a CPU cannot scale by them, what is lower is taken for 0."""
ZERO = FLOATS([0.0] * LANES)
_PAIRS = ir.VectorType(BFloat(), 2 * LANES)


def _soften(
    _context: Any, p: Any, scores: Any, top: Any, total: Any, factors: Any, few: Any, scale: Any
) -> Any:  # pragma: no cover
    kinds = (p, scores, top, total, factors, few, scale)

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        to_p, score, *of_queries = _matrices(context, builder, kinds[:5], arguments)
        (first,) = sizes(context, builder, [few], arguments[5:6])
        keys, queries = _shape(context, builder, scores, arguments[1])
        factor, pair = _all(builder, arguments[6]), _numbers_in(p)
        with steps(builder, first, queries, LANES) as (n, _):
            before, sums, _ = (x.load(INDEX(0), n, FLOATS) for x in of_queries)
            now = _largest(builder, before, score, keys, n)
            is_seen = builder.fcmp_ordered(">", now, FLOATS([-math.inf] * LANES))
            less = builder.select(is_seen, _negative(builder, builder.fmul(now, factor)), ZERO)
            shrunk = _power(builder, before, factor, less)
            register = _register(builder, builder.fmul(sums, shrunk))
            with steps(builder, INDEX(0), keys, pair) as (m, _):
                rows = [score.load(row, n, FLOATS) for row in _next(builder, m, pair, 1)]
                powers = [_power(builder, row, factor, less) for row in rows]
                added = powers[0] if pair == 1 else builder.fadd(*powers)
                builder.store(builder.fadd(builder.load(register), added), register)
                to_p.store(_words(builder, powers, alternate=True), builder.udiv(m, INDEX(pair)), n)
            for x, value in zip(of_queries, (now, builder.load(register), shrunk), strict=True):
                x.store(value, INDEX(0), n)
        return context.get_dummy_value()

    return types.void(*kinds), generate


def _soften_backward(
    _context: Any,
    p: Any,
    of_scores: Any,
    of_s_columns: Any,
    scores: Any,
    of_p: Any,
    log_sum: Any,
    inner: Any,
    few: Any,
    scale: Any,
) -> Any:  # pragma: no cover
    kinds = (p, of_scores, of_s_columns, scores, of_p, log_sum, inner, few, scale)

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        *filled, to_columns, score, of_power, log_sums, inners = _matrices(context, builder, kinds[:7], arguments)
        (first,) = sizes(context, builder, [few], arguments[7:8])
        keys, queries = _shape(context, builder, scores, arguments[3])
        factor, pair = _all(builder, arguments[8]), _numbers_in(p)

        def both(m: Any, n: Any, less: Any, inner: Any) -> tuple[Any, Any]:
            power = _power(builder, score.load(m, n, FLOATS), factor, less)
            return power, builder.fmul(power, builder.fsub(of_power.load(m, n, FLOATS), inner))

        with steps(builder, first, queries, pair * LANES) as (n, _):
            columns = _next(builder, n, pair, LANES)
            less = [_negative(builder, log_sums.load(INDEX(0), column, FLOATS)) for column in columns]
            of_columns = list(zip(columns, less, (inners.load(INDEX(0), x, FLOATS) for x in columns), strict=True))
            with steps(builder, INDEX(0), keys, pair) as (m, _):
                rows = _next(builder, m, pair, 1)
                tile = [[both(row, *of_column) for of_column in of_columns] for row in rows]
                for row, of_row in zip(rows, tile, strict=True):
                    for to, vectors in zip(filled, zip(*of_row, strict=True), strict=True):
                        to.store(_words(builder, vectors, alternate=False), row, builder.udiv(n, INDEX(pair)))
                for column, of_column in zip(columns, zip(*tile, strict=True), strict=True):
                    words = _words(builder, [of_score for _, of_score in of_column], alternate=True)
                    to_columns.store(words, builder.udiv(m, INDEX(pair)), column)
        return context.get_dummy_value()

    return types.void(*kinds), generate


def _inner_products(_context: Any, inner: Any, left: Any, right: Any) -> Any:  # pragma: no cover
    kinds = (inner, left, right)

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        to, *factors = _matrices(context, builder, kinds, arguments)
        num_words, columns = _shape(context, builder, left, arguments[1])
        with steps(builder, INDEX(0), columns, LANES) as (n, _):
            register = _register(builder, ZERO)
            with steps(builder, INDEX(0), num_words, 1) as (k, _):
                words = [_numbers(builder, factor.load(k, n, WORDS), _numbers_in(left)) for factor in factors]
                for one, other in zip(*words, strict=True):
                    builder.store(_fused(builder, one, other, builder.load(register)), register)
            to.store(builder.load(register), INDEX(0), n)
        return context.get_dummy_value()

    return types.void(*kinds), generate


def _matrices(context: Any, builder: Any, kinds: Any, arguments: Any) -> list[Matrix]:  # pragma: no cover
    return [Matrix(context, builder, *pair) for pair in zip(kinds, arguments, strict=False)]


def _shape(context: Any, builder: Any, kind: Any, value: Any) -> Any:  # pragma: no cover
    return cgutils.unpack_tuple(builder, context.make_array(kind)(context, builder, value).shape)  # type: ignore[no-untyped-call]


def _next(builder: Any, first: Any, num: int, step: int) -> list[Any]:  # pragma: no cover
    return [builder.add(first, INDEX(i * step)) for i in range(num)]


def _numbers_in(words: Any) -> int:  # pragma: no cover
    return 2 if words.dtype == types.uint32 else 1


def _register(builder: Any, value: Any) -> Any:  # pragma: no cover
    register = cgutils.alloca_once(builder, FLOATS)  # type: ignore[no-untyped-call]
    builder.store(value, register)
    return register


def _all(builder: Any, x: Any) -> Any:  # pragma: no cover
    undefined = FLOATS(ir.Undefined)
    return builder.shuffle_vector(builder.insert_element(undefined, x, WORD(0)), undefined, WORDS([0] * LANES))


def _negative(builder: Any, x: Any) -> Any:  # pragma: no cover
    return builder.fsub(FLOATS([-0.0] * LANES), x)


def _fused(builder: Any, x: Any, factor: Any, added: Any) -> Any:  # pragma: no cover
    return builder.fadd(builder.fmul(x, factor, flags=("contract",)), added, flags=("contract",))


def _largest(builder: Any, before: Any, scores: Matrix, keys: Any, n: Any) -> Any:  # pragma: no cover
    """Of the numbers `before` and those of the columns from n on; by twos, since each step waits for the one before."""

    def larger(one: Any, other: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", one, other), one, other)

    register = _register(builder, before)
    with steps(builder, INDEX(0), keys, 2) as (m, _):
        of_two = larger(*(scores.load(row, n, FLOATS) for row in _next(builder, m, 2, 1)))
        builder.store(larger(of_two, builder.load(register)), register)
    return builder.load(register)


def _power(builder: Any, x: Any, factor: Any, added: Any) -> Any:  # pragma: no cover
    """2^(x · factor + added): 2 to the whole part, times the series of the rest."""
    x = _fused(builder, x, factor, added)
    whole = _called(builder, f"llvm.rint.v{LANES}f32", x)
    rest, series = builder.fsub(x, whole), FLOATS([SERIES[-1]] * LANES)
    for term in SERIES[-2::-1]:
        series = _fused(builder, series, rest, FLOATS([term] * LANES))
    if LANES == 16:
        everywhere, as_usual = ir.IntType(16)(0xFFFF), WORD(4)
        return _called(builder, "llvm.x86.avx512.mask.scalef.ps.512", series, whole, ZERO, everywhere, as_usual)
    exponent = builder.add(builder.fptosi(whole, WORDS), WORDS([127] * LANES))
    product = builder.fmul(series, builder.bitcast(builder.shl(exponent, WORDS([23] * LANES)), FLOATS))
    return builder.select(builder.fcmp_ordered("<", x, FLOATS([LEAST] * LANES)), ZERO, product)


def _called(builder: Any, name: str, *arguments: Any, kind: Any = FLOATS) -> Any:  # pragma: no cover
    signature = ir.FunctionType(kind, [x.type for x in arguments])
    function = cgutils.get_or_insert_function(builder.module, signature, name)  # type: ignore[no-untyped-call]
    return builder.call(function, arguments)


def _words(builder: Any, vectors: Any, *, alternate: bool) -> Any:  # pragma: no cover
    """The one vector of fp32; or two in bf16, the second after the first, or `alternate` numbers of both."""
    if len(vectors) == 1:
        return builder.bitcast(vectors[0], WORDS)
    first, second = vectors
    halves = ir.VectorType(ir.IntType(16), 2 * LANES)
    both = _called(builder, "llvm.x86.avx512bf16.cvtne2ps2bf16.512", second, first, kind=_PAIRS)
    if alternate:
        order = ir.VectorType(WORD, 2 * LANES)([i // 2 + i % 2 * LANES for i in range(2 * LANES)])
        both = builder.shuffle_vector(builder.bitcast(both, halves), halves(ir.Undefined), order)
    return builder.bitcast(both, WORDS)


def _numbers(builder: Any, words: Any, num: int) -> list[Any]:  # pragma: no cover
    """The fp32 of words, or of the first and of the second bf16 of each."""
    if num == 1:
        return [builder.bitcast(words, FLOATS)]
    halves = builder.shl(words, WORDS([16] * LANES)), builder.and_(words, WORDS([0xFFFF0000] * LANES))
    return [builder.bitcast(half, FLOATS) for half in halves]


soften: Callable[..., None] = intrinsic(_soften)
"""`soften(p, scores, top, total, factors, few, scale)`: a step of the softmax of queries from `few` on.

`top`, the largest scores so far, become those with these. `factors`, 2^(scale · (top before - top)), are what all that
has been summed has to be multiplied by, as `total` is, before p, 2^(scale · (scores - top)), is added to it. scores
(keys, BLOCK), p (keys in words, BLOCK), in the same memory if need be, the others (BLOCK,); `scale` is above 0.
"""
soften_backward: Callable[..., None] = intrinsic(_soften_backward)
"""`soften_backward(p, of_scores, of_s_columns, scores, of_p, log_sum, inner, few, scale)`: fill the first three.

p is 2^(scale · scores - log_sum), of_scores p · (of_p - inner), both (keys, BLOCK in words), in the memory of scores
and of_p if need be; of_s_columns is of_scores as (keys in words, BLOCK).
"""
inner_products: Callable[[Any, Any, Any], None] = intrinsic(_inner_products)  # type: ignore[assignment]
"""`inner_products(inner, left, right)`: fill inner (N,) with those of columns, (K in words, N) each."""
