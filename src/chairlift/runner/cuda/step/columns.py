"""The columns of a step: an entry for each token, and two columns with one for each sample; plain numpy."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.int32]

NUM_COLUMNS = 8
TILE_WIDTH = 4  # words of a tile of queries
FILLERS = (0, -1, -1, -1, 0, 0, -1, -1)  # of padding


class Columns(NamedTuple):
    tokens: Words  # what to compute; 0: not known yet
    refs: Words  # the row of the device with its last sampled token; -1: it is known
    positions: Words
    slots: Words  # where keys and values go
    table_rows: Words  # the row of the block tables
    logit_rows: Words  # of each sample: the row of the step with its logits
    sample_rows: Words  # of each sample: the row of the device that keeps its token
    short: Words  # positions again, -1 for tiles of queries
