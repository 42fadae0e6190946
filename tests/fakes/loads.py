"""The load of a server of one front end, in a page of its own."""

import tempfile
from pathlib import Path
from typing import Any

from chairlift.config.keys import read_keys
from chairlift.config.settings import Settings
from chairlift.live.shared_memory.counts import Count, make_counts
from chairlift.live.shared_memory.rate_limits import RateLimits, make_rate_limits
from chairlift.models.adapters.limits import AdapterLimits, read_adapter_limits
from chairlift.server.admission.bounds import Load


def make_load(**settings: Any) -> Load:
    with tempfile.TemporaryDirectory() as folder:  # the page lives as long as somebody has it open
        make_rate_limits(Path(folder) / "rates")
        load = Load(Settings(**settings), make_counts(Path(folder) / "counts", 1), RateLimits(Path(folder) / "rates"))
        load.counts.put(Count.HAS_BEGUN, 1)
        load.keys = read_keys(load.settings.api_key, load.settings.api_key_file)
        load.adapters = AdapterLimits(read_adapter_limits(load.settings.lora_limits))
        return load
