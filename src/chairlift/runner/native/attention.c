/* bf16 attention of up to 16 queries over one key/value head, on AMX tiles.
 *
 * Three passes over the keys, in tiles of 32 absolute positions, so that a query gets the same bits in a decode, in a
 * prompt chunk of any length and beside any other query:
 *
 *     scores   S[key][lane]  = K . Q^T                     keys are read where they lie, 16 rows to a tile
 *     weights  P[lane][key]  = exp2((S - max S) * scale)   in float32, then rounded to bf16
 *     output   O[lane][d]    = P . V / P . 1               the sum too is taken over the rounded weights
 *
 * A lane is one query. Few lanes (a decode) take rows of 4 or 8 lanes, so that no register is mostly empty.
 */
#include "kernels.h"

#if defined(__x86_64__)

#include "amx.h"

enum {
    TILE_KEYS = 32,
    GROUP_TILES = 4, /* output tiles of 16 columns that are summed at once */
    AHEAD = 2 * TILE_KEYS,
};

int attend_amx_fits(int head_dim) { return head_dim % 16 == 0 && head_dim <= 512; }

/* Whether 16 keys of a tile always lie side by side. */
static inline int has_runs(const attention_job *job) { return job->block_size % 16 == 0; }

/* Where the 32 keys (or values) from `key` on lie; 0 for those at or beyond `end`, but the rest of a run is as it is. */
static inline void rows_at(const attention_job *job, const attention_item *item, int key, int end, int64_t *at) {
    int64_t d = job->head_dim, block_items = job->block_size * d, apart = job->kv_heads * block_items;
    int64_t head = item->kv_head * block_items;
    if (has_runs(job)) {
        for (int half = 0; half < 2; half++, key += 16) {
            int64_t start = key < end ? item->table[key / job->block_size] * apart + head + key % job->block_size * d : 0;
            for (int i = 0; i < 16; i++) at[half * 16 + i] = start + i * d;
        }
        return;
    }
    int block = key / job->block_size, offset = key % job->block_size, count = min_int(TILE_KEYS, end - key), i = 0;
    while (i < count) {
        int64_t start = item->table[block++] * apart + head;
        for (; i < count && offset < job->block_size; i++, offset++) at[i] = start + offset * d;
        offset = 0;
    }
    for (; i < TILE_KEYS; i++) at[i] = 0;
}

/* out i = [r0.i, r1.i, r2.i, r3.i], in parts of 128 bits */
AMX_INLINE void transpose_4(__m512i *r, int apart) {
    __m512i a = _mm512_shuffle_i32x4(r[0], r[apart], 0x44), b = _mm512_shuffle_i32x4(r[2 * apart], r[3 * apart], 0x44);
    __m512i c = _mm512_shuffle_i32x4(r[0], r[apart], 0xee), d = _mm512_shuffle_i32x4(r[2 * apart], r[3 * apart], 0xee);
    r[0] = _mm512_shuffle_i32x4(a, b, 0x88);
    r[apart] = _mm512_shuffle_i32x4(a, b, 0xdd);
    r[2 * apart] = _mm512_shuffle_i32x4(c, d, 0x88);
    r[3 * apart] = _mm512_shuffle_i32x4(c, d, 0xdd);
}

/* 8 rows of 8 words of 64 bits: row i goes to column i. */
AMX_INLINE void transpose_8(__m512i *r) {
    for (int p = 0; p < 8; p += 2) {
        __m512i low = _mm512_unpacklo_epi64(r[p], r[p + 1]), high = _mm512_unpackhi_epi64(r[p], r[p + 1]);
        r[p] = low;
        r[p + 1] = high;
    }
    transpose_4(r, 2);
    transpose_4(r + 1, 2);
}

/* 16 rows of 16 words of 32 bits. */
AMX_INLINE void transpose_16(__m512i *r) {
    for (int p = 0; p < 16; p += 4) {
        __m512i a = _mm512_unpacklo_epi32(r[p], r[p + 1]), b = _mm512_unpackhi_epi32(r[p], r[p + 1]);
        __m512i c = _mm512_unpacklo_epi32(r[p + 2], r[p + 3]), d = _mm512_unpackhi_epi32(r[p + 2], r[p + 3]);
        r[p] = _mm512_unpacklo_epi64(a, c);
        r[p + 1] = _mm512_unpackhi_epi64(a, c);
        r[p + 2] = _mm512_unpacklo_epi64(b, d);
        r[p + 3] = _mm512_unpackhi_epi64(b, d);
    }
    for (int c = 0; c < 4; c++) transpose_4(r + c, 4);
}

/* Queries as weights tiles: packed[step][r][lane] = elements 32 * step + 2r and the next, of that lane. */
AMX static void pack_queries(const attention_job *job, const attention_item *item, int lanes, int width,
                             uint32_t *packed) {
    int d = job->head_dim;
    for (int step = 0; step * 32 < d; step++) {
        __mmask32 mask = d - step * 32 >= 32 ? 0xffffffffu : 0xffffu;
        __m512i rows[16];
        for (int l = 0; l < 16; l++) rows[l] = _mm512_setzero_si512();
        for (int l = 0; l < lanes; l++) {
            int row = item->first_row + l / item->num_heads, head = item->first_head + l % item->num_heads;
            const uint16_t *q = (const uint16_t *)job->q + ((int64_t)row * job->heads + head) * d;
            rows[l] = _mm512_maskz_loadu_epi16(mask, q + step * 32);
        }
        transpose_16(rows);
        for (int r = 0; r < 16; r++)
            _mm512_mask_storeu_epi32(packed + (step * 16 + r) * width, (__mmask16)((1u << width) - 1), rows[r]);
    }
}

/* 16 keys, rows 32 * steps wide: where they lie if they lie together, else copied. */
AMX_INLINE const uint16_t *key_rows(const attention_job *job, const int64_t *at, int count, int steps, uint16_t *copy) {
    int d = job->head_dim;
    const uint16_t *keys = job->keys;
    if (has_runs(job) && d % 32 == 0) return keys + at[0];
    memset(copy, 0, (size_t)16 * steps * 64);
    for (int i = 0; i < count && i < 16; i++) memcpy(copy + i * steps * 32, keys + at[i], (size_t)d * 2);
    return copy;
}

AMX_INLINE void prefetch_run(const uint16_t *rows, int items) {
    for (int i = 0; i < items; i += 32) _mm_prefetch((const char *)(rows + i), _MM_HINT_T1);
}

AMX_INLINE void prefetch_rows(const attention_job *job, const uint16_t *rows, const int64_t *at) {
    if (has_runs(job)) {
        prefetch_run(rows + at[0], 16 * job->head_dim);
        prefetch_run(rows + at[16], 16 * job->head_dim);
    } else {
        for (int i = 0; i < TILE_KEYS; i++) prefetch_run(rows + at[i], job->head_dim);
    }
}

/* Tiles 0-1: sums. 2-3: keys. 4-5: queries. */
AMX static void score_keys(const attention_job *job, const attention_item *item, int begin, int end, int width,
                           const uint32_t *queries, uint16_t *copy, float *scores) {
    int steps = ceil_div(job->head_dim, 32), stride = steps * 64;
    int is_decode = item->num_tokens == 1; /* its keys and values are not read again soon */
    int rows[8] = {16, 16, 16, 16, 16, 16, 0, 0};
    int bytes[8] = {4 * width, 4 * width, 64, 64, 4 * width, 4 * width, 0, 0};
    configure_tiles(rows, bytes);
    for (int key = begin; key < end; key += TILE_KEYS, scores += TILE_KEYS * width) {
        int64_t at[TILE_KEYS];
        if (is_decode && key + AHEAD < end) {
            rows_at(job, item, key + AHEAD, end, at);
            prefetch_rows(job, job->keys, at);
        }
        rows_at(job, item, key, end, at);
        if (is_decode) prefetch_rows(job, job->values, at);
        const uint16_t *first = key_rows(job, at, end - key, steps, copy);
        const uint16_t *second = key_rows(job, at + 16, end - key - 16, steps, copy + 16 * steps * 32);
        STORED(first);
        _tile_zero(0);
        _tile_zero(1);
        for (int s = 0; s < steps; s++) {
            _tile_loadd(4, queries + s * 16 * width, 4 * width);
            _tile_loadd(2, first + s * 32, stride);
            _tile_dpbf16ps(0, 2, 4);
            _tile_loadd(3, second + s * 32, stride);
            _tile_dpbf16ps(1, 3, 4);
        }
        _tile_stored(0, scores, 4 * width);
        _tile_stored(1, scores + 16 * width, 4 * width);
    }
}

/* Products to capped scores. Those beyond the context may be NaN; they are hidden later. */
AMX static void cap_scores(float *scores, int count, float scale, float cap) {
    float factor = scale / cap;
    for (int i = 0; i < count; i++) scores[i] = cap * hyperbolic_tangent(scores[i] * factor, 1);
}

/* Masks the keys that a lane may not see, and finds its largest score. A vector holds 16 / width keys. */
AMX static __m512 mask_and_max(const attention_job *job, const attention_item *item, int begin, int end, int lanes,
                               int width, float *scores) {
    const __m512 hidden = _mm512_set1_ps(-1e30f);
    int positions[16], key_offsets[16];
    for (int i = 0; i < 16; i++) {
        positions[i] = item->first_position + min_int(i % width, lanes - 1) / item->num_heads;
        key_offsets[i] = i / width;
    }
    __m512i last = _mm512_loadu_si512(positions), offset = _mm512_loadu_si512(key_offsets);
    __m512i before = _mm512_sub_epi32(last, _mm512_set1_epi32(job->window ? job->window : 0x40000000));
    int last_position = item->first_position + item->num_tokens - 1;
    __m512 largest = hidden;
    for (int key = begin; key < end; key += TILE_KEYS) {
        float *tile = scores + (key - begin) * width;
        if (key + TILE_KEYS - 1 <= item->first_position && (!job->window || key > last_position - job->window)) {
            for (int i = 0; i < TILE_KEYS * width; i += 16) largest = _mm512_max_ps(largest, _mm512_loadu_ps(tile + i));
            continue;
        }
        for (int i = 0; i < TILE_KEYS * width; i += 16) {
            __m512i keys = _mm512_add_epi32(offset, _mm512_set1_epi32(key + i / width));
            __mmask16 seen = _mm512_cmple_epi32_mask(keys, last) & _mm512_cmpgt_epi32_mask(keys, before);
            __m512 s = _mm512_mask_blend_ps(seen, hidden, _mm512_loadu_ps(tile + i));
            _mm512_storeu_ps(tile + i, s);
            largest = _mm512_max_ps(largest, s);
        }
    }
    if (width <= 8) largest = _mm512_max_ps(largest, _mm512_shuffle_f32x4(largest, largest, 0x4e));
    if (width <= 4) largest = _mm512_max_ps(largest, _mm512_shuffle_f32x4(largest, largest, 0xb1));
    return largest;
}

/* 2^x for x <= 0. Below 2^-126 it is a denormal, which rounding to bf16 makes 0; at -127 and below it is 0 itself. */
AMX_INLINE __m512 exp2_of(__m512 x) {
    const __m512 magic = _mm512_set1_ps(12582912.0f); /* 1.5 * 2^23: leaves the nearest integer in the low bits */
    x = _mm512_max_ps(x, _mm512_set1_ps(-127.0f));
    __m512 whole = _mm512_add_ps(x, magic);
    __m512 f = _mm512_sub_ps(x, _mm512_sub_ps(whole, magic));
    __m512 p = _mm512_set1_ps(1.3534167e-3f);
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.6017029e-3f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.5503272e-2f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.4022651e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.9314718e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), _mm512_slli_epi32(_mm512_castps_si512(whole), 23)));
}

/* One tile of scores [32][width] -> weights [width][32] in bf16. */
AMX_INLINE void weigh_tile(const float *scores, __m512 factor, __m512 shift, __m512i order, const int width,
                           uint16_t *weights) {
    __m512i rows[16];
    for (int j = 0; j < width; j++) {
        __m512 low = exp2_of(_mm512_fmsub_ps(_mm512_loadu_ps(scores + j * 32), factor, shift));
        __m512 high = exp2_of(_mm512_fmsub_ps(_mm512_loadu_ps(scores + j * 32 + 16), factor, shift));
        rows[j] = _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(high, low));
    }
    if (width == 4)
        transpose_4(rows, 1);
    else if (width == 8)
        transpose_8(rows);
    else
        transpose_16(rows);
    for (int l = 0; l < width; l++) _mm512_storeu_si512(weights + l * 32, rows[l]);
}

AMX static void weigh(const float *scores, int num_tiles, __m512 largest, float scale, int width, uint16_t *weights) {
    __m512 factor = _mm512_set1_ps(scale * 1.44269504f), shift = _mm512_mul_ps(largest, factor);
    /* A register holds 32 / width keys x width lanes; put each lane's keys together. */
    uint16_t order_items[32];
    for (int i = 0; i < 32; i++) order_items[i] = (uint16_t)(i % (32 / width) * width + i / (32 / width));
    __m512i order = _mm512_loadu_si512(order_items);
    for (int t = 0; t < num_tiles; t++, scores += TILE_KEYS * width, weights += TILE_KEYS * width) {
        if (width == 4)
            weigh_tile(scores, factor, shift, order, 4, weights);
        else if (width == 8)
            weigh_tile(scores, factor, shift, order, 8, weights);
        else
            weigh_tile(scores, factor, shift, order, 16, weights);
    }
}

/* 32 values, columns [column, column + 16 * tiles), as weights tiles: pairs of keys side by side. Where two tiles come
 * from one register their columns are mixed; `write_output` sorts them again. */
AMX_INLINE void pack_values(const uint16_t *values, const int64_t *at, int count, int tiles, uint16_t *packed) {
    for (int r = 0; r < 16; r++) {
        /* Values beyond the context may be NaN: their weight is 0, but 0 * NaN is not. */
        __mmask32 has_first = 2 * r < count ? 0xffffffffu : 0, has_second = 2 * r + 1 < count ? 0xffffffffu : 0;
        const uint16_t *first = values + at[2 * r], *second = values + at[2 * r + 1];
        int t = 0;
        for (; t + 2 <= tiles; t += 2) {
            __m512i a = _mm512_maskz_loadu_epi16(has_first, first + t * 16);
            __m512i b = _mm512_maskz_loadu_epi16(has_second, second + t * 16);
            _mm512_store_si512(packed + t * 512 + r * 32, _mm512_unpacklo_epi16(a, b));
            _mm512_store_si512(packed + (t + 1) * 512 + r * 32, _mm512_unpackhi_epi16(a, b));
        }
        if (t < tiles) {
            __m512i a = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16((__mmask16)has_first, first + t * 16));
            __m512i b = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16((__mmask16)has_second, second + t * 16));
            _mm512_store_si512(packed + t * 512 + r * 32, _mm512_or_si512(a, _mm512_slli_epi32(b, 16)));
        }
    }
}

AMX static void pack_tile(const attention_job *job, const attention_item *item, int key, int end, int column, int tiles,
                          uint16_t *packed) {
    int64_t at[TILE_KEYS];
    rows_at(job, item, key, end, at);
    /* Values before the window may be another request's by now, or NaN: the first that is seen is in their place. */
    int hidden = job->window ? min_int(TILE_KEYS - 1, item->first_position - job->window + 1 - key) : 0;
    for (int i = 0; i < hidden; i++) at[i] = at[hidden];
    const uint16_t *values = (const uint16_t *)job->values + column;
    if (tiles == GROUP_TILES && end - key >= TILE_KEYS)
        pack_values(values, at, TILE_KEYS, GROUP_TILES, packed);
    else
        pack_values(values, at, end - key, tiles, packed);
}

/* sums: [tile][lane][16]. */
AMX static void write_output(const attention_job *job, const attention_item *item, int lanes, int column, int tiles,
                             const float *sums, const float *totals) {
    const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    for (int l = 0; l < lanes; l++) {
        int row = item->first_row + l / item->num_heads, head = item->first_head + l % item->num_heads;
        uint16_t *out = (uint16_t *)job->out + ((int64_t)row * job->heads + head) * job->head_dim + column;
        __m512 inverse = _mm512_set1_ps(1.0f / totals[l * 16]);
        int t = 0;
        for (; t + 2 <= tiles; t += 2) {
            __m512 a = _mm512_mul_ps(_mm512_loadu_ps(sums + (t * 16 + l) * 16), inverse);
            __m512 b = _mm512_mul_ps(_mm512_loadu_ps(sums + ((t + 1) * 16 + l) * 16), inverse);
            __m512 first = _mm512_permutex2var_ps(a, low, b), second = _mm512_permutex2var_ps(a, high, b);
            _mm512_storeu_si512(out + t * 16, (__m512i)_mm512_cvtne2ps_pbh(second, first));
        }
        if (t < tiles) {
            __m512 a = _mm512_mul_ps(_mm512_loadu_ps(sums + (t * 16 + l) * 16), inverse);
            _mm256_storeu_si256((__m256i *)(out + t * 16), (__m256i)_mm512_cvtneps_pbh(a));
        }
    }
}

/* Tiles 0-3: output. 4: sum of the weights. 5: weights. 6: values. 7: ones. */
AMX static void sum_values(const attention_job *job, const attention_item *item, int begin, int end, int lanes, int width,
                           const uint16_t *weights) {
    _Alignas(64) uint16_t buffers[2][GROUP_TILES * 512];
    _Alignas(64) float sums[GROUP_TILES * 256], totals[256];
    int rows[8] = {lanes, lanes, lanes, lanes, lanes, lanes, 16, 16}, bytes[8] = {64, 64, 64, 64, 64, 64, 64, 64};
    configure_tiles(rows, bytes);
    const __m512i ones = _mm512_set1_epi16(0x3f80);
    STORED(&ones);
    _tile_loadd(7, &ones, 0);
    _tile_zero(4);
    for (int column = 0; column < job->head_dim; column += GROUP_TILES * 16) {
        int tiles = min_int(GROUP_TILES, (job->head_dim - column) / 16);
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        pack_tile(job, item, begin, end, column, tiles, buffers[begin / TILE_KEYS & 1]);
        for (int key = begin; key < end; key += TILE_KEYS) {
            const uint16_t *packed = buffers[key / TILE_KEYS & 1];
            int next = key + TILE_KEYS; /* packed a tile ahead: a tile cannot be read while its stores are on their way */
            if (next < end) pack_tile(job, item, next, end, column, tiles, buffers[next / TILE_KEYS & 1]);
            STORED(packed);
            _tile_loadd(5, weights + (key - begin) * width, 64);
            if (column == 0) _tile_dpbf16ps(4, 5, 7);
            _tile_loadd(6, packed, 64);
            _tile_dpbf16ps(0, 5, 6);
            if (tiles > 1) {
                _tile_loadd(6, packed + 512, 64);
                _tile_dpbf16ps(1, 5, 6);
            }
            if (tiles > 2) {
                _tile_loadd(6, packed + 1024, 64);
                _tile_dpbf16ps(2, 5, 6);
            }
            if (tiles > 3) {
                _tile_loadd(6, packed + 1536, 64);
                _tile_dpbf16ps(3, 5, 6);
            }
        }
        if (column == 0) _tile_stored(4, totals, 64);
        _tile_stored(0, sums, 64);
        _tile_stored(1, sums + 256, 64);
        _tile_stored(2, sums + 512, 64);
        _tile_stored(3, sums + 768, 64);
        write_output(job, item, lanes, column, tiles, sums, totals);
    }
}

AMX void attend_amx(const attention_job *job, const attention_item *item) {
    int lanes = item->num_tokens * item->num_heads, width = lanes <= 4 ? 4 : lanes <= 8 ? 8 : 16;
    int end = item->first_position + item->num_tokens;
    int begin = job->window ? max_int(0, item->first_position - job->window + 1) / TILE_KEYS * TILE_KEYS : 0;
    int num_tiles = ceil_div(end - begin, TILE_KEYS), steps = ceil_div(job->head_dim, 32);
    size_t num_scores = (size_t)num_tiles * TILE_KEYS * width;
    float *scores = scratch(SCRATCH_SCORES, num_scores * 6 + (size_t)steps * (16 * 16 * 4 + 32 * 32 * 2));
    uint16_t *weights = (uint16_t *)(scores + num_scores);
    uint32_t *queries = (uint32_t *)(weights + num_scores);
    uint16_t *copy = (uint16_t *)(queries + steps * 256);
    pack_queries(job, item, lanes, width, queries);
    score_keys(job, item, begin, end, width, queries, copy, scores);
    if (job->cap > 0.0f) cap_scores(scores, num_tiles * TILE_KEYS * width, job->scale, job->cap);
    __m512 largest = mask_and_max(job, item, begin, end, lanes, width, scores);
    weigh(scores, num_tiles, largest, job->cap > 0.0f ? 1.0f : job->scale, width, weights);
    sum_values(job, item, begin, end, lanes, width, weights);
    _tile_release();
}

#endif
