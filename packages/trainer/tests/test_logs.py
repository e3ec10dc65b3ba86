import io
import json
from pathlib import Path

import pytest

from tokenmill_trainer.report import Progress, StepReport
from tokenmill_trainer.watching.console import RunConsole
from tokenmill_trainer.watching.metrics import StepMeter
from tokenmill_trainer.watching.plot import plot_loss, smoothed
from tokenmill_trainer.watching.step_log import StepLog, read_steps
from tokenmill_trainer.watching.timing import Phase


def test_a_log_forgets_the_steps_that_run_again_and_half_a_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"st')
    with StepLog(path, last_step=2) as log:
        log.write({"step": 3, "loss": 1.5})
        assert [json.loads(line) for line in path.read_text().splitlines()][-1] == {"step": 3, "loss": 1.5}
    assert [row["step"] for row in read_steps(path)] == [1, 2, 3]
    assert read_steps(path, 1) == [{"step": 1}]


def test_a_log_refuses_what_is_not_json(tmp_path: Path) -> None:
    with StepLog(tmp_path / "x", 0) as log, pytest.raises(ValueError, match="not JSON compliant"):
        log.write({"step": 1, "loss": float("nan")})


def test_a_rate_leaves_out_validation_and_checkpoints_and_mfu_follows_from_it() -> None:
    report = StepReport(Progress(2, 24, 1000), 8, 2.5, 1.0, 1e-3, 1000)
    time = dict.fromkeys(Phase, 0.25) | {Phase.VALIDATION: 10.0, Phase.CHECKPOINT: 5.0, Phase.FORWARD: 1.0}
    row = StepMeter(flops_per_token=6e9, peak_flops=1e13, world_size=2).metrics(report, time)
    assert row["tokens_per_second"] == 500
    assert row["samples_per_second"] == 8
    assert row["mfu"] == pytest.approx(500 * 6e9 / 2e13)
    assert row["time"] == {str(phase): seconds for phase, seconds in time.items()}
    assert StepMeter(6e9, None, 2).metrics(report, time)["mfu"] is None


def test_plain_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with RunConsole(total_steps=20, interval=10, quiet=False) as console:
        for step in range(1, 21):
            report = StepReport(Progress(step, 8 * step, 1000 * step), 8 * step - 8, 2.0, 1.0, 1e-3, 1000)
            data = 0.5 if step == 20 else 0.005
            time = dict.fromkeys(Phase, 0.0) | {Phase.FORWARD: 0.8 - data, Phase.DATA: data}
            console.step(StepMeter(1.0, None, 1).metrics(report, time))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("step 10/20  loss 2.0000  norm 1.000  lr 1.00e-03  1,250 tokens/s  10 samples/s")
    assert "data wait" not in lines[0]
    assert lines[1].endswith("10 samples/s  data wait 62%")
    with RunConsole(20, 1, quiet=True) as console:
        console.say("nothing")
    assert capsys.readouterr().err == ""


def test_the_plot_is_a_picture_of_both_curves(tmp_path: Path) -> None:
    from PIL import Image

    rows = [{"consumed_tokens": 1000 * i, "loss": 5.0 - i / 10, "val_loss": 5.0} for i in range(1, 20)]
    plot_loss(rows, tmp_path / "loss.png", "a title")
    image = Image.open(io.BytesIO((tmp_path / "loss.png").read_bytes())).convert("RGB")
    assert image.size == (1080, 660)
    assert len(image.getcolors(1 << 20) or []) > 50


def test_smoothing_starts_at_the_first_value_and_keeps_a_constant() -> None:
    assert smoothed([3.0, 3.0, 3.0], span=20) == pytest.approx([3.0, 3.0, 3.0])
    assert smoothed([4.0, 0.0, 2.0], span=0.1) == [4.0, 0.0, 2.0]
    assert smoothed([4.0, 0.0], span=2) == pytest.approx([4.0, 4.0 * 0.5 / 1.5])


def test_a_step_in_which_nothing_counts_has_no_loss(tmp_path, capsys):
    report = StepReport(Progress(1, 8, 0), first_sample=0, loss=0.0, grad_norm=0.0, lr=1e-3, tokens=0)
    metrics = StepMeter(1.0, None, 1).metrics(report, dict.fromkeys(Phase, 0.1))
    assert metrics["loss"] is None
    with RunConsole(1, 1, quiet=False) as console:
        console.step(metrics)
    assert "step 1/1  no token counts  norm 0.000" in capsys.readouterr().err
    plot_loss([metrics, metrics | {"loss": 2.0, "consumed_tokens": 5}], tmp_path / "loss.png", "a title")
    assert (tmp_path / "loss.png").stat().st_size > 1000
