"""Compiled cutting against `tokenizers`, to the byte."""

import itertools
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill_core.compiled.text_buffers import TextBuffers, column_buffers
from tokenmill_tokenizer.cutting import open_cutter
from tokenmill_tokenizer.cutting.characters import character_kinds
from tokenmill_tokenizer.cutting.native import NativeCutter
from tokenmill_tokenizer.cutting.reference import ReferenceCutter
from tokenmill_tokenizer.splits import Split, SplitRule, pre_tokenizer

NAMED = [pytest.param(SplitRule(split=split), id=split.value) for split in Split]

PROSE = {
    "English": "The mill's wheel doesn't turn—they've 3 spare ones (from 1999), and I'd say that's 1,234.50 too MANY!",
    "German": "Die Straßenbahn fährt über 12 Brücken; „schön“, sagte Jürgen, »aber LANGSAM«.",
    "French": "L'été, qu'on disait « long », s'est achevé le 21 septembre : c'était l'un des plus chauds\u00a0!",
    "Turkish": "İstanbul'da IŞIK ve ılık rüzgâr: Iğdır'ın 3. günü.",
    "Vietnamese": "Tiếng Việt có nhiều dấu thanh, từ «một» đến «mười» (10).",
    "Russian": "Мельница стоит у реки с 1875 года, и её колёса всё ещё вертятся; ЭТО чудо.",
    "Greek": "Ο μύλος γυρίζει αργά: «καλημέρα», είπε ο Ὀδυσσεύς, 24 φορές.",
    "Arabic": "تَدُورُ الطَّاحُونَةُ بِبُطْءٍ، وَفِيهَا ٣٤٥ كِيسًا؛ أَلَيْسَ كَذٰلِكَ؟",
    "Hebrew": "הַטַּחֲנָה עוֹמֶדֶת לְיַד הַנָּהָר, כ־12 ק״מ מכאן.",
    "Hindi": "चक्की नदी के किनारे है। वहाँ १२३ बोरियाँ रखी हैं, ठीक है न?",
    "Tamil": "ஆலை ஆற்றின் அருகே உள்ளது; அங்கு 45 மூட்டைகள்.",
    "Thai": "โรงสีตั้งอยู่ริมแม่น้ำ มีข้าว ๑๒๓ กระสอบ",
    "Tibetan": "རང་འཐག་ནི་ཆུ་བོའི་འགྲམ་དུ་ཡོད། ༡༢༣",
    "Korean": "방앗간은 강가에 있고, 자루가 12개 있다. 그렇지요?",
    "Japanese": "水車小屋は川のそばにあり、袋が１２３個ある。「そうですね」とケンは言ったABCd。",
    "Chinese": "磨坊在河边，那里有三百四十五袋面粉，共12345公斤。是吗？",
    "Georgian": "წისქვილი მდინარესთან დგას, ᲡᲐᲓ 12 ტომარაა.",
    "decomposed": "Cafe\u0301 nai\u0308ve Å \u212b e\u0301E\u0301x A\u0301\u0302b \u0301 \u0301a",
    "emoji": "👨\u200d👩\u200d👧\u200d👦👍🏽 ok❤\ufe0f\u200d🔥!!1 🇩🇪🇫🇷 1\ufe0f⃣2\ufe0f⃣ ☕\ufe0f\u200b\u200d\ufeff",
    "mathematics": "∀x∈ℝ: x²+½≥Ⅳ 𝒜𝖇𝟘𝟙 ⅷ ① ʰˢ ªº ǅ ǆ ﬀ Ａ１",
    "code": "def __init__(x_1=0x1F):\n\tif x_1 != -1e-05:  # it's\r\n        return 'a\\n' + \"b\"//2\n\n\n/* end */\n",
    "markup": "<|endoftext|> <s>old</s> [PAD] &nbsp; https://a.example/b?c=1&d=2#e /usr/lib //\n//\r\n",
    "CamelCase": "parseHTTPResponseXMLv2 iOS16 McDonald'sX O'NEIL'S we'LL weʼll we’ll I'ſ I'M'm 'd've",
}
ENDINGS = [
    "s",
    "t",
    "m",
    "d",
    "ll",
    "ve",
    "re",
    "S",
    "T",
    "M",
    "D",
    "LL",
    "Ve",
    "rE",
    "lL",
    "ſ",
    "L",
    "R",
    "V",
    "l",
    "r",
    "v",
    "",
]
SPACES = [
    "",
    " ",
    "  ",
    "   ",
    "\n",
    "\n\n",
    "\r\n",
    "\r",
    "\n\r\n",
    "\t",
    "\u0085",
    "\u00a0",
    "\u3000",
    "\u2028",
    "\x0b",
]

KINDS = character_kinds()
RUN_STARTS = np.flatnonzero(np.diff(KINDS, prepend=255))
BORDERS = [chr(c) for c in {*RUN_STARTS.tolist(), *(RUN_STARTS[1:] - 1).tolist()} if not 0xD800 <= c < 0xE000]
COMMON = list(
    " \n\r\t'/sStTmMdDlLrReEvVſKkaB019٣²Ⅳ._!,-ǅʰ日é\u0301\u093f\u20dd\u00a0\u0085\u3000\u2028\u200b\u200d\x1c👍🏽𝒜"
)
ALPHABET = st.sampled_from(COMMON) | st.sampled_from(BORDERS) | st.characters(codec="utf-8")


def buffers(*texts: str) -> TextBuffers:
    return column_buffers(pa.array(texts, pa.large_string()))


def assert_cut_alike(rule: SplitRule, texts: list[str]) -> None:
    text = buffers(*texts)
    found, expected = NativeCutter(rule).cut(text), ReferenceCutter(rule).cut(text)
    assert found.dtype == np.int64
    if found.tolist() != expected.tolist():  # then say where
        for one in texts:
            assert pieces(NativeCutter(rule), one) == pieces(ReferenceCutter(rule), one)


def pieces(cutter: NativeCutter | ReferenceCutter, text: str) -> list[bytes]:
    ends = cutter.cut(buffers(text)).tolist()
    return [text.encode()[first:last] for first, last in itertools.pairwise([0, *ends])]


@pytest.mark.parametrize("split", list(Split))
@pytest.mark.parametrize("group", [None, 1, 2, 3, 7])
def test_text_of_many_scripts(split: Split, group: int | None) -> None:
    whole = "\n".join(PROSE.values())
    spaced = [f"{text}{space}" for text in PROSE.values() for space in SPACES]
    assert_cut_alike(
        SplitRule(split=split, digit_group=group), [*PROSE.values(), whole, whole.upper(), whole.title(), *spaced]
    )


@pytest.mark.parametrize("rule", NAMED)
def test_contractions_and_white_space_between_all_kinds(rule: SplitRule) -> None:
    around = ["a", "A", "日", "1", "!", "\u0301", "/", "é", "👍"]
    contractions = [
        f"{left}'{ending}{right}"
        for ending in ENDINGS
        for left in ["", " ", "'", *around]
        for right in ["", "'s", *around]
    ]
    gaps = [f"{left}{one}{two}{right}" for left in around for right in around for one in SPACES for two in SPACES]
    assert_cut_alike(rule, contractions + gaps)


@pytest.mark.parametrize("rule", NAMED)
def test_all_short_strings_of_the_kinds(rule: SplitRule) -> None:
    """Every order of a letter of each case, a mark, a digit, a sign and each sort of white space."""
    alphabet = "aA日\u03011!/ \n\t's"
    texts = ["".join(letters) for length in range(5) for letters in itertools.product(alphabet, repeat=length)]
    assert_cut_alike(rule, texts)


@settings(max_examples=500, deadline=None)
@given(st.lists(st.text(ALPHABET, max_size=16), max_size=6), st.sampled_from([None, 1, 2, 3, 4, 1000]))
def test_any_text(texts: list[str], group: int | None) -> None:
    for split in Split:
        assert_cut_alike(SplitRule(split=split, digit_group=group), texts)


@pytest.mark.parametrize("rule", NAMED)
def test_strings_of_few_characters(rule: SplitRule) -> None:
    """Repeats of the same few characters, which single draws seldom come to."""
    random_ = random.Random(f"{rule}")
    few = [random_.choices(COMMON + BORDERS[::40], k=random_.randint(1, 4)) for _ in range(4000)]
    assert_cut_alike(rule, ["".join(random_.choices(some, k=random_.randint(1, 12))) for some in few])


@pytest.mark.parametrize("rule", [*NAMED, SplitRule(pattern="a*|[^a]{2}"), SplitRule(pattern="x")])
def test_documents_end_pieces_and_empty_ones_have_none(rule: SplitRule) -> None:
    texts = ["", "ab", "", "", "cd ", " ef's", "1", "2", "\n", "\n", ""]
    ends = open_cutter(rule).cut(buffers(*texts)).tolist()
    assert ends == sorted(set(ends))
    assert {text_end for text_end in np.cumsum([len(text) for text in texts]).tolist() if text_end} <= set(ends)
    assert open_cutter(rule).cut(buffers()).tolist() == open_cutter(rule).cut(buffers("", "")).tolist() == []


@pytest.mark.parametrize("rule", NAMED)
def test_a_slice_is_cut_in_the_coordinates_of_its_buffer(rule: SplitRule) -> None:
    texts = ["ein Wort", "zwei, Wörter's", "", "日本 12345\n\n x"]
    array = pa.array(texts, pa.large_string())
    first = len(texts[0])
    part = column_buffers(array.slice(1, 2))
    assert part.offsets[0] == first
    expected = first + open_cutter(rule).cut(buffers(*texts[1:3]))
    assert open_cutter(rule).cut(part).tolist() == ReferenceCutter(rule).cut(part).tolist() == expected.tolist()


def test_the_reference_ends_pieces_where_the_pre_tokenizer_does() -> None:
    for rule in [*(SplitRule(split=split) for split in Split), SplitRule(pattern=r"\p{Lu}\p{Ll}*|\d+")]:
        for text in PROSE.values():
            spans = [span for _, span in pre_tokenizer(rule).pre_tokenize_str(text)]
            assert pieces(ReferenceCutter(rule), text) == [text[first:last].encode() for first, last in spans]


def test_threads_share_a_cutter() -> None:
    cutter = open_cutter(SplitRule(split=Split.O200K))
    texts = [buffers(*(text * (n + 1) for text in PROSE.values())) for n in range(16)]
    expected = [cutter.cut(text).tolist() for text in texts]
    with ThreadPoolExecutor(4) as threads:
        assert [ends.tolist() for ends in threads.map(cutter.cut, texts)] == expected
