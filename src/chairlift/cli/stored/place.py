"""The options of `pull`, `list` and `rm`: which version of a model, and where it is kept."""

from chairlift.config.options.resolve import OPTIONS

NOT_PLACES = frozenset(option.name for option in OPTIONS) - {"revision", "download_dir"}
