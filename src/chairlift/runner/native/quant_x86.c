/* Products of quantised matrices by AVX2, by AVX-512 with VNNI, and by AMX tiles for sixteen rows. */
#include "quant.h"

#if defined(__x86_64__)

#include "amx.h"

#define SHARED(x) x

#define AVX2_HALF __attribute__((target("avx2,fma,f16c")))
#define VNNI __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))
#define AMX_INT8 \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,amx-tile,amx-int8")))

/* The four columns of step s of block b of row r of x. */
INLINE int32_t columns(const quant_tile *t, int r, int b, int s) {
    int32_t four;
    memcpy(&four, t->x + (r * t->blocks + b) * BLOCK + 4 * s, 4);
    return four;
}

AVX2_HALF INLINE void halves_avx2(const uint8_t *from, float *to) {
    for (int i = 0; i < PANEL; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + 2 * i))));
}

/* Eight outputs at a time. Products of a byte without and one with a sign are added in pairs, in 16 bits: a signed
 * quant gives its sign to x first; unsigned ones, of 5 bits at most, leave room for four pairs. */
AVX2_HALF INLINE void tile_rows_avx2(const quant_tile *t, const int rows, const int kind) {
    const __m256i ones = _mm256_set1_epi16(1);
    for (int v = 0; v < 2; v++) {
        __m256 sums[4];
        for (int r = 0; r < rows; r++) sums[r] = _mm256_loadu_ps(t->sums + r * PANEL + 8 * v);
        for (int b = 0; b < t->count; b++) {
            __m256i dots[4];
            for (int h = 0; h < 2; h++) { /* 16 columns */
                __m256i pairs[4];
                if (h == 0 || kind == HALVES)
                    for (int r = 0; r < rows; r++) dots[r] = _mm256_setzero_si256();
                for (int r = 0; r < rows; r++) pairs[r] = _mm256_setzero_si256();
#pragma GCC unroll 4
                for (int s = 4 * h; s < 4 * h + 4; s++) {
                    __m256i w = _mm256_loadu_si256((const __m256i *)(t->q + b * BLOCK_ITEMS + s * 64 + 32 * v));
                    __m256i size = kind == MINS ? w : _mm256_abs_epi8(w);
#pragma GCC unroll 4
                    for (int r = 0; r < rows; r++) {
                        __m256i x = _mm256_set1_epi32(columns(t, r, b, s));
                        if (kind == MINS) {
                            pairs[r] = _mm256_add_epi16(pairs[r], _mm256_maddubs_epi16(w, x));
                        } else {
                            __m256i products = _mm256_maddubs_epi16(size, _mm256_sign_epi8(x, w));
                            dots[r] = _mm256_add_epi32(dots[r], _mm256_madd_epi16(products, ones));
                        }
                    }
                }
                if (kind == MINS)
                    for (int r = 0; r < rows; r++)
                        dots[r] = _mm256_add_epi32(dots[r], _mm256_madd_epi16(pairs[r], ones));
                if (h == 0 && kind != HALVES) continue;
                __m256 d = _mm256_loadu_ps(t->d + (kind == HALVES ? 2 * b + h : b) * PANEL + 8 * v);
                for (int r = 0; r < rows; r++) {
                    __m256 scale = _mm256_mul_ps(d, _mm256_set1_ps(t->xd[r * t->blocks + b]));
                    sums[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[r]), scale, sums[r]);
                }
            }
            if (kind != MINS) continue;
            __m256 m = _mm256_loadu_ps(t->m + b * PANEL + 8 * v);
            for (int r = 0; r < rows; r++)
                sums[r] = _mm256_fmadd_ps(m, _mm256_set1_ps(t->xm[r * t->blocks + b]), sums[r]);
        }
        for (int r = 0; r < rows; r++) _mm256_storeu_ps(t->sums + r * PANEL + 8 * v, sums[r]);
    }
}

AVX2_HALF INLINE void tile_avx2(const quant_tile *t, int rows, const int kind, const int bits) {
    (void)bits;
    switch (rows) {
    case 1:
        tile_rows_avx2(t, 1, kind);
        break;
    case 2:
        tile_rows_avx2(t, 2, kind);
        break;
    case 3:
        tile_rows_avx2(t, 3, kind);
        break;
    default:
        tile_rows_avx2(t, 4, kind);
    }
}

#define TARGET AVX2_HALF
#define NAME(x) x##_avx2
#define TILE_ROWS 4
#define HAS_DIRECT 0
#define ONE_ROW(tile, type) 0
#include "quant.inc"

VNNI INLINE void halves_vnni(const uint8_t *from, float *to) {
    _mm512_storeu_ps(to, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from)));
}

/* Step s of a block: 16 outputs, four columns; without a sign, which takes 128 added where they have one. */
VNNI INLINE __m512i items_vnni(const int8_t *w, int s, const int kind, const int bits) {
    if (bits == 4) {
        __m512i two = _mm512_loadu_si512(w + s % 4 * 64);
        return _mm512_and_si512(s < 4 ? two : _mm512_srli_epi16(two, 4), _mm512_set1_epi8(15));
    }
    __m512i items = _mm512_loadu_si512(w + s * 64);
    return kind == MINS ? items : _mm512_xor_si512(items, _mm512_set1_epi8((char)0x80));
}

/* Sixteen outputs at a time. What is added to signed quants is taken away from the start: 128 times the sum of x. */
VNNI INLINE void tile_rows_vnni(const quant_tile *t, const int rows, const int kind, const int bits) {
    __m512 sums[8];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) sums[r] = _mm512_loadu_ps(t->sums + r * PANEL);
    for (int b = 0; b < t->count; b++) {
        const int8_t *w = t->q + b * BLOCK_ITEMS * bits / 8;
        __m512i dots[8];
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) { /* 16 columns */
            if (h == 0 || kind == HALVES)
#pragma GCC unroll 8
                for (int r = 0; r < rows; r++) {
                    const int32_t *sum = t->xs + 2 * (r * t->blocks + b);
                    dots[r] = _mm512_set1_epi32(kind == MINS ? 0 : -128 * (kind == HALVES ? sum[h] : sum[0] + sum[1]));
                }
#pragma GCC unroll 4
            for (int s = 4 * h; s < 4 * h + 4; s++) {
                __m512i items = items_vnni(w, s, kind, bits);
#pragma GCC unroll 8
                for (int r = 0; r < rows; r++)
                    dots[r] = _mm512_dpbusd_epi32(dots[r], items, _mm512_set1_epi32(columns(t, r, b, s)));
            }
            if (h == 0 && kind != HALVES) continue;
            __m512 d = _mm512_loadu_ps(t->d + (kind == HALVES ? 2 * b + h : b) * PANEL);
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) {
                __m512 scale = _mm512_mul_ps(d, _mm512_set1_ps(t->xd[r * t->blocks + b]));
                sums[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[r]), scale, sums[r]);
            }
        }
        if (kind != MINS) continue;
        __m512 m = _mm512_loadu_ps(t->m + b * PANEL);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) sums[r] = _mm512_fmadd_ps(m, _mm512_set1_ps(t->xm[r * t->blocks + b]), sums[r]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) _mm512_storeu_ps(t->sums + r * PANEL, sums[r]);
}

VNNI INLINE void tile_vnni(const quant_tile *t, int rows, const int kind, const int bits) {
    switch (rows) {
#define CASE(count)                                \
    case count:                                    \
        tile_rows_vnni(t, count, kind, bits);      \
        break;
        CASE(1)
        CASE(2)
        CASE(3)
        CASE(4)
        CASE(5)
        CASE(6)
        CASE(7)
        CASE(8)
#undef CASE
    }
}

#define TARGET VNNI
#define NAME(x) x##_vnni
#define TILE_ROWS 8
#define HAS_DIRECT 1
#define ONE_ROW(tile, type) 0
#include "quant.inc"

/* Tiles 0, 1: dots, of two blocks in turn, so that one is scaled while the other is computed. 2, 3: x. 4, 5: quants. */
static void configure_for(int kind) {
    int columns_per_tile = kind == HALVES ? 16 : 32;
    int rows[8] = {16, 16, 16, 16, columns_per_tile / 4, columns_per_tile / 4, 0, 0};
    int bytes[8] = {64, 64, columns_per_tile, columns_per_tile, 64, 64, 0, 0};
    configure_tiles(rows, bytes);
}

AMX_INT8 INLINE void scale_dots(const quant_tile *t, int part, const int32_t *dots, __m512 *sums, const int kind) {
    int b = kind == HALVES ? part / 2 : part;
    __m512 d = _mm512_loadu_ps(t->d + part * PANEL);
    __m512 m = kind == MINS ? _mm512_loadu_ps(t->m + b * PANEL) : _mm512_setzero_ps();
#pragma GCC unroll 16
    for (int r = 0; r < 16; r++) {
        __m512 scale = _mm512_mul_ps(d, _mm512_set1_ps(t->xd[r * t->blocks + b]));
        sums[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(dots + 16 * r)), scale, sums[r]);
        if (kind == MINS) sums[r] = _mm512_fmadd_ps(m, _mm512_set1_ps(t->xm[r * t->blocks + b]), sums[r]);
    }
}

/* Sixteen rows: a product of tiles gives the dots of one block with all of them. */
AMX_INT8 static void tile_sixteen_amx(const quant_tile *t, const int kind) {
    _Alignas(64) int32_t dots[2][16 * 16];
    __m512 sums[16];
    int per_block = kind == HALVES ? 2 : 1, parts = t->count * per_block;
    for (int r = 0; r < 16; r++) sums[r] = _mm512_loadu_ps(t->sums + r * PANEL);
    configure_for(kind);
    STORED(t->q);
    for (int part = 0; part < parts; part++) {
        const int8_t *x = t->x + part * BLOCK / per_block, *w = t->q + part * BLOCK_ITEMS / per_block;
        if (part % 2 == 0) {
            _tile_zero(0);
            _tile_loadd(2, x, t->blocks * BLOCK);
            _tile_loadd(4, w, 64);
            _tile_dpbssd(0, 2, 4);
            if (part) scale_dots(t, part - 1, dots[1], sums, kind);
            _tile_stored(0, dots[0], 64);
        } else {
            _tile_zero(1);
            _tile_loadd(3, x, t->blocks * BLOCK);
            _tile_loadd(5, w, 64);
            _tile_dpbssd(1, 3, 5);
            scale_dots(t, part - 1, dots[0], sums, kind);
            _tile_stored(1, dots[1], 64);
        }
    }
    scale_dots(t, parts - 1, dots[(parts - 1) % 2], sums, kind);
    _tile_release();
    for (int r = 0; r < 16; r++) _mm512_storeu_ps(t->sums + r * PANEL, sums[r]);
}

AMX_INT8 INLINE void tile_amx(const quant_tile *t, int rows, const int kind, const int bits) {
    if (rows == 16 && bits == 8) {
        tile_sixteen_amx(t, kind);
        return;
    }
    quant_tile some = *t;
    for (int r = 0; r < rows; r += 8) {
        some.x = t->x + r * t->blocks * BLOCK;
        some.xd = t->xd + r * t->blocks;
        some.xm = t->xm + r * t->blocks;
        some.xs = t->xs + 2 * r * t->blocks;
        some.sums = t->sums + r * PANEL;
        tile_vnni(&some, min_int(8, rows - r), kind, bits);
    }
}

#define halves_amx halves_vnni
#define TARGET AMX_INT8
#define NAME(x) x##_amx
#define TILE_ROWS 16
#define HAS_DIRECT 1
#define ONE_ROW(tile, type) 0
#include "quant.inc"

quant_kernels quant_kernels_here(void) {
    int found = cpu_features();
    if (found & HAS_AMX_INT8) return (quant_kernels){quantise_chunk_amx, multiply_chunk_amx};
    if (found & HAS_AVX512_VNNI) return (quant_kernels){quantise_chunk_vnni, multiply_chunk_vnni};
    if (found & HAS_AVX2) return (quant_kernels){quantise_chunk_avx2, multiply_chunk_avx2};
    return (quant_kernels){0};
}

#endif
