"""Listing the pages of a step's requests one after another, from block tables that stay on the device."""

import triton
import triton.language as tl


@triton.jit
def list_pages_kernel(tables, table_rows, starts, pages, width, BLOCK: tl.constexpr):
    """One request a program: pages[starts[r] : starts[r + 1]] become the first entries of its row of the tables."""
    request = tl.program_id(0)
    start = tl.load(starts + request)
    count = tl.load(starts + request + 1) - start
    table = tables + tl.load(table_rows + request).to(tl.int64) * width
    for low in range(0, count, BLOCK):
        places = low + tl.arange(0, BLOCK)
        is_there = places < count
        tl.store(pages + start + places, tl.load(table + places, mask=is_there), mask=is_there)
