"""`prep mix` as a command: what it takes, what it prints, and what it refuses."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokenmill_core.manifest import TokensManifest
from tokenmill_core.manifest_io import LoadedManifest

Prep = Callable[..., Any]


@pytest.fixture
def sources(make_tokens: Callable[..., LoadedManifest[TokensManifest]]) -> dict[str, str]:
    """`web` of 6,000 tokens and `code` of 2,000."""
    return {"web": make_tokens("web", [[60] * 100]).folder, "code": make_tokens("code", [[20] * 100]).folder}


@pytest.fixture
def mix(prep: Prep, sources: dict[str, str], tmp_path: Path) -> Prep:
    """mix("--tokens", "10k", …, web=":0.5"): the command for both sources, with what stands behind their folders."""

    def run(*options: object, web: str = "", code: str = "") -> Any:
        named = (f"web={sources['web']}{web}", f"code={sources['code']}{code}")
        return prep("mix", *named, "--out", tmp_path / "m.json", "--sequence-length", 16, *options)

    return run


def stages(outcome: Any) -> list[dict[str, float]]:
    """Shares by source of each stage, from `--json`."""
    found = json.loads(outcome.out)["figures"]["stages"]
    return [{source["name"]: round(source["share"], 9) for source in stage["sources"]} for stage in found]


def test_it_prints_shares_samples_and_epochs_for_a_budget(mix: Prep) -> None:
    outcome = mix("--tokens", "16k", web=":6", code=":24")
    assert outcome.code == 0
    assert "stage-1: 1,000 samples, 16,000 tokens from token 0 on" in outcome.out
    code, web = [line for line in outcome.out.splitlines() if "│" in line]
    assert [cell.strip() for cell in code.split("│")[1:-1]] == [
        "code", "0", "2,000", "80.00%", "800", "12,800", "6.45", "11,108",
    ]  # fmt: skip
    assert "20.00%" in web
    assert "warning: source 'code': 6.45 epochs; past 4" in outcome.out


def test_the_same_as_json(mix: Prep) -> None:
    found = json.loads(mix("--tokens", "16k", "--json", web=":6", code=":24").out)
    assert found["kind"] == "mixture"
    assert found["up_to_date"] is False
    (stage,) = found["figures"]["stages"]
    assert [source["samples"] for source in stage["sources"]] == [800, 200]
    assert found["figures"]["total"]["tokens"] == 16_000
    assert found["figures"]["warnings"]
    assert json.loads(mix("--tokens", "32k", "--json", web=":6", code=":24").out)["up_to_date"] is True


def test_options_reach_the_solver(mix: Prep) -> None:
    assert stages(mix("--json")) == [{"code": 0.25, "web": 0.75}]
    assert stages(mix("--json", "--method", "uniform")) == [{"code": 0.5, "web": 0.5}]
    assert stages(mix("--json", "--temperature", 2)) == [{"code": 0.366025404, "web": 0.633974596}]
    assert stages(mix("--json", "--epochs", 1)) == [{"code": 0.25, "web": 0.75}]
    assert stages(mix("--json", "--epochs", "code=3", "--epochs", "web=1")) == [{"code": 0.5, "web": 0.5}]
    assert stages(mix("--json", "--max-share", "web=0.6")) == [{"code": 0.4, "web": 0.6}]
    unimax = mix("--json", "--method", "unimax", "--max-epochs", 2, "--tokens", "10k")
    assert stages(unimax) == [{"code": 0.4, "web": 0.6}]
    own = mix("--json", "--max-epochs", 2, "--max-epochs", "code=1", "--method", "uniform", "--tokens", "10k")
    assert stages(own) == [{"code": 0.2, "web": 0.8}]


def test_stages_are_printed_one_by_one_and_in_total(mix: Prep) -> None:
    options = ("--stage", "8k:web=0.4,code=0.6", "--stage", "12k:code=1", "--tokens", "16k")
    outcome = mix(*options, web=":0.8", code=":0.2")
    assert outcome.code == 0
    for line in (
        "stage-1: 500 samples, 8,000 tokens from token 0 on",
        "stage-2: 250 samples, 4,000 tokens from token 8,000 on",
        "stage-3: 250 samples, 4,000 tokens from token 12,000 on",
        "total: 1,000 samples, 16,000 tokens from token 0 on",
    ):
        assert line in outcome.out
    found = stages(mix(*options, "--json", web=":0.8", code=":0.2"))
    assert found == [{"code": 0.2, "web": 0.8}, {"code": 0.6, "web": 0.4}, {"code": 1, "web": 0}]


def test_a_file_of_settings_and_options_over_it(mix: Prep, tmp_path: Path) -> None:
    (tmp_path / "mix.toml").write_text(
        """
        tokens = "16k"
        max_epochs = { code = 4, web = 9 }
        [weights]
        web = 3
        code = 1
        [[stages]]
        from_tokens = "8k"
        name = "decay"
        temperature = 2.0
        [[stages]]
        from_tokens = 12_000
        epochs = { code = 0.5 }
        """
    )
    config = ("--config", tmp_path / "mix.toml")
    found = json.loads(mix(*config, "--json").out)
    assert [(stage["name"], stage["first_token"]) for stage in found["stages"]] == [
        ("stage-1", 0),
        ("decay", 8000),
        ("stage-3", 12_000),
    ]
    # Half an epoch of code is 1,000 of the last stage's 4,000 tokens.
    assert stages(mix(*config, "--json"))[2] == {"code": 0.25, "web": 0.75}
    replaced = stages(mix(*config, "--json", "--stage", "8k:web=1,code=1", "--max-epochs", "code=1.5"))
    # Of its 3,000 tokens code has given 2,000 before.
    assert replaced == [{"code": 0.25, "web": 0.75}, {"code": 0.125, "web": 0.875}]


def test_going_on_with_a_mixture(mix: Prep, prep: Prep, sources: dict[str, str], tmp_path: Path) -> None:
    mix(web=":0.8", code=":0.2")
    arguments = (f"code={sources['code']}", "--continue", tmp_path / "m.json", "--from", "8k", "--json")
    found = json.loads(prep("mix", *arguments, "--out", tmp_path / "n.json", "--sequence-length", 16).out)
    assert [stage["first_token"] for stage in found["stages"]] == [0, 8000]
    assert [source["name"] for source in found["sources"]] == ["code", "web"]
    assert found["continues"][0]["until_token"] == 8000


def test_a_mixture_is_not_written_over_its_own_past(
    mix: Prep, prep: Prep, sources: dict[str, str], tmp_path: Path
) -> None:
    mix()
    before = (tmp_path / "m.json").read_bytes()
    going_on = ("mix", f"code={sources['code']}", "--continue", tmp_path / "m.json", "--from", "8k", "--force")
    (tmp_path / "link").symlink_to(tmp_path)
    for out in (tmp_path / "m.json", tmp_path / "link" / "m.json"):
        refused = prep(*going_on, "--out", out)
        assert (refused.code, "this is the mixture that is gone on with" in refused.err) == (1, True), refused.err
    assert (tmp_path / "m.json").read_bytes() == before


def test_hashes_of_texts_and_of_ids_are_warned_of(
    prep: Prep, tokenize: Callable[..., LoadedManifest[TokensManifest]], tokenizer: Path, tmp_path: Path
) -> None:
    texts = tokenize("texts", [f"the lazy dog {number}" for number in range(40)]).folder
    ids = [id for number in range(1, 41) for id in (number, 5, 6, 7, 0)]
    np.array(ids, "<u2").tofile(tmp_path / "ids.npy")
    arguments = (tmp_path / "ids.npy", "--format", "olmo", "--dtype", "uint16", "--tokenizer", tokenizer)
    imported = tmp_path / "imported"
    assert prep("import-tokens", *arguments, "--out", imported).code == 0
    assert prep("merge", imported, "--out", tmp_path / "merged").code == 0

    def said(*folders: object, share: float = 0.3) -> bool:
        named = [f"{name}={folder}" for name, folder in zip("ab", folders, strict=False)]
        outcome = prep(
            "mix", *named, "--validation-share", share, "--sequence-length", 16, "--out", tmp_path / "m.json"
        )
        assert outcome.code == 0, outcome.err
        return "trained on and held out at once" in " ".join(outcome.out.split())

    assert said(texts, imported)
    assert said(texts, tmp_path / "merged")
    assert not said(texts, imported, share=0)
    assert not said(texts)
    assert not said(imported)


def test_a_budget_that_epochs_blow_up_is_refused_before_anything_is_written(mix: Prep, tmp_path: Path) -> None:
    (tmp_path / "mix.toml").write_text("[[stages]]\nfrom_tokens = '999999T'\nepochs = 1e9")
    for options, end in (
        (("--config", tmp_path / "mix.toml"), "1,000,007"),
        (("--stage", "1000000T:web=1"), "1,000,000"),
    ):
        refused = mix(*options)
        assert refused.code == 2
        assert f"training would end after {end},000,000,00" in refused.err
        assert "above 10^18: give fewer epochs, or --tokens" in refused.err
    assert not (tmp_path / "m.json").exists()


def test_a_picture_of_the_shares(mix: Prep, tmp_path: Path) -> None:
    assert mix("--plot", tmp_path / "shares.png").code == 0
    assert (tmp_path / "shares.png").read_bytes().startswith(b"\x89PNG")
    refused = mix("--plot", tmp_path)
    assert refused.code == 2
    assert "a picture is written to a local file; name one, such as shares.png" in refused.err


def test_a_picture_without_matplotlib_names_what_to_install(
    mix: Prep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "tokenmill_shards.mixing.plot", raising=False)
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    outcome = mix("--plot", tmp_path / "shares.png")
    assert outcome.code == 1
    assert "pip install 'tokenmill-shards[plot]'" in outcome.err
    assert not (tmp_path / "m.json").exists(), "refused before the mixture is written"


def test_figures_for_a_shorter_sequence_where_a_source_is_short(
    prep: Prep, sources: dict[str, str], tmp_path: Path
) -> None:
    outcome = prep("mix", f"code={sources['code']}", "--out", tmp_path / "m.json", "--sequence-length", 4096)
    assert outcome.code == 0
    warning = (
        "warning: source 'code' has 2,000 tokens to train on, a sample of 1,999 at most: training at 4096 with this "
        "mixture is not possible; figures are for samples of 1999"
    )
    assert 0 < outcome.out.find(warning) < outcome.out.find("stage-1: 2 samples"), "before the table"


def test_held_out_documents_have_a_column_where_there_is_a_share(mix: Prep, tmp_path: Path) -> None:
    assert "held out" not in mix().out
    outcome = mix("--validation-share", 0.2)
    code, web = [[cell.strip() for cell in line.split("│")[1:-1]] for line in outcome.out.splitlines() if "│" in line]
    sources = json.loads((tmp_path / "m.json").read_text())["sources"]
    for row, source in zip((code, web), sources, strict=True):
        held_out = source["held_out_documents"]
        assert 0 < held_out < 100
        assert row[2:4] == [str(held_out), f"{source['tokens'] - sum(source['held_out_tokens']):,}"]


def test_show_has_sizes_shares_and_what_it_goes_on_with(
    mix: Prep, prep: Prep, sources: dict[str, str], tmp_path: Path
) -> None:
    first = json.loads(mix("--validation-share", 0.2, "--json", web=":0.75", code=":0.25").out)
    named = [f"{name}={folder}" for name, folder in sources.items()]
    options = ("--continue", tmp_path / "m.json", "--from", "8k", "--stage", "12k:web=0.4,code=0.6")
    assert prep("mix", *named, *options, "--method", "uniform", "--out", tmp_path / "n.json").code == 0
    out = prep("show", tmp_path / "n.json").out
    for line in ("  stages.0.from_tokens = 12000", '  stages.0.weights.web = "0.4"', "stage-1, from token 0 "):
        assert line in out
    assert "stages.0.name" not in out, "not set"
    assert f"goes on with mixture {first['digest'][:12]}, the same up to token 8,000" in out
    code, web = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if "│" in line]
    held_out = first["sources"][0]
    tokens = held_out["tokens"] - sum(held_out["held_out_tokens"])
    assert code == ["code", "0", str(held_out["held_out_documents"]), f"{tokens:,}", "25.00%", "50.00%", "60.00%"]
    assert web[4:] == ["75.00%", "50.00%", "40.00%"]


def test_a_budget_in_a_file_is_named_once(mix: Prep, tmp_path: Path) -> None:
    (tmp_path / "mix.toml").write_text('tokens = "80X"')
    message = f"{tmp_path / 'mix.toml'}: tokens: expected a number such as 300M, 10B or 1.5T; units are K, M"
    outcome = mix("--config", tmp_path / "mix.toml")
    assert message in outcome.err
    assert outcome.err.count("80X") == 1


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--temperature", 0), 2, "temperature"),
        (("--tokens", "lots"), 2, "--tokens 'lots'"),
        (("--tokens", ""), 2, "--tokens ''"),
        (("--tokens", "1e400"), 2, "--tokens '1e400'"),
        (("--validation-share", 1), 2, "validation_share"),
        (("--seed", -1), 2, "seed"),
        (("--unit", "pages"), 2, "'pages' is not one of 'tokens', 'documents', 'bytes'"),
        (("--epochs", "web"), 2, "--epochs 'web': expected NAME=NUMBER, or a number for all sources"),
        (("--epochs", "wob=1"), 2, "no source is called 'wob': the sources are code, web"),
        (("--max-share", "web=1.5"), 2, "max_share.web"),
        (("--max-epochs", 4), 2, "epochs bound the shares, so these depend on how long training is: give --tokens"),
        (("--method", "unimax", "--tokens", "9k"), 2, "method unimax needs a bound for every source"),
        (
            ("--max-epochs", 1, "--tokens", "9k"),
            2,
            "allow 8,000 tokens, but there are 9,000: --tokens 8000, or --max-ep",
        ),
        (("--epochs", 1, "--tokens", "9k"), 2, "--tokens 9000: the epochs of all sources are fixed, and training ends"),
        (("--stage", "8k"), 2, "--stage '8k': expected FROM:NAME=SHARE,..."),
        (("--stage", "8k:web"), 2, "--stage '8k:web': 'web' is not NAME=SHARE"),
        (("--stage", "8k:web=1,web=2"), 2, "its source is named twice"),
        (("--stage", "8k:web=x"), 2, "--stage 'web=x': expected NAME=NUMBER"),
        (("--stage", "8k:web=-1"), 2, "stages.0.weights.web"),
        (("--stage", "8k:web=0"), 2, "all weights are 0"),
        (("--stage", "soon:web=1"), 2, "--stage 'soon'"),
        (("--from", "8k"), 2, "needs both --continue MIXTURE and --from TOKENS"),
        (("--fim", 0.5, "--fim-tokens", "a,b"), 2, "--fim-tokens 'a,b': expected three special tokens"),
        (("--fim", 0.5), 1, "tokenizer.json"),
        (("--max-epochs", "1e99999999", "--tokens", "9k"), 2, "less than or equal to 1000000000"),
        (("--max-share", "web=1e-99999999"), 2, "1E-99999999 is too little: give 1e-12 at least, or 0"),
        (("--max-epochs", 0, "--tokens", "9k"), 2, "nothing may be drawn: 0 is max_epochs of 'code', max_epochs of"),
    ],
)
def test_what_it_refuses(mix: Prep, tmp_path: Path, options: tuple[object, ...], code: int, message: str) -> None:
    outcome = mix(*options)
    assert (outcome.code, message in outcome.err) == (code, True), outcome.err
    assert not (tmp_path / "m.json").exists()


def test_weights_of_any_size_are_taken(mix: Prep) -> None:
    assert mix("--temperature", "0.001", web=":1e9999999", code=":1e-9999999").code == 0
