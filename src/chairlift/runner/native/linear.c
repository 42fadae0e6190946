/* Matrix products; those of bf16 on AMX tiles or by dot products of bf16 (ARM) where there are, with the packed layout
 * they read. Others: product.c.
 *
 * A matrix [N, K] is held as panels of 32 rows, each panel as steps of 32 columns, each step as two tiles of 1 KiB:
 *
 *     panel p, step s, tile t:  word [r][c] = W[32p + 16t + c][32s + 2r .. 32s + 2r + 1]     r, c in 0..15
 *
 * N and K are padded with zeros. A panel is read from start to end, so a product of few rows runs as fast as memory
 * gives the weights. Sums are float32, over the steps in order; no product is split along K.
 */
#include "linear.h"

enum { L2_SHARE = 768 * 1024 }; /* bytes of weights that stay in a core's cache while all rows pass over them */

#if defined(__x86_64__)
static const int HAS_TILES = HAS_AMX;
#define LINEAR_CHUNK linear_chunk_amx
#else
static const int HAS_TILES = HAS_ARM_BF16;
#define LINEAR_CHUNK linear_chunk_arm
#endif

static int is_in_tiles(int is_bf16) { return is_bf16 && cpu_features() & HAS_TILES; }

static void linear_in_tiles(const uint16_t *x, const uint16_t *w, const uint16_t *bias, void *y, int64_t m, int64_t n,
                            int64_t k, int is_float) {
    int64_t x_stride = k;
    if (k % STEP) {
        int64_t padded = (k + STEP - 1) / STEP * STEP;
        uint16_t *rows = scratch(SCRATCH_ROWS, (size_t)(m * padded) * 2);
        for (int64_t r = 0; r < m; r++) {
            memcpy(rows + r * padded, x + r * k, (size_t)k * 2);
            memset(rows + r * padded + k, 0, (size_t)(padded - k) * 2);
        }
        x = rows;
        x_stride = padded;
    }
    int num_panels = (int)((n + PANEL - 1) / PANEL);
    int panel_bytes = (int)((k + STEP - 1) / STEP * STEP_ITEMS * 2);
    int even = ceil_div(num_panels, pool_threads() * 4);
    int per_chunk = max_int(1, min_int(even, L2_SHARE / panel_bytes));
    linear_job job = {x, w, bias, y, m, n, k, x_stride, num_panels, per_chunk, is_float};
    pool_run(LINEAR_CHUNK, &job, ceil_div(num_panels, per_chunk));
}

typedef struct {
    const uint16_t *matrix;
    uint16_t *packed;
    int64_t n, k;
} pack_job;

static void pack_chunk(void *arg, int panel) {
    const pack_job *job = arg;
    int64_t steps = (job->k + STEP - 1) / STEP;
    uint16_t *out = job->packed + panel * steps * STEP_ITEMS;
    memset(out, 0, (size_t)(steps * STEP_ITEMS) * 2);
    for (int c = 0; c < PANEL && (int64_t)panel * PANEL + c < job->n; c++) {
        const uint16_t *row = job->matrix + ((int64_t)panel * PANEL + c) * job->k;
        uint16_t *column = out + (c >> 4) * 512 + (c & 15) * 2;
        for (int64_t i = 0; i < job->k; i++) column[i / STEP * STEP_ITEMS + (i % STEP >> 1) * 32 + (i & 1)] = row[i];
    }
}

static void pack_in_tiles(const uint16_t *matrix, uint16_t *packed, int64_t n, int64_t k) {
    pack_job job = {matrix, packed, n, k};
    pool_run(pack_chunk, &job, (int)((n + PANEL - 1) / PANEL));
}

typedef struct {
    const uint16_t *packed;
    const int64_t *ids;
    uint16_t *out;
    int64_t k;
} rows_job;

static void rows_chunk(void *arg, int index) {
    const rows_job *job = arg;
    int64_t id = job->ids[index], steps = (job->k + STEP - 1) / STEP;
    const uint16_t *column = job->packed + id / PANEL * steps * STEP_ITEMS + (id % PANEL >> 4) * 512 + (id & 15) * 2;
    uint16_t *out = job->out + index * job->k;
    for (int64_t i = 0; i + 1 < job->k; i += 2) memcpy(out + i, column + i / STEP * STEP_ITEMS + (i % STEP >> 1) * 32, 4);
    if (job->k & 1) {
        int64_t i = job->k - 1;
        out[i] = column[i / STEP * STEP_ITEMS + (i % STEP >> 1) * 32];
    }
}

static void rows_in_tiles(const uint16_t *packed, const int64_t *ids, uint16_t *out, int64_t count, int64_t k) {
    rows_job job = {packed, ids, out, k};
    pool_run(rows_chunk, &job, (int)count);
}

/* x [m, k] -> y [m, n]; y is float32 where `is_float` says so, else as x is. */
EXPORT void chairlift_product(const void *x, const void *w, const void *bias, void *y, int64_t m, int64_t n, int64_t k,
                             int is_bf16, int is_float) {
    if (is_in_tiles(is_bf16))
        linear_in_tiles(x, w, bias, y, m, n, k, is_float);
    else
        product(x, w, bias, y, m, n, k, is_bf16, is_float);
}

EXPORT void chairlift_product_pack(const void *matrix, void *packed, int64_t n, int64_t k, int is_bf16) {
    if (is_in_tiles(is_bf16))
        pack_in_tiles(matrix, packed, n, k);
    else
        product_pack(matrix, packed, n, k, is_bf16);
}

/* Rows of the matrix that was packed: ids [count] -> out [count, k]. */
EXPORT void chairlift_product_rows(const void *packed, const int64_t *ids, void *out, int64_t count, int64_t k, int is_bf16) {
    if (is_in_tiles(is_bf16))
        rows_in_tiles(packed, ids, out, count, k);
    else
        product_rows(packed, ids, out, count, k, is_bf16);
}

