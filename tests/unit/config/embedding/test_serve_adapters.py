from pathlib import Path

import pytest

from chairlift.config.embedding.serve import for_embedding
from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig


def test_adapters_of_a_model_that_makes_vectors_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="leave --lora, --lora-dir and enable_lora out"):
        for_embedding(Settings(lora_dir=tmp_path))
