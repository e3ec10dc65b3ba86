"""Any manifest: the union of all kinds, told apart by `kind`."""

from typing import Annotated

from pydantic import Field, TypeAdapter

from tokenmill_core.manifest import (
    CheckpointManifest,
    DocumentsManifest,
    ModelManifest,
    RunManifest,
    TokenizerManifest,
    TokensManifest,
)
from tokenmill_core.mixture_manifest import MixtureManifest, PackedManifest

Manifest = (
    DocumentsManifest
    | TokenizerManifest
    | TokensManifest
    | MixtureManifest
    | PackedManifest
    | RunManifest
    | CheckpointManifest
    | ModelManifest
)
MANIFEST_ADAPTER: TypeAdapter[Manifest] = TypeAdapter(Annotated[Manifest, Field(discriminator="kind")])
