"""What follows the deduplication of documents: repeated lines, paragraphs and runs of bytes are cut out of them.

duplicates of each task ─▶ lines ─▶ paragraphs ─▶ substring ─▶ cuts of each task
"""

from collections.abc import Sequence

from tokenmill_core.stage import Phase, Work
from tokenmill_corpus.dedup.cut_pass import CutPass
from tokenmill_corpus.dedup.cuts import Cuts
from tokenmill_corpus.dedup.lines import LinePass, ParagraphPass
from tokenmill_corpus.dedup.settings import DedupSettings
from tokenmill_corpus.dedup.substring import SubstringPass

_PASSES: dict[str, type[CutPass]] = {"lines": LinePass, "paragraphs": ParagraphPass, "substring": SubstringPass}
"""Setting that enables a pass ─▶ the pass, in their order."""


def cut_phases(settings: DedupSettings) -> Sequence[Phase]:
    """The phases of all passes that are enabled."""
    return [phase for cut_pass in _passes(settings) for phase in cut_pass.phases()]


def cuts(work: Work, settings: DedupSettings, task: int) -> Cuts:
    """What is cut out of the survivors of filter task `task`, once the phases are done."""
    passes = _passes(settings)
    return passes[-1].cuts(work, task) if passes else Cuts.none()


def _passes(settings: DedupSettings) -> list[CutPass]:
    passes: list[CutPass] = []
    for name, kind in _PASSES.items():
        if getattr(settings, name).enabled:
            passes.append(kind(settings, passes[-1] if passes else None))
    return passes
