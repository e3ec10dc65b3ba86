"""Filters and dedup of `prep clean` on texts that broke other tools, each with what is right."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

Prep = Callable[..., Any]
Write = Callable[..., Path]


@pytest.fixture
def clean(prep: Prep, tmp_path: Path, write_lines: Write) -> Callable[..., Any]:
    """clean(rows, *options): (rows that stay, rows of the ledger, the manifest)."""

    def run(rows: list[Any], *options: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, Any]]:
        raw, out = write_lines("raw.jsonl", rows), tmp_path / "out"
        found = prep("clean", raw, "--out", out, "--workers", "1", "--ledger", "full", *options)
        assert found.code == 0, found.err
        tables = {
            name: [row for p in sorted(out.glob(f"{name}-*")) for row in pq.read_table(p).to_pylist()]
            for name in ("part", "dropped")
        }
        return tables["part"], tables["dropped"], json.loads((out / "manifest.json").read_bytes())

    return run


def test_tiny_documents_are_duplicates_of_their_copies_alone(clean: Callable[..., Any]) -> None:
    """Fewer words than an n-gram has: exact copies go, empty and wordless ones are nobody's duplicates."""
    texts = ["cat", "dog", "cat", "", "!!!", "???", "four words stand here"]
    kept, dropped, manifest = clean(texts, "--profile", "none", "--dedup", "minhash")
    assert [row["text"] for row in kept] == ["cat", "dog", "!!!", "???", "four words stand here"]
    assert [(row["row"], row["rule"], row["kept_row"]) for row in dropped] == [(3, "exact_duplicate", 1)]
    assert {row["reason"]: row["documents"] for row in manifest["ledger"]} == {"empty_text": 1, "exact_duplicate": 1}


def test_copies_in_other_dress_go_by_their_words(clean: Callable[..., Any]) -> None:
    kept, dropped, _ = clean(["cat", "dog", "Cat!", "the cat"], "--profile", "none", "--dedup", "minhash")
    assert [row["text"] for row in kept] == ["cat", "dog", "the cat"]
    assert [(row["rule"], row["value"], row["threshold"]) for row in dropped] == [("near_duplicate", 1.0, 0.75)]


ARTICLE = [
    "The river rises in the hills to the north of the town and flows through three counties. People have lived on it "
    "for a long time, and with it.",
    "Its water turned mills that ground the corn of the whole valley. When the last of them closed, the weirs were "
    "left to the fish and to the children who caught them.",
    "Today a path follows the bank from the source to the sea. It takes about four days to walk, and there is an inn "
    "at the end of each. Most who set out have said that they would do so again.",
]


@pytest.mark.parametrize("profile", ["gopher", "c4", "fineweb", "native"])
def test_blank_lines_cost_nothing_and_every_drop_has_a_reason(clean: Callable[..., Any], profile: str) -> None:
    """Empty, one word, punctuation, newlines, and an article with blank lines between its paragraphs, and without."""
    texts = ["", "word", "?! ... --- !!!", "\n\n\n\n", "\n\n\n\n".join(ARTICLE), "\n".join(ARTICLE)]
    options = ("--profile", profile, "--scores", "--set", "dedup.exact=none", "--set", "dedup.minhash.enabled=false")
    # The article is a little short of the usual share of tokens with a letter.
    relaxed = (
        ("--set", "filter.gopher_quality.min_alphabetic_token_ratio=0.7") if profile in ("gopher", "fineweb") else ()
    )
    kept, dropped, manifest = clean(texts, *options, *relaxed)
    assert [row["row"] for row in kept] == [5, 6]
    spaced, single = ({k: v for k, v in row.items() if "." in k} for row in kept)
    paragraphs = {k for k in spaced if "paragraph" in k}
    assert {k: v for k, v in spaced.items() if k not in paragraphs} == {
        k: v for k, v in single.items() if k not in paragraphs
    }
    assert all(value == value for value in spaced.values()), "no NaN"
    assert sum(row["documents"] for row in manifest["ledger"]) == 4
    assert [row["row"] for row in dropped] == [2, 3], "the other two gave no document at all"
    assert all(row["value"] == row["value"] and row["threshold"] is not None for row in dropped)


PARAGRAPHS = {
    "ar": [
        "ذَهَبَ الْوَلَدُ إِلَى السُّوقِ فِي الصَّبَاحِ لِيَشْتَرِيَ الْخُبْزَ وَالْحَلِيبَ لِأُمِّهِ",
        "تَقَعُ الْمَدِينَةُ الْقَدِيمَةُ عَلَى ضِفَّةِ النَّهْرِ وَحَوْلَهَا بَسَاتِينُ كَثِيرَةٌ مِنَ النَّخِيلِ",
        "كَتَبَ الشَّاعِرُ قَصِيدَةً طَوِيلَةً عَنِ الْبَحْرِ وَقَرَأَهَا أَمَامَ النَّاسِ فِي الْمَسَاءِ",
        "يَعْمَلُ أَبِي فِي مَصْنَعٍ كَبِيرٍ خَارِجَ الْبَلْدَةِ وَيَعُودُ إِلَى الْبَيْتِ مُتْعَبًا كُلَّ لَيْلَةٍ",
        "سَقَطَ الْمَطَرُ طَوَالَ الْأُسْبُوعِ فَامْتَلَأَتِ الْآبَارُ وَفَرِحَ الْفَلَّاحُونَ بِمَوْسِمٍ جَدِيدٍ",
    ],
    "hi": [
        "लड़का सुबह बाज़ार गया और अपनी माँ के लिए रोटी और दूध लेकर आया",
        "पुराना शहर नदी के किनारे बसा है और उसके चारों ओर आम के बाग हैं",
        "कवि ने समुद्र पर एक लंबी कविता लिखी और शाम को सबके सामने पढ़ी",
        "मेरे पिता गाँव के बाहर एक बड़े कारखाने में काम करते हैं और रात को थककर लौटते हैं",
        "पूरे हफ्ते बारिश होती रही, कुएँ भर गए और किसान नई फसल की आशा से खुश हुए",
    ],
    "th": [
        "เด็กชายไปตลาดตอนเช้าเพื่อซื้อขนมปังกับนมให้แม่",
        "เมืองเก่าตั้งอยู่ริมแม่น้ำและมีสวนผลไม้ล้อมรอบมากมาย",
        "กวีเขียนบทกวียาวเกี่ยวกับทะเลแล้วอ่านให้ผู้คนฟังในตอนเย็น",
        "พ่อของฉันทำงานในโรงงานใหญ่นอกหมู่บ้านและกลับมาอย่างเหนื่อยล้าทุกคืน",
        "ฝนตกตลอดทั้งสัปดาห์ บ่อน้ำจึงเต็มและชาวนาก็ดีใจกับฤดูกาลใหม่",
    ],
    "zh": [
        "男孩早上去市场给母亲买面包和牛奶。",
        "古城坐落在河边，四周有许多果园。",
        "诗人写了一首关于大海的长诗，晚上读给大家听。",
        "我父亲在村外的一家大工厂上班，每天夜里疲惫地回家。",
        "整个星期都在下雨，水井满了，农民盼望着好收成。",
    ],
    "ja": [
        "少年は朝早く市場へ行き、母のためにパンと牛乳を買った。",
        "古い町は川のほとりにあり、まわりには果樹園が広がっている。",
        "詩人は海についての長い詩を書き、夕方みんなの前で読んだ。",
        "父は村の外の大きな工場で働き、毎晩疲れて帰ってくる。",
        "一週間ずっと雨が降り、井戸は満ち、農夫たちは喜んだ。",
    ],
    "he": [
        "הילד הלך בבוקר אל השוק כדי לקנות לחם וחלב לאמו הזקנה",
        "העיר העתיקה שוכנת על גדות הנהר וסביבה מטעים רבים של תמרים וזיתים",
        "המשורר כתב שיר ארוך על הים וקרא אותו בערב לפני כל האנשים",
        "אבי עובד במפעל גדול מחוץ לכפר וחוזר הביתה עייף מאוד בכל לילה",
        "הגשם ירד כל השבוע והבארות התמלאו והאיכרים שמחו מאוד על העונה החדשה",
    ],
    "emoji": [
        "👨‍👩‍👧‍👦 our family of four walks along the river bank on every fine evening",
        "👨‍👩‍👧‍👦 the neighbours came over for dinner and brought their two small children",
        "👨‍👩‍👧‍👦 this ticket admits two adults and two children to all parts of the museum",
        "👨‍👩‍👧‍👦 they moved to the coast last year because the house there was so cheap",
        "👨‍👩‍👧‍👦 a photograph of them hangs in the hall between the clock and the mirror",
    ],
}


def test_paragraphs_of_all_scripts_stay_and_their_bytes_with_them(clean: Callable[..., Any]) -> None:
    texts = [text for paragraphs in PARAGRAPHS.values() for text in paragraphs]
    kept, dropped, _ = clean(texts, "--dedup", "minhash")
    assert [row["rule"] for row in dropped if row["rule"] == "length.min_words"] == []
    assert [row["text"] for row in kept] == texts


def chain() -> list[str]:
    """Ten documents of 100 words, each with 8 further words of the one before replaced."""
    words = [f"w{i}" for i in range(100)]
    texts = [" ".join(words)]
    for step in range(9):
        words[step * 8 : step * 8 + 8] = [f"n{step}x{i}" for i in range(8)]
        texts.append(" ".join(words))
    return texts


@pytest.mark.parametrize("rule", ["pair", "component"])
def test_a_chain_of_near_duplicates(clean: Callable[..., Any], tmp_path: Path, rule: str) -> None:
    """By pair a document goes for one that it resembles; by component the far end goes too, and the ledger says so."""
    kept, dropped, _ = clean(
        chain(), "--profile", "none", "--dedup", "minhash", "--set", f"dedup.minhash.cluster_rule={rule}"
    )
    report = json.loads((tmp_path / "out" / "dedup.json").read_bytes())
    if rule == "component":
        assert [row["row"] for row in kept] == [1]
        assert report["largest_clusters"][0] == {
            "documents": 10,
            "kept": {"id": None, "file": "raw/raw.jsonl", "row": 1},
        }
        assert min(row["value"] for row in dropped) < 0.3, "the distant document has its true similarity beside it"
    else:
        assert len(kept) > 1
        assert all(row["value"] >= row["threshold"] for row in dropped)
    assert len(kept) + len(dropped) == 10
    assert all(row["kept_row"] in [keeper["row"] for keeper in kept] for row in dropped)


def test_ids_that_collide_are_not_what_documents_are_known_by(clean: Callable[..., Any]) -> None:
    same, other = "one document of some eight words or so", "quite another document that shares nothing with it"
    rows = [
        {"id": "7", "text": same},
        {"id": "7", "text": other},
        {"text": "a third one, without an id of its own"},
        {"id": 7, "text": same},
    ]
    kept, dropped, _ = clean(rows, "--profile", "none", "--dedup", "minhash")
    assert [(row["row"], row["id"]) for row in kept] == [(1, "7"), (2, "7"), (3, None)]
    assert [(row["row"], row["id"], row["kept_row"], row["kept_id"]) for row in dropped] == [(4, "7", 1, "7")]
