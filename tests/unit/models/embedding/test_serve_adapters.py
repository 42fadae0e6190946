from pathlib import Path

import pytest

from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.models.embedding.find import for_embedding


def test_adapters_of_a_model_that_makes_vectors_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="leave --lora, --lora-dir and enable_lora out"):
        for_embedding(Settings(lora_dir=tmp_path))
