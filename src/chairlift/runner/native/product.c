/* float32 matrix products, and bf16 ones where there are no AMX tiles, with the packed layout they read.
 *
 * A matrix [N, K] is held as panels of 32 rows, zeros where N ends:
 *
 *     panel p, depth i:  32 numbers, W[32p + c][i]     c in 0..31
 *
 * Every output is one float32 sum over i = 0, 1, .. K - 1, a fused multiply-add at a time, independent of
 * other outputs. Depth is walked in pieces that stay in the first cache while a strip of rows passes over them.
 */
#include "kernels.h"

#include <string.h>

enum {
    PANEL = 32,
    DEPTH = 128, /* of a piece */
    STRIP = 48,  /* rows; a multiple of the rows that are summed at once */
};

typedef struct {
    const float *x; /* [m, k] */
    const void *w, *bias; /* bias may be NULL */
    void *y;
    int64_t m, n, k;
    int num_panels, panels_per_chunk, is_float;
} product_job;

#define KERNELS "product.inc"
#include "sets.inc"

void product(const void *x, const void *w, const void *bias, void *y, int64_t m, int64_t n, int64_t k, int is_bf16,
             int is_float) {
    if (is_bf16) {
        float *wide = scratch(SCRATCH_ROWS, (size_t)(m * k) * sizeof(float));
        for (int64_t i = 0; i < m * k; i++) wide[i] = from_bf16(((const uint16_t *)x)[i]);
        x = wide;
    }
    int num_panels = (int)((n + PANEL - 1) / PANEL);
    int per_chunk = max_int(1, ceil_div(num_panels, pool_threads() * 8));
    product_job job = {x, w, bias, y, m, n, k, num_panels, per_chunk, is_float};
    pool_run(CHOOSE(product_chunk, is_bf16), &job, ceil_div(num_panels, per_chunk));
}

typedef struct {
    const char *matrix;
    char *packed;
    int64_t n, k;
    size_t size; /* of an element */
} pack_job;

static void pack_chunk(void *arg, int panel) {
    const pack_job *job = arg;
    char *out = job->packed + (size_t)panel * (size_t)job->k * PANEL * job->size;
    memset(out, 0, (size_t)job->k * PANEL * job->size);
    for (int c = 0; c < PANEL && (int64_t)panel * PANEL + c < job->n; c++) {
        const char *row = job->matrix + (size_t)((int64_t)panel * PANEL + c) * (size_t)job->k * job->size;
        for (size_t i = 0; i < (size_t)job->k; i++)
            memcpy(out + (i * PANEL + (size_t)c) * job->size, row + i * job->size, job->size);
    }
}

void product_pack(const void *matrix, void *packed, int64_t n, int64_t k, int is_bf16) {
    pack_job job = {matrix, packed, n, k, is_bf16 ? 2 : 4};
    pool_run(pack_chunk, &job, (int)((n + PANEL - 1) / PANEL));
}

typedef struct {
    const char *packed;
    const int64_t *ids;
    char *out;
    size_t k, size;
} rows_job;

static void rows_chunk(void *arg, int index) {
    const rows_job *job = arg;
    size_t id = (size_t)job->ids[index];
    const char *column = job->packed + (id / PANEL * job->k * PANEL + id % PANEL) * job->size;
    char *out = job->out + (size_t)index * job->k * job->size;
    if (job->size == 4)
        for (size_t i = 0; i < job->k; i++) memcpy(out + i * 4, column + i * PANEL * 4, 4);
    else
        for (size_t i = 0; i < job->k; i++) memcpy(out + i * 2, column + i * PANEL * 2, 2);
}

void product_rows(const void *packed, const int64_t *ids, void *out, int64_t count, int64_t k, int is_bf16) {
    rows_job job = {packed, ids, out, (size_t)k, is_bf16 ? 2 : 4};
    pool_run(rows_chunk, &job, (int)count);
}

