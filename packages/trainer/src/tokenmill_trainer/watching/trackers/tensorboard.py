"""TensorBoard: event files in RUN/tensorboard."""

from collections.abc import Mapping

from torch.utils.tensorboard import SummaryWriter

from tokenmill_trainer.watching.trackers.tracker import SampledText, TrackedRun, as_markdown, block, settings_text


class TensorBoard:
    """Steps that are run again replace what older files say of them."""

    id = "tensorboard"
    replaces_steps = True

    def __init__(self, run: TrackedRun) -> None:
        self.place = str(run.folder / "tensorboard")
        self._settings = block(settings_text(run.settings))
        self._writer: SummaryWriter | None = None
        self._last = 0

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """One scalar a number."""
        writer = self._writer_at(step)
        for name, value in values.items():
            writer.add_scalar(name, value, step)
        writer.flush()
        self._last = step

    def show(self, step: int, samples: list[SampledText]) -> None:
        """One text of all samples."""
        self._writer_at(step + 1).add_text("samples", as_markdown(samples), step)

    def finish(self, digest: str | None) -> None:
        """The digest as a text, and close the file."""
        writer = self._writer_at(self._last + 1)
        if digest is not None:
            writer.add_text("digest", digest, self._last)
        writer.close()

    def _writer_at(self, step: int) -> SummaryWriter:
        """The open file, or where steps from `step` on are told again a new one that says so to its readers."""
        if self._writer is not None and step > self._last:
            return self._writer
        if self._writer is not None:
            self._writer.close()
        self._writer = SummaryWriter(self.place, purge_step=step)
        self._writer.add_text("settings", self._settings, step - 1)
        self._last = step - 1
        return self._writer
