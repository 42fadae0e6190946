/* Products of bf16 matrices on AMX tiles. */
#include "linear.h"

#if defined(__x86_64__)

#include "amx.h"

enum { PREFETCH_ITEMS = 4 * STEP_ITEMS };

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

AMX void linear_chunk_amx(void *arg, int index) {
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

#endif
