#!/bin/sh
# Build the wheel of every package, install each alone into a fresh environment and import all its modules there:
# a dependency that a package forgot to declare fails here.
set -eu
PYTHON=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The same torch as in development, so that a fresh environment does not fetch another build of it.
grep '^torch==' requirements-dev.txt > "$work/constraints.txt"

for package in core corpus tokenizer shards trainer; do
    "$PYTHON" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$work/dist" "packages/$package"
done
for package in core corpus tokenizer shards trainer; do
    "$PYTHON" -m venv "$work/$package"
    "$work/$package/bin/python" -m pip install --quiet --disable-pip-version-check \
        --constraint "$work/constraints.txt" --find-links "$work/dist" "$work/dist/tokenmill_$package"-*.whl
    (cd "$work" && "$work/$package/bin/python" - "tokenmill_$package") <<'PYTHON'
import importlib, pkgutil, sys

name = sys.argv[1]
package = importlib.import_module(name)
modules = [module.name for module in pkgutil.walk_packages(package.__path__, name + ".")]
of_extras = {  # imported by nobody without them
    "tokenmill_core.executor.share",  # subclasses of datatrove's executors
    "tokenmill_shards.mixing.plot",  # matplotlib
    "tokenmill_trainer.evaluation.harness",  # a subclass of lm-eval's model
    *(f"tokenmill_trainer.watching.trackers.{kind}" for kind in ("mlflow", "tensorboard", "trackio", "wandb")),
    "tokenmill_tokenizer.report.page",  # plots by matplotlib
    "tokenmill_tokenizer.report.plots",
}
for module in modules:
    if not module.endswith("__main__") and module not in of_extras:
        importlib.import_module(module)
print(f"{name}: {len(modules)} modules import alone")
PYTHON
    rm -rf "$work/$package"
done
