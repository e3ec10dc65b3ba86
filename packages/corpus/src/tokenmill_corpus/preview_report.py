"""A preview as people read it: a table of rules, and a few of the documents that each would drop."""

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from tokenmill_corpus.preview import Preview, RulePreview

_WIDTH_OF_QUANTILES, _WIDTH_OF_ALL = 130, 180
_BARS = "▁▂▃▄▅▆▇█"


def print_preview(preview: Preview, console: Console) -> None:
    """Print `preview`; rules that drop nothing have no examples."""
    console.print(
        f"{preview.documents:,} documents looked at, {preview.bytes:,} bytes; "
        f"rules would keep {preview.kept:,} ({_share(preview.kept, preview.documents)}), {preview.kept_bytes:,} bytes; "
        "duplicates are not looked for"
    )
    for what, num_bytes in preview.edits.items():
        console.print(f"{what}: {num_bytes:,} bytes would be cut away")
    if not preview.rules:
        console.print("no rule is on: choose a --profile, or set a threshold")
        return
    console.print(_table(preview, console.width))
    for rule in preview.rules:
        for line in _examples(rule):
            console.print(line, soft_wrap=True)


def _table(preview: Preview, width: int) -> Table:
    """As many columns as fit: the rules and what they drop always, then quantiles, then distributions."""
    table = Table(caption="drops: by itself; first: counted in the ledger; only: would stay without this rule")
    table.add_column("rule", overflow="fold")
    names = [
        "threshold",
        "drops",
        "first",
        "only",
        *(("5 %", "median", "95 %") if width >= _WIDTH_OF_QUANTILES else ()),
    ]
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    if width >= _WIDTH_OF_ALL:
        table.add_column("distribution (1 % to 99 %)", no_wrap=True)
    for rule in preview.rules:
        shares = (_share(count, preview.documents) for count in (rule.dropped, rule.first, rule.only))
        quantiles = (_number(rule.quantiles[q]) for q in ("0.05", "0.5", "0.95"))
        cells = [rule.rule, _number(rule.threshold), *shares, *quantiles, _bars(rule)]
        table.add_row(*cells[: len(table.columns)])
    return table


def _examples(rule: RulePreview) -> Iterator[str]:
    for example in rule.examples:
        detail = f" ({example.detail})" if example.detail else ""
        yield f"{rule.rule} = {_number(example.value)}{detail}: {example.file}:{example.row} {example.text!r}"


def _bars(rule: RulePreview) -> str:
    """Bar heights on a square-root scale, so that tails can be seen."""
    if rule.histogram_from == rule.histogram_to:
        return f"all {_number(rule.histogram_from)}"
    top = max(rule.histogram) ** 0.5
    bars = "".join(_BARS[round(count**0.5 / top * (len(_BARS) - 1))] if count else " " for count in rule.histogram)
    return f"{_number(rule.histogram_from)} {bars} {_number(rule.histogram_to)}"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) and abs(value) < 1e15 else f"{value:.3g}"
