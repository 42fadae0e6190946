/* Matrix products; those of bf16 on AMX tiles where there are, with the packed layout they read. Others: product.c.
 *
 * A matrix [N, K] is held as panels of 32 rows, each panel as steps of 32 columns, each step as two tiles of 1 KiB:
 *
 *     panel p, step s, tile t:  word [r][c] = W[32p + 16t + c][32s + 2r .. 32s + 2r + 1]     r, c in 0..15
 *
 * N and K are padded with zeros. A panel is read from start to end, so a product of few rows runs as fast as memory
 * gives the weights. Sums are float32, over the steps in order; no product is split along K.
 */
#include "kernels.h"

#if defined(__x86_64__)

#include "amx.h"

enum {
    PANEL = 32,
    STEP = 32,
    STEP_ITEMS = PANEL * STEP, /* elements of one step of a panel */
    L2_SHARE = 768 * 1024,     /* bytes of weights that stay in a core's cache while all rows pass over them */
    PREFETCH_ITEMS = 4 * STEP_ITEMS,
};

typedef struct {
    const uint16_t *x, *w;
    const uint16_t *bias; /* or NULL */
    void *y;
    int64_t m, n, k, x_stride;
    int num_panels, panels_per_chunk, is_float;
} linear_job;

/* Tiles 0-3: sums, [row tile][panel half]. 4, 5: rows of x. 6, 7: weights. */
AMX static void configure(int rows) {
    int first = min_int(rows, 16), second = rows - first;
    int tile_rows[8] = {first, first, second, second, first, second, 16, 16};
    int tile_bytes[8] = {64, 64, 64, 64, 64, 64, 64, 64};
    configure_tiles(tile_rows, tile_bytes);
}

AMX_INLINE void prefetch_step(const uint16_t *w) {
    for (int i = 0; i < STEP_ITEMS; i += 32) _mm_prefetch((const char *)(w + i), _MM_HINT_T0);
}

/* A finished panel whose sums are not yet in y: they are written while the tiles are busy with the next one. */
typedef struct {
    const float *sums; /* [row tile][panel half][16][16] */
    int64_t row;
    int rows, panel;
} finished;

AMX_INLINE void write_row(const linear_job *job, const finished *done, int r) {
    int64_t column = (int64_t)done->panel * PANEL, at = (done->row + r) * job->n + column;
    __mmask32 mask = job->n - column >= PANEL ? 0xffffffffu : (1u << (job->n - column)) - 1;
    const float *tile = done->sums + (r >> 4) * 512 + (r & 15) * 16;
    __m512 low = _mm512_load_ps(tile), high = _mm512_load_ps(tile + 256);
    if (job->bias) {
        __m512i bias = _mm512_maskz_loadu_epi16(mask, job->bias + column);
        __m512i bias_low = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(bias));
        __m512i bias_high = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(bias, 1));
        low = _mm512_add_ps(low, _mm512_castsi512_ps(_mm512_slli_epi32(bias_low, 16)));
        high = _mm512_add_ps(high, _mm512_castsi512_ps(_mm512_slli_epi32(bias_high, 16)));
    }
    if (job->is_float) {
        _mm512_mask_storeu_ps((float *)job->y + at, (__mmask16)mask, low);
        _mm512_mask_storeu_ps((float *)job->y + at + 16, (__mmask16)(mask >> 16), high);
    } else {
        _mm512_mask_storeu_epi16((uint16_t *)job->y + at, mask, (__m512i)_mm512_cvtne2ps_pbh(high, low));
    }
}

AMX_INLINE void write_two(const linear_job *job, const finished *done, int r) {
    if (r < done->rows) write_row(job, done, r);
    if (r + 1 < done->rows) write_row(job, done, r + 1);
}

/* Up to 16 rows; up to 32 below. */
AMX static void sum_one(const linear_job *job, const uint16_t *x, const uint16_t *w, int steps, float *sums,
                        const finished *done) {
    int64_t stride = job->x_stride * 2;
    _tile_zero(0);
    _tile_zero(1);
    for (int s = 0; s < steps; s++, x += STEP, w += STEP_ITEMS) {
        prefetch_step(w + PREFETCH_ITEMS);
        _tile_loadd(4, x, stride);
        _tile_loadd(6, w, 64);
        _tile_loadd(7, w + 512, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        write_two(job, done, 2 * s);
    }
    _tile_stored(0, sums, 64);
    _tile_stored(1, sums + 256, 64);
}

AMX static void sum_two(const linear_job *job, const uint16_t *x, const uint16_t *w, int steps, float *sums,
                        const finished *done) {
    int64_t stride = job->x_stride * 2;
    const uint16_t *x2 = x + 8 * stride;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int s = 0; s < steps; s++, x += STEP, x2 += STEP, w += STEP_ITEMS) {
        prefetch_step(w + PREFETCH_ITEMS);
        _tile_loadd(4, x, stride);
        _tile_loadd(6, w, 64);
        _tile_loadd(7, w + 512, 64);
        _tile_loadd(5, x2, stride);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        write_two(job, done, 2 * s);
    }
    _tile_stored(0, sums, 64);
    _tile_stored(1, sums + 256, 64);
    _tile_stored(2, sums + 512, 64);
    _tile_stored(3, sums + 768, 64);
}

AMX static void linear_chunk(void *arg, int index) {
    const linear_job *job = arg;
    _Alignas(64) float sums[2][4 * 256];
    finished done = {sums[1], 0, 0, 0};
    int steps = (int)((job->k + STEP - 1) / STEP);
    int first = index * job->panels_per_chunk;
    int last = min_int(first + job->panels_per_chunk, job->num_panels);
    int configured = 0;
    for (int64_t row = 0; row < job->m; row += 32) {
        int rows = job->m - row < 32 ? (int)(job->m - row) : 32;
        if (rows != configured) configure(configured = rows);
        const uint16_t *x = job->x + row * job->x_stride;
        for (int panel = first; panel < last; panel++) {
            const uint16_t *w = job->w + (int64_t)panel * steps * STEP_ITEMS;
            float *next = done.sums == sums[0] ? sums[1] : sums[0];
            if (rows > 16)
                sum_two(job, x, w, steps, next, &done);
            else
                sum_one(job, x, w, steps, next, &done);
            for (int r = 2 * steps; r < done.rows; r++) write_row(job, &done, r);
            done = (finished){next, row, rows, panel};
        }
    }
    for (int r = 0; r < done.rows; r++) write_row(job, &done, r);
    _tile_release();
}

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
    pool_run(linear_chunk, &job, ceil_div(num_panels, per_chunk));
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

static int has_tiles(int is_bf16) { return is_bf16 && cpu_features() & HAS_AMX; }

#endif

/* x [m, k] -> y [m, n]; y is float32 where `is_float` says so, else as x is. */
EXPORT void chairlift_product(const void *x, const void *w, const void *bias, void *y, int64_t m, int64_t n, int64_t k,
                             int is_bf16, int is_float) {
#if defined(__x86_64__)
    if (has_tiles(is_bf16)) {
        linear_in_tiles(x, w, bias, y, m, n, k, is_float);
        return;
    }
#endif
    product(x, w, bias, y, m, n, k, is_bf16, is_float);
}

EXPORT void chairlift_product_pack(const void *matrix, void *packed, int64_t n, int64_t k, int is_bf16) {
#if defined(__x86_64__)
    if (has_tiles(is_bf16)) {
        pack_in_tiles(matrix, packed, n, k);
        return;
    }
#endif
    product_pack(matrix, packed, n, k, is_bf16);
}

/* Rows of the matrix that was packed: ids [count] -> out [count, k]. */
EXPORT void chairlift_product_rows(const void *packed, const int64_t *ids, void *out, int64_t count, int64_t k, int is_bf16) {
#if defined(__x86_64__)
    if (has_tiles(is_bf16)) {
        rows_in_tiles(packed, ids, out, count, k);
        return;
    }
#endif
    product_rows(packed, ids, out, count, k, is_bf16);
}

