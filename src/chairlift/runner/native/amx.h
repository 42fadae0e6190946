/* AMX tiles: the attribute of functions that use them, and how their shapes are set. */
#ifndef CHAIRLIFT_AMX_H
#define CHAIRLIFT_AMX_H

#include "kernels.h"

#include <stdint.h>
#include <string.h>

#define AMX __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,amx-tile,amx-bf16")))
#define AMX_INLINE AMX static inline __attribute__((always_inline))

/* Some compilers do not know that a tile instruction reads memory, and may drop or delay the stores before it. */
#define STORED(pointer) __asm__ volatile("" ::"r"(pointer) : "memory")

typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t column_bytes[16];
    uint8_t rows[16];
} tile_config;

/* rows and bytes per row of the 8 tiles; a tile without rows is not used. */
AMX static void configure_tiles(const int *rows, const int *bytes) {
    tile_config c;
    memset(&c, 0, sizeof c);
    c.palette = 1;
    for (int t = 0; t < 8; t++) {
        c.rows[t] = (uint8_t)rows[t];
        c.column_bytes[t] = (uint16_t)(rows[t] ? bytes[t] : 0);
    }
    STORED(&c);
    _tile_loadconfig(&c);
}

#endif
