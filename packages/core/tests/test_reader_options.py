"""The options of the command line that say how raw files are read."""

import click
import pytest
from click.testing import CliRunner

from tokenmill_core.cli.options import nest, reader_options
from tokenmill_core.config import validate_config
from tokenmill_core.manifest import Frozen
from tokenmill_core.readers import Format, ReadOptions, TextUnit


class Config(Frozen):
    reader: ReadOptions = ReadOptions()


@click.command()
@reader_options
@click.pass_context
def command(context, **options):
    context.obj.append(validate_config(Config, nest({}, options), "settings").reader)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], ReadOptions()),
        (["--carry", "url", "--carry", "date"], ReadOptions(carry=("url", "date"))),
        (["--format", "tsv", "--text-field", "body"], ReadOptions(format=Format.TSV, text_field="body")),
        (["--text-unit", "line"], ReadOptions(text_unit=TextUnit.LINE)),
        (
            ["--text-unit", "separator", "--separator", "\n\n\n"],
            ReadOptions(text_unit=TextUnit.SEPARATOR, separator="\n\n\n"),
        ),
    ],
)
def test_options_become_settings(arguments, expected):
    seen: list[ReadOptions] = []
    result = CliRunner().invoke(command, arguments, obj=seen, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert seen == [expected]
