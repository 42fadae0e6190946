/* Quantised matrices into their panels: from the blocks of a GGUF file, from floats, or from integers with a scale a group;
 * and rows back out of them. */
#include "quant.h"

#include <math.h>

/* One row's share of a block: its quants as they are stored in panels (of 8 bits, as unsigned), and its scales. */
typedef struct {
    uint8_t q[BLOCK];
    uint16_t d, m;
    uint8_t sc[2];
} row_block;

static uint16_t half_at(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }

static void nibbles(const uint8_t *p, uint8_t *q) {
    for (int i = 0; i < 16; i++) q[i] = p[i] & 15, q[16 + i] = p[i] >> 4;
}

static void fifth_bits(const uint8_t *p, uint8_t *q) {
    for (int i = 0; i < BLOCK; i++) q[i] |= (uint8_t)((p[i >> 3] >> (i & 7) & 1) << 4);
}

static void scales_k(const uint8_t *p, int j, uint8_t *sc) {
    sc[0] = j < 4 ? p[j] & 63 : (uint8_t)((p[j + 4] & 15) | p[j - 4] >> 6 << 4);
    sc[1] = j < 4 ? p[j + 4] & 63 : (uint8_t)(p[j + 4] >> 4 | p[j] >> 6 << 4);
}

/* Block `block` of a row as it lies in a file. */
static void read_block(int type, const uint8_t *row, int64_t block, row_block *out) {
    const quant_form *form = &QUANT_FORMS[type];
    int j = form->super_scales ? (int)(block % SUPER) : 0;
    const uint8_t *p = row + (form->super_scales ? block / SUPER : block) * form->file_bytes;
    switch (type) {
    case Q8_0:
        out->d = half_at(p);
        memcpy(out->q, p + 2, BLOCK);
        break;
    case Q4_0:
        out->d = half_at(p);
        nibbles(p + 2, out->q);
        break;
    case Q4_1:
        out->d = half_at(p), out->m = half_at(p + 2);
        nibbles(p + 4, out->q);
        break;
    case Q5_0:
        out->d = half_at(p);
        nibbles(p + 6, out->q);
        fifth_bits(p + 2, out->q);
        break;
    case Q5_1:
        out->d = half_at(p), out->m = half_at(p + 2);
        nibbles(p + 8, out->q);
        fifth_bits(p + 4, out->q);
        break;
    case Q4_K:
    case Q5_K: {
        const uint8_t *low = p + (type == Q4_K ? 16 : 48) + j / 2 * 32;
        out->d = half_at(p), out->m = half_at(p + 2);
        scales_k(p + 4, j, out->sc);
        for (int i = 0; i < BLOCK; i++) out->q[i] = j & 1 ? low[i] >> 4 : low[i] & 15;
        if (type == Q5_K)
            for (int i = 0; i < BLOCK; i++) out->q[i] |= (uint8_t)((p[16 + i] >> j & 1) << 4);
        break;
    }
    case Q6_K: {
        const uint8_t *low = p + j / 4 * 64 + j % 2 * 32, *high = p + 128 + j / 4 * 32;
        int is_upper = j % 4 / 2, shift = j % 4 * 2;
        out->d = half_at(p + 208);
        memcpy(out->sc, p + 192 + 2 * j, 2);
        for (int i = 0; i < BLOCK; i++)
            out->q[i] = (uint8_t)((is_upper ? low[i] >> 4 : low[i] & 15) | (high[i] >> shift & 3) << 4);
        break;
    }
    }
}

static uint8_t *scales_of(const quant_form *form, uint8_t *panel, int64_t blocks, int64_t block) {
    return panel + quant_bytes(form, blocks) + block * form->block_scales;
}

static uint8_t *supers_of(const quant_form *form, uint8_t *panel, int64_t blocks, int64_t block) {
    return scales_of(form, panel, blocks, blocks) + block / SUPER * form->super_scales;
}

/* Into zeros. */
static void write_quants(const quant_form *form, uint8_t *panel, int64_t block, int r, const uint8_t *from) {
    uint8_t *quants = panel + block * BLOCK_ITEMS * form->bits / 8;
    if (form->bits == 8) {
        for (int i = 0; i < BLOCK; i += 4) memcpy(quants + i / 4 * 64 + r * 4, from + i, 4);
        return;
    }
    for (int i = 0; i < BLOCK / 2; i++) /* column i beside column 16 + i */
        quants[i / 4 * 64 + r * 4 + i % 4] = (uint8_t)((from[i] & 15) | from[BLOCK / 2 + i] << 4);
    for (int i = 0; form->bits > 4 && i < BLOCK; i++) {
        int item = i / 4 * 64 + r * 4 + i % 4, q = from[i];
        if (form->bits == 5) quants[256 + item % 64] |= (uint8_t)((q >> 4) << item / 64);
        if (form->bits == 6) quants[256 + item % 128] |= (uint8_t)((q >> 4) << item / 128 * 2);
    }
}

static void write_block(int type, uint8_t *panel, int64_t blocks, int64_t block, int r, const row_block *in) {
    const quant_form *form = &QUANT_FORMS[type];
    write_quants(form, panel, block, r, in->q);
    uint8_t *scales = scales_of(form, panel, blocks, block);
    if (form->super_scales) {
        scales[r] = in->sc[0], scales[PANEL + r] = in->sc[1];
        scales = supers_of(form, panel, blocks, block);
    }
    memcpy(scales + 2 * r, &in->d, 2);
    if (stores_mins(form)) memcpy(scales + 2 * PANEL + 2 * r, &in->m, 2);
}

typedef struct {
    int type;
    const uint8_t *const *rows; /* of a file; or NULL */
    const float *matrix;        /* [n, k]; or NULL */
    uint8_t *packed;
    uint8_t *is_bad; /* [n] */
    int64_t n, k;
} pack_job;

static int is_finite_half(uint16_t half) { return (half & 0x7c00) != 0x7c00; }

static uint16_t to_half(float f) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    uint32_t sign = bits >> 16 & 0x8000;
    float size = fabsf(f);
    if (!(size < 65520.0f)) return (uint16_t)(sign | 0x7c00);
    if (size < 0x1p-14f) return (uint16_t)(sign | (uint32_t)lrintf(size * 0x1p24f));
    memcpy(&bits, &size, 4);
    bits += 0xfff + (bits >> 13 & 1); /* to nearest, ties to even */
    return (uint16_t)(sign | ((bits - (112u << 23)) >> 13));
}

/* 32 floats, fewer where a row ends, to 8 bits around zero or to 4 bits between their least and their largest. */
static int round_block(int type, const float *x, int count, row_block *out) {
    float least = 0, most = 0;
    for (int i = 0; i < count; i++) {
        if (!isfinite(x[i])) return 0;
        least = x[i] < least ? x[i] : least, most = x[i] > most ? x[i] : most;
    }
    float width = type == Q8_0 ? (most > -least ? most : -least) / 127.0f : (most - least) / 15.0f;
    out->d = to_half(width), out->m = to_half(least);
    if (!is_finite_half(out->d) || !is_finite_half(out->m)) return 0;
    float d = from_half(out->d), base = type == Q8_0 ? 0.0f : from_half(out->m), inverse = d > 0 ? 1.0f / d : 0.0f;
    float low = type == Q8_0 ? -127.0f : 0.0f, high = type == Q8_0 ? 127.0f : 15.0f;
    for (int i = 0; i < count; i++) {
        float q = rintf((x[i] - base) * inverse);
        out->q[i] = (uint8_t)(int)(q < low ? low : q > high ? high : q);
    }
    return 1;
}

static void pack_chunk(void *arg, int panel) {
    const pack_job *job = arg;
    const quant_form *form = &QUANT_FORMS[job->type];
    int64_t blocks = quant_blocks(job->k), bytes = panel_bytes(form, blocks);
    uint8_t *out = job->packed + panel * bytes;
    memset(out, 0, (size_t)bytes);
    for (int r = 0; r < PANEL && (int64_t)panel * PANEL + r < job->n; r++) {
        int64_t row = (int64_t)panel * PANEL + r;
        for (int64_t b = 0; b < blocks; b++) {
            row_block block = {0};
            if (job->rows)
                read_block(job->type, job->rows[row], b, &block);
            else if (!round_block(job->type, job->matrix + row * job->k + b * BLOCK,
                                     min_int(BLOCK, (int)(job->k - b * BLOCK)), &block))
                job->is_bad[row] = 1;
            if (!is_finite_half(block.d) || !is_finite_half(block.m)) job->is_bad[row] = 1;
            write_block(job->type, out, blocks, b, r, &block);
        }
    }
}

/* The row that has a scale or a number that is not finite; -1: none. */
static int64_t pack(pack_job job) {
    uint8_t *is_bad = scratch(SCRATCH_ITEMS, (size_t)job.n + 1);
    memset(is_bad, 0, (size_t)job.n);
    job.is_bad = is_bad;
    pool_run(pack_chunk, &job, (int)((job.n + PANEL - 1) / PANEL));
    for (int64_t row = 0; row < job.n; row++)
        if (is_bad[row]) return row;
    return -1;
}

EXPORT int64_t chairlift_quant_bytes(int type, int64_t n, int64_t k) {
    return (n + PANEL - 1) / PANEL * panel_bytes(&QUANT_FORMS[type], quant_blocks(k));
}

/* rows [n]: where each row of blocks begins. */
EXPORT int64_t chairlift_quant_pack(int type, const uint8_t *const *rows, void *packed, int64_t n, int64_t k) {
    return pack((pack_job){type, rows, NULL, packed, NULL, n, k});
}

/* matrix [n, k] float32, to Q8_0 or Q4_1. */
EXPORT int64_t chairlift_quant_floats(int type, const float *matrix, void *packed, int64_t n, int64_t k) {
    return pack((pack_job){type, NULL, matrix, packed, NULL, n, k});
}

typedef struct {
    int type;
    const uint8_t *codes; /* [n, k]: of W4 half a byte each; of W8 signed */
    const float *scales;  /* [n, groups] */
    const int8_t *zeros;  /* [n, groups], or NULL */
    const int32_t *order;
    uint8_t *panels;
    int64_t n, k, group, panel_bytes;
    int scale_bytes;
} groups_job;

static void write_group(const groups_job *job, uint8_t *to, int r, int64_t at) {
    uint16_t half = to_half(job->scales[at]), zero = to_half(job->zeros ? job->zeros[at] : 0.0f);
    if (job->scale_bytes == 2)
        memcpy(to + 2 * r, &half, 2);
    else
        memcpy(to + 4 * r, job->scales + at, 4);
    if (job->zeros) memcpy(to + PANEL * job->scale_bytes + 2 * r, &zero, 2);
}

static void groups_chunk(void *arg, int panel) {
    const groups_job *job = arg;
    const quant_form *form = &QUANT_FORMS[job->type];
    int64_t blocks = quant_blocks(job->k), groups = (blocks + job->group - 1) / job->group;
    uint8_t *out = job->panels + panel * job->panel_bytes, *scales = out + quant_bytes(form, blocks);
    memset(out, 0, (size_t)job->panel_bytes);
    for (int r = 0; r < PANEL && (int64_t)panel * PANEL + r < job->n; r++) {
        int64_t row = (int64_t)panel * PANEL + r;
        const uint8_t *codes = job->codes + row * job->k;
        for (int64_t b = 0; b < blocks; b++) {
            uint8_t q[BLOCK] = {0};
            int count = min_int(BLOCK, (int)(job->k - b * BLOCK));
            if (!job->order) memcpy(q, codes + b * BLOCK, (size_t)count);
            for (int i = 0; job->order && i < count; i++) q[i] = codes[job->order[b * BLOCK + i]];
            write_quants(form, out, b, r, q);
        }
        for (int64_t g = 0; g < groups; g++)
            write_group(job, scales + g * group_bytes(job->scale_bytes, job->zeros != NULL), r, row * groups + g);
    }
}

/* group: in columns, a multiple of 32 unless it is k; scale_bytes: 2 (scales that are half floats) or 4. */
EXPORT int64_t chairlift_groups_bytes(int type, int64_t n, int64_t k, int64_t group, int scale_bytes, int has_zeros,
                                      int has_order) {
    quant_header header = {quant_blocks(group), scale_bytes, has_zeros, has_order, 0.0f};
    int64_t panels = (n + PANEL - 1) / PANEL;
    return header_bytes(k, has_order) + panels * grouped_panel_bytes(&QUANT_FORMS[type], quant_blocks(k), &header);
}

/* codes [n, k], scales and zeros [n, k / group]; zeros NULL: all are `zero`; order [k], in which columns are put before
 * they are grouped, or NULL. */
EXPORT void chairlift_groups_pack(int type, const uint8_t *codes, const float *scales, const int8_t *zeros,
                                  const int32_t *order, void *packed, int64_t n, int64_t k, int64_t group,
                                  int scale_bytes, int zero) {
    quant_header header = {quant_blocks(group), scale_bytes, zeros != NULL, order != NULL, (float)zero};
    memset(packed, 0, HEADER);
    memcpy(packed, &header, sizeof header);
    if (order) memcpy((uint8_t *)packed + HEADER, order, (size_t)k * sizeof *order);
    quant_matrix w = quant_matrix_at(type, packed, k);
    groups_job job = {type, codes, scales, zeros, order, (uint8_t *)w.panels, n, k, w.group, w.panel_bytes, scale_bytes};
    pool_run(groups_chunk, &job, (int)((n + PANEL - 1) / PANEL));
}

typedef struct {
    int type, is_bf16;
    quant_matrix w;
    const int64_t *ids;
    void *out;
    int64_t k;
} rows_job;

static float grouped_value_at(const quant_matrix *w, const uint8_t *scales, int64_t block, int r, int q) {
    const uint8_t *own = scales + block / w->group * group_bytes(w->scale_bytes, w->has_zeros);
    float d, zero = w->has_zeros ? from_half(half_at(own + PANEL * w->scale_bytes + 2 * r)) : w->zero;
    memcpy(&d, own + 4 * r, sizeof d);
    if (w->scale_bytes == 2) d = from_half(half_at(own + 2 * r));
    return d * ((float)q - zero);
}

static float value_at(int type, const quant_matrix *w, uint8_t *panel, int64_t blocks, int64_t column, int r) {
    const quant_form *form = &QUANT_FORMS[type];
    int64_t block = column / BLOCK;
    int i = (int)(column % BLOCK), item = i / 4 * 64 + r * 4 + i % 4;
    const uint8_t *quants = panel + block * BLOCK_ITEMS * form->bits / 8;
    const uint8_t *scales = scales_of(form, panel, blocks, block), *supers = supers_of(form, panel, blocks, block);
    int q = form->bits == 8 ? (int8_t)quants[item] : quants[item % 256] >> item / 256 * 4 & 15;
    if (form->bits == 5) q |= (quants[256 + item % 64] >> item / 64 & 1) << 4;
    if (form->bits == 6) q |= (quants[256 + item % 128] >> item / 128 * 2 & 3) << 4;
    if (has_groups(form)) return grouped_value_at(w, panel + quant_bytes(form, blocks), block, r, q);
    q -= form->offset;
    float d = from_half(half_at((form->super_scales ? supers : scales) + 2 * r));
    if (form->kind == HALVES) return d * (float)(int8_t)scales[i / 16 * PANEL + r] * (float)q;
    if (form->super_scales)
        return d * (float)scales[r] * (float)q - from_half(half_at(supers + 2 * PANEL + 2 * r)) * (float)scales[PANEL + r];
    return d * (float)q + (stores_mins(form) ? from_half(half_at(scales + 2 * PANEL + 2 * r)) : 0.0f);
}

static void rows_chunk(void *arg, int index) {
    const rows_job *job = arg;
    int64_t id = job->ids[index], blocks = quant_blocks(job->k);
    uint8_t *panel = (uint8_t *)job->w.panels + id / PANEL * job->w.panel_bytes;
    for (int64_t i = 0; i < job->k; i++) {
        float value = value_at(job->type, &job->w, panel, blocks, i, (int)(id % PANEL));
        int64_t at = index * job->k + (job->w.order ? job->w.order[i] : i);
        if (job->is_bf16)
            ((uint16_t *)job->out)[at] = to_bf16(value);
        else
            ((float *)job->out)[at] = value;
    }
}

/* Rows of the matrix that was packed: ids [count] -> out [count, k]. */
EXPORT void chairlift_quant_rows(int type, const void *packed, const int64_t *ids, void *out, int64_t count, int64_t k,
                                 int is_bf16) {
    rows_job job = {type, is_bf16, quant_matrix_at(type, packed, k), ids, out, k};
    pool_run(rows_chunk, &job, (int)count);
}
