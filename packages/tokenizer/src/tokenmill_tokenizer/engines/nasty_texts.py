"""Texts that tell engines apart: each kind is one on which tokenizers have been seen to differ."""

from collections.abc import Iterable

CONTRACTIONS = (
    "it's IT'S I'm I'M don't DON'T we've WE'VE you'll YOU'Ll he'd HE'D they're ThEy'Re 'tis o'clock ''s 's's 'ſ 'xyz",
    "'store 'Store 'SToRe 'reach 'REach X'man X'Man 'vet 'Vet 'veto 'LLama 'llama 'dog 'Dog 'time 'ſo don’t IT’S",
)
LANGUAGES = (
    "Ärger über Straßen, naïve façade; Ελληνικά ΣΊΣΥΦΟΣ ς; Привет, мир! Ёж",
    "مَرْحَبًا بكم שָׁלוֹם \u200fmixed\u202e \u202bRTL\u202c",
    "བོད་ཡིག་གི་ཡི་གེ། हिन्दी क्षत्रिय தமிழ் ภาษาไทย ລາວ မြန်မာ ខ្មែរ ქართული አማርኛ",
    "日本語のテキスト。カタカナ漢字ｶﾀｶﾅ 中文没有空格，标点！ 한국어 조합 \u1112\u1161\u11ab 𠀀𪛖 \U0003134a",
    "e\u0301 é \u0041\u030a Å \u212b \ufb01 ﬁ ſ K Ω ẛ\u0323 a\u0323\u0302 \u0344 \u0958 \u2adc",
    "ＡＢＣ１２３　全角 \ufe30 ﷺ ㍍ ① ² ½ Ⅷ ㊿ ǅ ǲ",
)
SYMBOLS = (
    "👨‍👩‍👧‍👦 👍🏽 🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f 🇩🇪🇫🇷 ☺️ ❤️‍🔥 1️⃣",
    "\u200b\u200c\u200d\u2060\ufeff\u00ad\u034f\u180e zero width",
    "\ufffd \ufffe \uffff \ud7ff \ue000 \U0010ffff \U000e0001",
    "‘quotes’ “double” «guillemets» — – … • ™ © ® € £ ¥ ₿ ∑ ∞ ≠ → ⇒ ░ █ 𝔘𝔫𝔦 𝟘𝟙",
    # Newer than the tables of some: characters of Unicode 15, 16 and 17, and compositions of them.
    "a\U00011f04b 1\U00011f501 x\u0cf3y a\U000105c0b 1\U00011de01 a\u088fb \ua7dax !\U0001f8b2!",
    "a\U00016ea0b\U00016ff4 \u1ad0x A\u0295A \u0295a",
    "\U000105d2\u0307 \U00011382\U000113c9 \U00016121\U0001611f \u1c89a \U0001faea\U0001fae8",
)
NUMBERS = (
    " ".join("1234567890123"[:length] for length in range(1, 14)),
    "3.14159 1,000,000 0x1F 1e-9 v2.0.1 2024-02-30 12:34:56 +49 (0)30 007 1st 2nd x1y22z333",
    "٠١٢٣٤٥٦ ०१२३४५६ ๐๑๒๓๔ ０１２３４５６ 一二三四 ⅠⅡⅢⅣ ¹²³⁴ ½¾ 𝟘𝟙𝟚𝟛",
)
CODE = (
    "#version 330\n\n\n#include <stdio.h>\r\nint main(void)\r\n{\r\n\treturn 0;\r\n}\r\n",
    "def f(x):\n    if x:\n        return {'a': [1, 2], \"b\": None}\n\n\n    # done\n\t\t\tpass\n",
    '</div><p class="x">&nbsp;</p> <!-- --> https://example.org/a/b?c=d&e=f#g /usr/lib//x \\\\server\\share',
    "':'search hello ! ((()))[]{}<>;;;;:::: ---- ==== **bold** __init__ $HOME ${x} @user #tag `code` ~/x a//b /**/\n/x",
    "camelCaseHTTPServer XMLHttpRequest snake_case_name SCREAMING_CASE iPhone McDonald ABCdefGHIjkl ÀÉÎabc ǅabc",
)
SPACES = (
    "",
    " ",
    "\n",
    "\t",
    "\r",
    "\r\n",
    "\u0085",
    "\u00a0",
    "\u2028",
    "\u3000",
    "\0",
    "  ",
    "\n\n\n",
    " \n \n ",
    "\u180e",
)
"""Texts by themselves, and what stands before, after and between words."""


def nasty_texts(specials: Iterable[str], vocabulary: Iterable[str] = ()) -> list[str]:
    """The same texts each time: those on which tokenizers have been seen to differ.

    `specials` are texts of special tokens, `vocabulary` texts of ordinary ones, of the tokenizer in question.
    """
    alphabet = "".join(map(chr, range(256)))
    spaced = [f"{space}word{space}{space}word {space} 12{space}!{space}" for space in SPACES]
    runs = [
        unit * count
        for unit in ("a", " ", "_", "\n", "7", "=", "漢", "\t ", "\r\n", "ab", "é", "👍")
        for count in (3, 33, 300)
    ]
    every_byte = [
        alphabet,
        " ".join(alphabet),
        # What characters of two, three and four bytes can begin with.
        "".join(map(chr, range(0x100, 0x800, 0x40))),
        "".join(chr(code) for code in range(0x800, 0x10000, 0x400) if not 0xD800 <= code < 0xE000),
        "".join(chr(code) for code in range(0x10000, 0x110000, 0x8000)),
    ]
    marks = [text for token in specials for text in (token, f"a{token}b", f" {token} {token}\n", token[:-1], token[1:])]
    words = list(vocabulary)
    return [*SPACES, *spaced, *runs, *every_byte, *CONTRACTIONS, *LANGUAGES, *SYMBOLS, *NUMBERS, *CODE, *marks, *words]
