import subprocess
import sys


def test_importing_the_package_or_asking_for_help_does_not_load_torch() -> None:
    code = (
        "import sys, tokenmill_trainer, tokenmill_trainer.cli.root; from click.testing import CliRunner;"
        "result = CliRunner().invoke(tokenmill_trainer.cli.root.pretrain, ['run', '--help']);"
        "assert result.exit_code == 0 and 'Examples' in result.output, result.output;"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
