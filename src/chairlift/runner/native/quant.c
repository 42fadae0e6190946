/* Products of quantised matrices: the entry point, and kernels in plain C that the others must equal bit for bit. */
#include "quant.h"

static void tile_plain_c(const quant_tile *t, int rows, int kind, int bits) {
    (void)bits;
    for (int r = 0; r < rows; r++)
        for (int b = 0; b < t->count; b++) {
            const int8_t *x = t->x + (r * t->blocks + b) * BLOCK;
            float scale = t->xd[r * t->blocks + b], *sums = t->sums + r * PANEL;
            for (int c = 0; c < PANEL; c++) {
                int32_t dots[2] = {0, 0};
                for (int i = 0; i < BLOCK; i++)
                    dots[i / 16] += x[i] * t->q[b * BLOCK_ITEMS + i / 4 * 64 + c * 4 + i % 4];
                if (kind == HALVES) {
                    for (int h = 0; h < 2; h++)
                        sums[c] = __builtin_fmaf((float)dots[h], t->d[(2 * b + h) * PANEL + c] * scale, sums[c]);
                    continue;
                }
                sums[c] = __builtin_fmaf((float)(dots[0] + dots[1]), t->d[b * PANEL + c] * scale, sums[c]);
                if (kind == MINS) sums[c] = __builtin_fmaf(t->m[b * PANEL + c], t->xm[r * t->blocks + b], sums[c]);
            }
        }
}

static void halves_plain_c(const uint8_t *from, float *to) {
    uint16_t half[PANEL];
    memcpy(half, from, sizeof half);
    for (int r = 0; r < PANEL; r++) to[r] = from_half(half[r]);
}

#define SHARED(x) x
#define TARGET
#define NAME(x) x##_plain_c
#define TILE_ROWS 1
#define HAS_DIRECT 0
#define ONE_ROW(tile, type) 0
#include "quant.inc"

static quant_kernels kernels(void) {
    quant_kernels here = quant_kernels_here();
    return here.multiply ? here : (quant_kernels){quantise_chunk_plain_c, multiply_chunk_plain_c};
}

/* x [m, k] -> y [m, n], rows of y y_stride apart. */
EXPORT void chairlift_quant_product(int type, const void *x, const void *w, const float *bias, void *y, int64_t m,
                                    int64_t n, int64_t k, int64_t y_stride, int x_is_bf16, int y_is_bf16) {
    enum { CHUNK_ITEMS = 8192 }; /* of rows, that are worth another thread */
    int64_t blocks = quant_blocks(k), cells = m * blocks;
    size_t bytes = (size_t)cells * (BLOCK + 4 * sizeof(float));
    float *d = scratch(SCRATCH_ROWS, bytes);
    quant_rows rows = {(int8_t *)(d + 4 * cells), d, d + cells, (int32_t *)(d + 2 * cells), blocks};
    int num_panels = (int)((n + PANEL - 1) / PANEL);
    quant_job job = {type, x_is_bf16, y_is_bf16, x, bias, quant_matrix_at(type, w, k), y, m, n, k, y_stride, rows,
                     num_panels, 0, 0};
    job.rows_per_chunk = max_int((int)(CHUNK_ITEMS / k) + 1, ceil_div((int)m, pool_threads() * 2));
    job.panels_per_chunk = max_int(1, ceil_div(num_panels, pool_threads() * 8));
    quant_kernels use = kernels();
    pool_run(use.quantise, &job, ceil_div((int)m, job.rows_per_chunk));
    pool_run(use.multiply, &job, ceil_div(num_panels, job.panels_per_chunk));
}
