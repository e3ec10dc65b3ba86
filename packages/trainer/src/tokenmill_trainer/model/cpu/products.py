"""Small matrix products inside of compiled functions: sums (M, N) of left (M, K) · right (K, N), in fp32.

    4 rows by 4 vectors of sums (by 2 where registers are few) ─ stay in registers while k runs ─▶ sums

Both factors are of words (`vectors`): fp32, or pairs of bf16 that are neighbours in k, at twice the speed; K counts
words. M is a multiple of 4, N of LANES.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tokenmill_trainer.model.cpu.vectors import FLOATS, INDEX, LANES, WORD, WORDS, BFloat, Matrix, narrow, sizes, steps

ROWS, VECTORS = 4, 2 if LANES == 8 else 4
_PAIRS = ir.VectorType(BFloat(), 2 * LANES)


def _set_product(_context: Any, sums: Any, left: Any, right: Any, M: Any, K: Any, N: Any) -> Any:  # pragma: no cover
    return _code((sums, left, right, M, K, N), lambda _builder, products, *_: products)


def _set_product_plus(
    _context: Any, sums: Any, left: Any, right: Any, M: Any, K: Any, N: Any, row: Any
) -> Any:  # pragma: no cover
    def finish(builder: Any, products: Any, place: tuple[Any, Any], _sums: Matrix, row: Matrix) -> Any:
        return builder.fadd(products, row.load(INDEX(0), place[1], FLOATS))

    return _code((sums, left, right, M, K, N, row), finish)


def _add_product(_context: Any, sums: Any, left: Any, right: Any, M: Any, K: Any, N: Any) -> Any:  # pragma: no cover
    def finish(builder: Any, products: Any, place: tuple[Any, Any], sums: Matrix) -> Any:
        return builder.fadd(sums.load(*place, FLOATS), products)

    return _code((sums, left, right, M, K, N), finish)


def _scale_and_add_product(
    _context: Any, sums: Any, left: Any, right: Any, M: Any, K: Any, N: Any, factors: Any
) -> Any:  # pragma: no cover
    def finish(builder: Any, products: Any, place: tuple[Any, Any], sums: Matrix, factors: Matrix) -> Any:
        old = builder.fmul(sums.load(*place, FLOATS), factors.load(INDEX(0), place[1], FLOATS))
        return builder.fadd(old, products)

    return _code((sums, left, right, M, K, N, factors), finish)


def _code(kinds: tuple[Any, ...], finish: Callable[..., Any]) -> Any:  # pragma: no cover
    """The signature for arguments of `kinds`, and what writes the code.

    `finish(builder, products, place, sums, factors if there are any)`: what a vector of products becomes. They are
    summed on their own first, so that sums of many products lose few digits.
    """

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        M, K, N = sizes(context, builder, kinds[3:6], arguments[3:6])
        arrays = [Matrix(context, builder, kinds[i], arguments[i]) for i in range(len(kinds)) if not 3 <= i < 6]
        sums, left, right, *factors = arrays
        end = INDEX(0)
        for vectors in (VECTORS, VECTORS // 2, 1):  # as wide tiles as there are, then one half as wide, then one vector
            begin, end = end, builder.sub(N, builder.srem(N, INDEX(LANES * vectors)))
            with steps(builder, begin, end, LANES * vectors) as (n, _), steps(builder, INDEX(0), M, ROWS) as (m, _):
                rows = [builder.add(m, INDEX(i)) for i in range(ROWS)]
                columns = [builder.add(n, INDEX(LANES * j)) for j in range(vectors)]
                tile = {(row, column): _register(builder) for row in rows for column in columns}
                for register in tile.values():
                    builder.store(FLOATS([0.0] * LANES), register)
                with steps(builder, INDEX(0), K, 1) as (k, _):
                    _add_step(builder, tile, left, right, rows, columns, k)
                for place, register in tile.items():
                    finished = finish(builder, builder.load(register), place, sums, *factors)
                    sums.store(narrow(builder, finished, sums.dtype), *place)
        return context.get_dummy_value()

    return types.void(*kinds), generate


def _add_step(
    builder: Any, tile: dict[tuple[Any, Any], Any], left: Matrix, right: Matrix, rows: Any, columns: Any, k: Any
) -> None:  # pragma: no cover
    """Add left[row, k] · right[k, column …] to every vector of the tile."""
    of_right = [right.load(k, column, WORDS) for column in columns]
    for row in rows:
        of_left = builder.insert_element(WORDS(ir.Undefined), left.load(row, k, WORD), WORD(0))
        of_left = builder.shuffle_vector(of_left, WORDS(ir.Undefined), WORDS([0] * LANES))
        for column, vector in zip(columns, of_right, strict=True):
            register = tile[row, column]
            builder.store(_multiplied(builder, builder.load(register), of_left, vector, right.dtype), register)


def _register(builder: Any) -> Any:  # pragma: no cover
    return cgutils.alloca_once(builder, FLOATS)  # type: ignore[no-untyped-call]


def _multiplied(builder: Any, sums: Any, left: Any, right: Any, kind: Any) -> Any:  # pragma: no cover
    if kind == types.float32:
        left, right = (builder.bitcast(x, FLOATS) for x in (left, right))
        return builder.fadd(sums, builder.fmul(left, right, flags=("contract",)), flags=("contract",))
    signature = ir.FunctionType(FLOATS, [FLOATS, _PAIRS, _PAIRS])
    name = "llvm.x86.avx512bf16.dpbf16ps.512"
    dot = cgutils.get_or_insert_function(builder.module, signature, name)  # type: ignore[no-untyped-call]
    return builder.call(dot, [sums, builder.bitcast(left, _PAIRS), builder.bitcast(right, _PAIRS)])


set_product: Callable[[Any, Any, Any, int, int, int], None] = intrinsic(_set_product)  # type: ignore[assignment]
"""`set_product(sums, left, right, M, K, N)`: sums = left · right; in uint16 they are rounded to bf16."""
set_product_plus: Callable[[Any, Any, Any, int, int, int, Any], None] = intrinsic(_set_product_plus)  # type: ignore[assignment]
"""`set_product_plus(sums, left, right, M, K, N, row)`: sums = left · right + row (N,), rounded likewise."""
add_product: Callable[[Any, Any, Any, int, int, int], None] = intrinsic(_add_product)  # type: ignore[assignment]
"""`add_product(sums, left, right, M, K, N)`: sums += left · right."""
scale_and_add_product: Callable[[Any, Any, Any, int, int, int, Any], None] = intrinsic(_scale_and_add_product)  # type: ignore[assignment]
"""`scale_and_add_product(sums, left, right, M, K, N, factors)`: sums = sums · factors (N,) + left · right."""
