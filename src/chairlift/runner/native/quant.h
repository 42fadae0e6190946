/* Quantised matrices as the kernels read them, one layout for every block type of GGUF that is kept and for integers with
 * a scale a group, as other files have them (W4, W8).
 *
 * A matrix [N, K] is held as panels of 16 rows, zeros where N ends; K is cut into blocks of 32 columns, each with scales
 * of its own. A panel is its quants, block by block, then the scales of its blocks, then those of its super-blocks:
 *
 *     quants of a block:   integers [8][16][4]: quants[s][r][i] = row r, column 4s + i
 *       8 bits             512 bytes, signed
 *       4 bits             256 bytes: byte j holds item j in its low half and item 256 + j in its high half
 *       5 bits             4 bits as above, then 64 bytes: bit t of byte j is the fifth bit of item 64t + j
 *       6 bits             4 bits as above, then 128 bytes: bits 2t, 2t + 1 of byte j are the upper two of item 128t + j
 *     scales of a block:   half floats d[16] (Q8_0, Q4_0, Q5_0), or d[16] and m[16] (Q4_1, Q5_1), or bytes
 *                          sc[16] and mn[16] (Q4_K, Q5_K), or bytes sc[2][16], one for 16 columns (Q6_K)
 *     of a super-block     of 8 blocks: half floats d[16] and dmin[16] (Q4_K, Q5_K), or d[16] (Q6_K)
 *     of a group           of any number of blocks: d[16], half floats or floats, and half floats zero[16], unless all
 *                          zeros of the matrix are the same (W4, W8)
 *
 * Before the panels of W4 and W8 is a header, perhaps with an order of columns: column i of the panels is order[i] of x.
 *
 * A row is quantised in blocks of 32 too, to 8 bits. An output is
 *
 *     sum over blocks in order of   d * xd * (quants . xq)  [ + m * xd * (sum of xq) ]
 *
 * Dots are integers, so they are the same with any instructions; the sums are float32, a fused multiply-add at a
 * time. So a result has the same bits on every processor, in any batch, on any number of threads.
 */
#ifndef CHAIRLIFT_QUANT_H
#define CHAIRLIFT_QUANT_H

#include "kernels.h"

/* Block types: the numbers of GGUF, and two beyond them. */
enum { Q4_0 = 2, Q4_1 = 3, Q5_0 = 6, Q5_1 = 7, Q8_0 = 8, Q4_K = 12, Q5_K = 13, Q6_K = 14, W4 = 100, W8 = 101 };

enum {
    PANEL = 16,
    BLOCK = 32,
    SUPER = 8,                   /* blocks */
    BLOCK_ITEMS = PANEL * BLOCK, /* quants of a block of a panel */
    PIECE = 24,                  /* most blocks that are unpacked at once; a multiple of SUPER */
    AHEAD = 8192,                /* bytes: how far ahead memory is prefetched */
};

/* How a tile reads its quants: signed; unsigned and with mins; signed, with a scale for each 16 columns. */
enum { PLAIN, MINS, HALVES };

typedef struct {
    int kind, bits;
    int offset;                     /* quants are stored with this added */
    int block_scales, super_scales; /* bytes of a panel; 0: no super-blocks */
    int file_bytes;                 /* of a block in a file, or of a super-block */
} quant_form;

/* In the header, so that a kernel of one type is compiled with its numbers. */
static const quant_form QUANT_FORMS[] = {
    [Q4_0] = {MINS, 4, 8, 32, 0, 18},   [Q4_1] = {MINS, 4, 0, 64, 0, 20},     [Q5_0] = {MINS, 5, 16, 32, 0, 22},
    [Q5_1] = {MINS, 5, 0, 64, 0, 24},   [Q8_0] = {PLAIN, 8, 0, 32, 0, 34},    [Q4_K] = {MINS, 4, 0, 32, 64, 144},
    [Q5_K] = {MINS, 5, 0, 32, 64, 176}, [Q6_K] = {HALVES, 6, 32, 32, 32, 210}, [W4] = {MINS, 4, 0, 0, 0, 0},
    [W8] = {PLAIN, 8, 0, 0, 0, 0},
};

/* Mins are stored, or the scales times the offset. */
static inline int stores_mins(const quant_form *form) { return form->kind == MINS && !form->offset; }

static inline int64_t quant_blocks(int64_t k) { return (k + BLOCK - 1) / BLOCK; }
static inline int64_t quant_bytes(const quant_form *form, int64_t blocks) {
    return blocks * BLOCK_ITEMS * form->bits / 8;
}
static inline int64_t panel_bytes(const quant_form *form, int64_t blocks) {
    int64_t scales = blocks * form->block_scales + (blocks + SUPER - 1) / SUPER * form->super_scales;
    return (quant_bytes(form, blocks) + scales + 63) / 64 * 64;
}

/* Scales are of groups, not of blocks. */
static inline int has_groups(const quant_form *form) { return !form->block_scales; }

/* A matrix as it lies in memory; from `order` on of groups alone. */
typedef struct {
    const uint8_t *panels;
    int64_t panel_bytes;
    const int32_t *order; /* [k], or NULL */
    int64_t group;        /* blocks that share a scale */
    int scale_bytes;      /* 2: half floats; 4: floats */
    int has_zeros;
    float zero; /* of all groups, without */
} quant_matrix;

enum { HEADER = 64 }; /* bytes */

typedef struct {
    int64_t group;
    int32_t scale_bytes, has_zeros, has_order;
    float zero;
} quant_header;

static inline int64_t group_bytes(int scale_bytes, int has_zeros) { return PANEL * (scale_bytes + 2 * has_zeros); }

/* Bytes before the panels. */
static inline int64_t header_bytes(int64_t k, int has_order) {
    return HEADER + (has_order ? (k * (int64_t)sizeof(int32_t) + 63) / 64 * 64 : 0);
}

static inline int64_t grouped_panel_bytes(const quant_form *form, int64_t blocks, const quant_header *header) {
    int64_t groups = (blocks + header->group - 1) / header->group;
    return (quant_bytes(form, blocks) + groups * group_bytes(header->scale_bytes, header->has_zeros) + 63) / 64 * 64;
}

static inline quant_matrix quant_matrix_at(int type, const void *packed, int64_t k) {
    const quant_form *form = &QUANT_FORMS[type];
    quant_header header;
    if (!has_groups(form)) return (quant_matrix){packed, panel_bytes(form, quant_blocks(k)), NULL, 0, 0, 0, 0};
    memcpy(&header, packed, sizeof header);
    const uint8_t *order = (const uint8_t *)packed + HEADER;
    return (quant_matrix){(const uint8_t *)packed + header_bytes(k, header.has_order),
                          grouped_panel_bytes(form, quant_blocks(k), &header),
                          header.has_order ? (const int32_t *)order : NULL, header.group, header.scale_bytes,
                          header.has_zeros, header.zero};
}

INLINE void prefetch(const void *from, int bytes) {
    for (int i = 0; i < bytes; i += 64) __builtin_prefetch((const char *)from + AHEAD + i, 0, 2);
}

/* A finite half float. */
static inline float from_half(uint16_t half) {
    uint32_t bits = (uint32_t)(half & 0x7fff) << 13, sign = (uint32_t)(half & 0x8000) << 16;
    float f;
    memcpy(&f, &bits, 4);
    f *= 0x1p112f;
    memcpy(&bits, &f, 4);
    bits |= sign;
    memcpy(&f, &bits, 4);
    return f;
}

/* Rows that were quantised. */
typedef struct {
    int8_t *q;     /* [rows, blocks * 32] */
    float *d, *m;  /* [rows, blocks]: the scale; the scale times the sum of a block */
    int32_t *sums; /* [rows, blocks, 2]: of 16 quants */
    int64_t blocks;
} quant_rows;

/* Some rows times a piece of a panel: sums [rows][16] += x . w */
typedef struct {
    const int8_t *q;    /* [blocks][8][16][4] */
    const float *d, *m; /* [blocks][16]; d of Q6_K [blocks][2][16] */
    const int8_t *x;
    const float *xd, *xm;
    const int32_t *xs;
    const uint8_t *scales, *supers; /* of the panel */
    const quant_matrix *w;
    int64_t blocks;                 /* of a whole row: how far rows are apart */
    int count;      /* blocks of the piece */
    float *sums;
} quant_tile;

/* The scales and mins of a group. halves: to floats; a macro, as no compiler inlines through a pointer at -O0. */
#define UNPACK_GROUP(w, from, d, m, halves)                                          \
    do {                                                                             \
        if ((w)->scale_bytes == 2)                                                   \
            halves(from, d);                                                         \
        else                                                                         \
            memcpy(d, from, PANEL * sizeof(float));                                  \
        if ((w)->has_zeros) halves((from) + PANEL * (w)->scale_bytes, m);            \
        for (int r = 0; r < PANEL; r++)                                              \
            (m)[r] = (d)[r] * -((w)->has_zeros ? (m)[r] : (w)->zero);                \
    } while (0)

/* Mins of signed quants are added apart. */
static inline int needs_mins(const quant_matrix *w) { return w->has_zeros || w->zero != 0.0f; }

/* 16 bytes times a float of its own each. */
INLINE void scaled(const uint8_t *from, const float *d, float *to, const int is_signed) {
    for (int r = 0; r < PANEL; r++) to[r] = d[r] * (is_signed ? (float)(int8_t)from[r] : (float)from[r]);
}

/* The quants of one block of a panel to bytes; see above for how they are packed. */
INLINE void unpack_block(const uint8_t *from, int8_t *to, const int bits) {
    for (int j = 0; j < 256; j++) to[j] = (int8_t)(from[j] & 15);
    for (int j = 0; j < 256; j++) to[256 + j] = (int8_t)(from[j] >> 4);
    if (bits == 5)
        for (int t = 0; t < 8; t++)
            for (int j = 0; j < 64; j++) to[64 * t + j] |= (int8_t)((from[256 + j] >> t & 1) << 4);
    if (bits == 6)
        for (int t = 0; t < 4; t++)
            for (int j = 0; j < 128; j++)
                to[128 * t + j] = (int8_t)((to[128 * t + j] | (from[256 + j] >> 2 * t & 3) << 4) - 32);
}

typedef struct {
    float d, inverse;
} quant_scale;

/* Of a block whose largest number, without its sign, has these bits: it becomes 127. Not finite where one is not. */
INLINE quant_scale quant_scale_of(int32_t largest) {
    float most;
    memcpy(&most, &largest, 4);
    if (largest >= 0x7f800000) return (quant_scale){__builtin_nanf(""), 0.0f};
    if (most < 0x1p-100f) return (quant_scale){0.0f, 0.0f};
    return (quant_scale){most * (1.0f / 127.0f), 127.0f / most};
}

/* 32 numbers to 8 bits. */
INLINE void quantise_block(const float *restrict x, int8_t *restrict q, float *d, float *m, int32_t *sums) {
    int32_t largest = 0, bits[BLOCK];
    float rounded[BLOCK];
    memcpy(bits, x, sizeof bits);
    for (int i = 0; i < BLOCK; i++) {
        int32_t size = bits[i] & 0x7fffffff; /* orders as the numbers do, NaN above all */
        largest = size > largest ? size : largest;
    }
    quant_scale scale = quant_scale_of(largest);
    for (int i = 0; i < BLOCK; i++) rounded[i] = __builtin_fmaf(x[i], scale.inverse, 12582912.0f);
    memcpy(bits, rounded, sizeof bits); /* 1.5 * 2^23: the nearest integer is in the low bits */
    for (int i = 0; i < BLOCK; i++) q[i] = (int8_t)bits[i];
    sums[0] = sums[1] = 0;
    for (int i = 0; i < BLOCK; i++) sums[i / 16] += q[i];
    *d = scale.d, *m = scale.d * (float)(sums[0] + sums[1]);
}

typedef struct {
    int type, x_is_bf16, y_is_bf16;
    const void *x;     /* [m, k] */
    const float *bias; /* [n], or NULL */
    quant_matrix w;
    void *y; /* rows y_stride apart */
    int64_t m, n, k, y_stride;
    quant_rows rows;
    int num_panels, panels_per_chunk, rows_per_chunk;
} quant_job;

/* What quantises the rows of a job and what multiplies them, on one instruction set. */
typedef struct {
    chunk_fn quantise, multiply;
} quant_kernels;

quant_kernels quant_kernels_here(void); /* quant_arm.c, quant_x86.c: the best, or none */

#endif
