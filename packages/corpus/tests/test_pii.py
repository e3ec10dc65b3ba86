"""What counts as personal data or a secret, what does not, and what happens to it."""

import re
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill_corpus.documents import Documents
from tokenmill_corpus.filters.family import Outcome
from tokenmill_corpus.filters.pii import Pii, Placeholders
from tokenmill_corpus.filters.pii.numbers import passes_luhn

KINDS = ("secret", "email", "ip", "card", "phone")
TAIL = "a1B2" * 9
"""Of tokens, written apart from their beginnings: nothing in this file looks like a key that works."""


def apply(*texts: str, **options: object) -> Outcome:
    batch = pa.RecordBatch.from_arrays([pa.array(texts, pa.large_string())], names=["text"])
    return Pii(**options).apply(Documents(batch))


def scrub(*texts: str, **options: object) -> list[str]:
    edit = apply(*texts, **options).edit
    if edit is None:
        return list(texts)
    data, bounds = edit.text.data.tobytes(), edit.text.offsets.tolist()
    return [data[a:b].decode() for a, b in pairwise(bounds)]


EMAILS = [
    ("mail jane.doe+tag@mail.example.co.uk.", "mail <EMAIL>."),
    ("(a@b.io), <c@d.museum>", "(<EMAIL>), <<EMAIL>>"),
    ("José: josé.garcía@correo.example", "José: <EMAIL>"),
    ("邮箱foo@bar.com。", "邮箱<EMAIL>。"),
    ("info@münchen.de", "<EMAIL>"),
    ("mailto:x_y%z@host-1.example.org?subject=1", "mailto:<EMAIL>?subject=1"),
    ("a@xn--bcher-kva.example", "<EMAIL>"),
]
IPS = [
    ("dns 8.8.4.4, not http://93.184.216.34:80/x", "dns <IP>, not http://<IP>:80/x"),
    ("from 93.184.216.34.", "from <IP>."),
    ("93.184.216.34/24", "<IP>/24"),
    ("server 4.1.7.1", "server <IP>"),
    ("[2606:4700:4700::1111]:443", "[<IP>]:443"),
    ("2a00:1450:4001:81b:0:0:0:200e", "<IP>"),
]
PHONES = [
    ("+49 30 901820", "<PHONE>"),
    ("+1 (415) 555-0132 x2", "<PHONE> x2"),
    ("ring +442079460958.", "ring <PHONE>."),
    ("+33\u00a01\u00a023\u00a045\u00a067\u00a089", "<PHONE>"),
    ("call (415) 555-0132 or 415-555-0133", "call <PHONE> or <PHONE>"),
    ("1-415-555-0132", "<PHONE>"),
    ("415.555.0132", "<PHONE>"),
    ("01 23 45 67 89", "<PHONE>"),
    ("020 7946 0958", "<PHONE>"),
    ("03-1234-5678", "<PHONE>"),
    ("(030) 9018200", "<PHONE>"),
    ("Tel.: 5551234567", "Tel.: <PHONE>"),
    ("phone number: 555 0132 77", "phone number: <PHONE>"),
    ("电话：010 8888 7777", "电话：<PHONE>"),
]
CARDS = [
    ("4111 1111 1111 1111", "<CARD>"),
    ("card 4111111111111111.", "card <CARD>."),
    ("5555-5555-5555-4444", "<CARD>"),
    ("2223003122003222", "<CARD>"),
    ("3782 822463 10005", "<CARD>"),
    ("6011111111111117", "<CARD>"),
    ("30569309025904", "<CARD>"),
    ("3530111333300000", "<CARD>"),
]
SECRETS = [
    ('key = "AK' + 'IA2E3F4G5H6J7K2L3M"', 'key = "<SECRET>"'),
    ("gh" + "p_" + TAIL, "<SECRET>"),
    ("token=gh" + "s_" + TAIL + "&x=1", "token=<SECRET>&x=1"),
    ("xox" + "b-1234567890-abcdefghij", "<SECRET>"),
    ("AI" + "zaSy0123456789abcdefghijklmnopqrstuvw", "<SECRET>"),
    ("sk" + "_live_" + TAIL, "<SECRET>"),
    ("h" + "f_abcdefghijKLMNOPqrstuvwxyzABCDEFGH", "<SECRET>"),
    ("ey" + "JhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N", "<SECRET>"),
    ('password = "9fK2xQ7rLp3mZw8T"', 'password = "<SECRET>"'),
    ('{"api_key": "c2VjcmV0LWtleS0xMjM0NTY3ODkw"}', '{"api_key": "<SECRET>"}'),
    (
        "-----BEGIN RSA PRIVATE"
        + " KEY-----\nMIIEpAIBAAKCAQEA75+/\nabcdefghijklmnop=\n-----END RSA PRIVATE KEY-----\nx",
        "<SECRET>\nx",
    ),
    ("-----BEGIN PRIVATE" + " KEY-----\nMIIEpAIBAAKCAQEA75abcdefghijklmnopqrst\n[cut off]", "<SECRET>[cut off]"),
]


@pytest.mark.parametrize(("text", "expected"), [*EMAILS, *IPS, *PHONES, *CARDS, *SECRETS])
def test_what_is_found_is_replaced_and_nothing_about_it(text: str, expected: str) -> None:
    assert scrub("é before", text, "after 日本") == ["é before", expected, "after 日本"]


NOT_EMAILS = ["user@host @override", "react@18.2.0", "icon@2x.png", "git@github.com:org/repo.git", "foo@", "A@B.T"]
NOT_IPS = [
    "1.2.3.4",
    "v93.184.216.34",
    "version 93.184.216.34",
    "Chrome/71.0.3578.98",
    "nginx/12.20.31.44",
    "1.3.6.1.4.1.311",
    "93.184.216.34.5",
    "256.1.1.1",
    "01.02.03.04",
    "93.184.216.34-beta",
    "10.0.0.1 192.168.1.1 127.0.0.1 172.16.0.9 169.254.1.1 100.64.0.1 192.0.2.33",
    "12:30:45",
    "std::vector a::b dead::beef ::1 2019::",
    "00:1a:2b:3c:4d:5e",
    "fe80::1 2001:db8::1",
]
NOT_PHONES = [
    "2019-01-02 01-02-2019 2019/01/02 12:30:45 20190101120000",
    "1,234,567 1234567 1.234.567,89 $1,234.56",
    "978-0-306-40615-7",
    "ISBN 0-306-40615-7, ISSN 0317-8471",
    "3.14159265358979 +35236450.6",
    "1939-1945",
    "x = 5 + 12345678",
    "100 200 300 400",
    "01 02 03 04 05",
    "0000010 01 23 45 67 89 ab",
    "123-45-6789",
    "phone 2019-01-02",
    "doi:10.1093/ajae/aaq063",
    "550e8400-e29b-41d4-a716-446655440000",
]
NOT_CARDS = [
    "4111 1111 1111 1112",
    "1234567812345670",
    "0.4111111111111111",
    "deadbeef4111111111111111",
    "4111-1111-11111111",
    "411111111111111111111111",
]
NOT_SECRETS = [
    "d41d8cd98f00b204e9800998ecf8427e",
    "a-very-long-identifier-name-with-2-words",
    "password = os.environ['SECRET_KEY_2_OF_PROJECT']",
    'token = "aaaaaaaaaaaaaaaaaaa1"',
    'password: "your-password-here-please"',
    "-----BEGIN PUBLIC KEY-----\nMIIEpAIBAAKCAQEA75abcdefghijklmnopqrst\n-----END PUBLIC KEY-----",
    'START = "-----BEGIN RSA PRIVATE' + ' KEY-----"',
    "sk-learn is a library, and pypi an index",
]


@pytest.mark.parametrize("text", [*NOT_EMAILS, *NOT_IPS, *NOT_PHONES, *NOT_CARDS, *NOT_SECRETS])
def test_what_looks_alike_stays(text: str) -> None:
    assert scrub(text) == [text]


def test_addresses_for_private_use_go_where_all_are_asked_for() -> None:
    text = "10.0.0.1 and fe80::1, fd00::2:1, 2001:db8::1"
    assert scrub(text, ip_scope="all") == ["<IP> and <IP>, <IP>, <IP>"]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_can_be_kept_or_drop_the_document(kind: str) -> None:
    text = "a@b.io 93.184.216.34 4111111111111111 +49 30 901820 gh" + f"p_{TAIL}"
    others = {other: "keep" for other in KINDS if other != kind}
    assert scrub(text, **{kind: "keep"})[0].count("<") == 4
    outcome = apply("clean", text, text + " " + text, **others, **{kind: "drop"})
    assert outcome.edit is None
    [rule] = outcome.rules
    assert (rule.setting, rule.values.tolist(), rule.breaks.tolist()) == (kind, [0, 1, 2], [False, True, True])


def test_bytes_and_numbers_are_accounted_for_by_kind() -> None:
    texts = ["a@b.io, c@d.io", "", "日本 a@b.io +49 30 901820"]
    edit = apply(*texts).edit
    assert edit is not None
    assert {kind: count.tolist() for kind, count in edit.count.items()} == {"email": [2, 0, 1], "phone": [0, 0, 1]}
    removed = sum(edit.removed.values())
    assert (edit.text.num_bytes + removed).tolist() == [len(text.encode()) for text in texts]
    assert edit.removed["email"].tolist() == [-2, 0, -1], "<EMAIL> is a byte longer than a@b.io"


def test_placeholders_are_configurable() -> None:
    assert scrub("to a@b.io", placeholders=Placeholders(email="")) == ["to "]
    assert scrub("to a@b.io", placeholders={"email": "‹mail›"}) == ["to ‹mail›"]


def test_what_two_kinds_claim_goes_to_the_first() -> None:
    assert scrub('password = "a1B2c3D4e5F6g7H8/x@y.zz"', email="keep", secret="keep")[0].endswith('zz"')
    text = "https://user:gh" + f"p_{TAIL}@example.com/"
    assert scrub(text) == ["https://user:<SECRET>@example.com/"]


def test_documents_do_not_run_into_each_other() -> None:
    assert scrub("a@", "b.io", "415-555", "-0132", "93.184", ".216.34") == [
        "a@",
        "b.io",
        "415-555",
        "-0132",
        "93.184",
        ".216.34",
    ]
    assert scrub("v", "93.184.216.34", "5") == ["v", "<IP>", "5"]


PIECES = st.sampled_from(
    [
        "a@b.io",
        "é@x.de",
        "+49 30 90",
        "1820",
        "93.184.216.34",
        "4111111111111111",
        "::1",
        "日本",
        "\n",
        " ",
        "-",
        ".",
        "'",
    ]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(PIECES, max_size=8).map("".join), max_size=4))
def test_texts_stay_valid_and_the_bytes_add_up(texts: list[str]) -> None:
    edit = apply(*texts).edit
    if edit is not None:
        assert (edit.text.num_bytes + sum(edit.removed.values())).tolist() == [len(text.encode()) for text in texts]
    for before, after in zip(texts, scrub(*texts), strict=True):
        assert after == before or re.search("<(EMAIL|IP|CARD|PHONE|SECRET)>", after)
        assert scrub(before) == [after], "a document's company does not matter"


def test_slices_of_batches() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(["x", "a@b.io", "y"], pa.large_string())], names=["text"])
    edit = Pii().apply(Documents(batch.slice(1, 2))).edit
    assert edit is not None
    assert edit.text.data.tobytes() == b"<EMAIL>y"


@pytest.mark.parametrize(("digits", "right"), [(b"79927398713", True), (b"79927398710", False), (b"0", True)])
def test_luhn(digits: bytes, right: bool) -> None:
    assert passes_luhn(digits) is right
