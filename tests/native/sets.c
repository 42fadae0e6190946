/* Every instruction set of this processor against plain C, bit for bit, on random quantised matrices; and attention,
 * activations, caps, delta nets and products of floats and of bf16 against sums in double. Needs neither Python nor
 * torch, so it also runs on another architecture's processor that is only emulated: see `make cross`. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/chairlift/runner/native/entries.h"

enum { N = 50, K = 768, MAX_ROWS = 37 };

/* A type's number, the bytes and columns of a block, and where its half floats lie (-1: nowhere). */
static const struct {
    const char *name;
    int type, bytes, columns, half, second;
} TYPES[] = {
    {"Q4_0", 2, 18, 32, 0, -1}, {"Q4_1", 3, 20, 32, 0, 2},   {"Q5_0", 6, 22, 32, 0, -1},  {"Q5_1", 7, 24, 32, 0, 2},
    {"Q8_0", 8, 34, 32, 0, -1}, {"Q4_K", 12, 144, 256, 0, 2}, {"Q5_K", 13, 176, 256, 0, 2}, {"Q6_K", 14, 210, 256, 208, -1},
};

/* Masks as in kernels.h: each is tried where the processor has all of it. */
static const struct {
    const char *name;
    int mask;
} SETS[] = {
    {"avx2", 1}, {"avx512-vnni", 1 | 2 | 16}, {"amx", 1 | 2 | 4 | 8 | 16 | 32},
    {"neon", 64}, {"dotprod", 64 | 128}, {"i8mm", 64 | 128 | 256}, {"arm-bf16", 64 | 128 | 256 | 512},
};

static float uniform(void) { return (float)rand() / (float)RAND_MAX * 2 - 1; }

static float number_of(uint16_t bf16) {
    uint32_t bits = (uint32_t)bf16 << 16;
    float number;
    memcpy(&number, &bits, 4);
    return number;
}

static uint16_t bf16_of(float number) {
    uint32_t bits;
    memcpy(&bits, &number, 4);
    return (uint16_t)(bits >> 16);
}

static void *room(size_t bytes) { return aligned_alloc(64, (bytes + 63) / 64 * 64); }

static int num_failed = 0;

static void check(const char *what, const char *name, const char *set, int rows, int is_well) {
    if (is_well) return;
    printf("FAILED %s %s %s, %d rows\n", what, name, set, rows);
    num_failed++;
}

/* Every set's product with a packed matrix beside plain C's. */
static void try_products(int found, const char *name, int type, const void *packed) {
    static float x[MAX_ROWS * K], wanted[MAX_ROWS * N], got[MAX_ROWS * N];
    for (int i = 0; i < MAX_ROWS * K; i++) x[i] = uniform();
    for (size_t s = 0; s < sizeof SETS / sizeof *SETS; s++) {
        if ((SETS[s].mask & found) != SETS[s].mask) continue;
        for (int m = 1; m <= MAX_ROWS; m++) {
            chairlift_features(0);
            chairlift_quant_product(type, x, packed, NULL, wanted, m, N, K, N, 0, 0);
            chairlift_features(SETS[s].mask);
            memset(got, 0xff, sizeof got);
            chairlift_quant_product(type, x, packed, NULL, got, m, N, K, N, 0, 0);
            check("product", name, SETS[s].name, m, !memcmp(got, wanted, (size_t)m * N * sizeof(float)));
        }
    }
}

static void try_quantised(int found) {
    for (size_t t = 0; t < sizeof TYPES / sizeof *TYPES; t++) {
        int row_bytes = K / TYPES[t].columns * TYPES[t].bytes;
        uint8_t *file = room((size_t)N * row_bytes);
        const uint8_t *rows[N];
        for (int i = 0; i < N * row_bytes; i++) file[i] = (uint8_t)rand();
        for (int i = 0; i < N * row_bytes; i += TYPES[t].bytes) { /* small and finite */
            file[i + TYPES[t].half + 1] &= 0x9f;
            if (TYPES[t].second >= 0) file[i + TYPES[t].second + 1] &= 0x9f;
        }
        for (int r = 0; r < N; r++) rows[r] = file + r * row_bytes;
        void *packed = room((size_t)chairlift_quant_bytes(TYPES[t].type, N, K));
        check("pack", TYPES[t].name, "", 0, chairlift_quant_pack(TYPES[t].type, rows, packed, N, K) == -1);
        try_products(found, TYPES[t].name, TYPES[t].type, packed);
        free(packed);
        free(file);
    }
}

/* W4 and W8: half floats with zeros; floats, columns backwards. */
static void try_groups(int found) {
    enum { GROUP = 128 };
    static uint8_t codes[N * K];
    static float scales[N * K / GROUP];
    static int8_t zeros[N * K / GROUP];
    static int32_t order[K];
    for (int i = 0; i < K; i++) order[i] = K - 1 - i;
    for (int type = 100; type <= 101; type++)
        for (int scale_bytes = 2; scale_bytes <= 4; scale_bytes += 2) {
            for (int i = 0; i < N * K; i++) codes[i] = (uint8_t)(rand() & (type == 100 ? 15 : 255));
            for (int i = 0; i < N * K / GROUP; i++) scales[i] = 0.001f * (float)(rand() % 9), zeros[i] = (int8_t)(rand() % 17);
            int is_other = scale_bytes == 4; /* half floats with zeros; floats, one zero for all and an order */
            void *packed = room((size_t)chairlift_groups_bytes(type, N, K, GROUP, scale_bytes, !is_other, is_other));
            chairlift_groups_pack(type, codes, scales, is_other ? NULL : zeros, is_other ? order : NULL, packed, N, K,
                                  GROUP, scale_bytes, 0);
            try_products(found, type == 100 ? "W4" : "W8", type, packed);
            free(packed);
        }
}

/* Of a product [MAX_ROWS, N], against sums in double. */
static double worst_error(const float *x, const float *w, const float *got) {
    double worst = 0;
    for (int r = 0; r < MAX_ROWS; r++)
        for (int c = 0; c < N; c++) {
            double sum = 0;
            for (int i = 0; i < K; i++) sum += (double)x[r * K + i] * w[c * K + i];
            worst = fmax(worst, fabs(sum - got[r * N + c]));
        }
    return worst;
}

static void try_floats(int found) {
    static float x[MAX_ROWS * K], w[N * K], got[MAX_ROWS * N];
    for (int i = 0; i < MAX_ROWS * K; i++) x[i] = uniform();
    for (int i = 0; i < N * K; i++) w[i] = uniform();
    float *packed = room(sizeof(float) * 64 * K);
    for (size_t s = 0; s < sizeof SETS / sizeof *SETS; s++) {
        if ((SETS[s].mask & found) != SETS[s].mask) continue;
        chairlift_features(SETS[s].mask);
        chairlift_product_pack(w, packed, N, K, 0);
        chairlift_product(x, packed, NULL, got, MAX_ROWS, N, K, 0, 1);
        check("product", "float32", SETS[s].name, MAX_ROWS, worst_error(x, w, got) < 1e-3);
    }
    free(packed);
}

/* bf16: all rows at once, then each alone: the same bits, and near a sum in double. */
static void try_bf16(int found) {
    static uint16_t x[MAX_ROWS * K], w[N * K], back[K];
    static float wide_x[MAX_ROWS * K], wide_w[N * K], got[MAX_ROWS * N], alone[N];
    uint16_t *packed = room(sizeof(uint16_t) * 64 * K);
    for (int i = 0; i < MAX_ROWS * K; i++) wide_x[i] = number_of(x[i] = bf16_of(uniform()));
    for (int i = 0; i < N * K; i++) wide_w[i] = number_of(w[i] = bf16_of(uniform()));
    for (size_t s = 0; s < sizeof SETS / sizeof *SETS; s++) {
        if ((SETS[s].mask & found) != SETS[s].mask) continue;
        chairlift_features(SETS[s].mask);
        chairlift_product_pack(w, packed, N, K, 1);
        chairlift_product(x, packed, NULL, got, MAX_ROWS, N, K, 1, 1);
        for (int r = 0; r < MAX_ROWS; r++) {
            chairlift_product(x + r * K, packed, NULL, alone, 1, N, K, 1, 1);
            check("product", "bf16", SETS[s].name, r, !memcmp(alone, got + r * N, sizeof alone));
        }
        check("product", "bf16 values", SETS[s].name, MAX_ROWS, worst_error(wide_x, wide_w, got) < 1e-3);
        int64_t last = N - 1;
        chairlift_product_rows(packed, &last, back, 1, K, 1);
        check("rows", "bf16", SETS[s].name, 1, !memcmp(back, w + last * K, sizeof back));
    }
    free(packed);
}

enum { HEADS = 9, KV_HEADS = 3, HEAD = 64, TOKENS = 70, BLOCK = 16, BLOCKS = 5 };

/* The score of a query and a key, as attention is to see it. */
static double score_of(const float *query, const float *key, double cap) {
    double score = 0;
    for (int i = 0; i < HEAD; i++) score += (double)query[i] * key[i];
    score *= 0.125;
    return cap > 0 ? cap * tanh(score / cap) : score;
}

/* A whole prompt at once, then each of its tokens alone: the same bits, and near a sum in double. */
static void try_attention(int found, float cap, int window) {
    static float q[TOKENS * HEADS * HEAD], k[BLOCKS * KV_HEADS * BLOCK * HEAD], v[BLOCKS * KV_HEADS * BLOCK * HEAD];
    static float whole[TOKENS * HEADS * HEAD], alone[HEADS * HEAD];
    const int32_t tables[BLOCKS] = {3, 0, 4, 1, 2};
    for (int i = 0; i < TOKENS * HEADS * HEAD; i++) q[i] = 3 * uniform();
    for (int i = 0; i < BLOCKS * KV_HEADS * BLOCK * HEAD; i++) k[i] = uniform(), v[i] = uniform();
    for (size_t s = 0; s < sizeof SETS / sizeof *SETS; s++) {
        if ((SETS[s].mask & found) != SETS[s].mask) continue;
        chairlift_features(SETS[s].mask);
        int32_t starts[2] = {0, TOKENS}, contexts[1] = {TOKENS};
        chairlift_attention(q, k, v, whole, NULL, starts, contexts, tables, BLOCKS, 1, HEADS, KV_HEADS, HEAD, BLOCK,
                            0.125f, cap, window, 0, 0);
        for (int t = 0; t < TOKENS; t++) {
            const float *own = q + t * HEADS * HEAD;
            starts[1] = 1, contexts[0] = t + 1;
            chairlift_attention(own, k, v, alone, NULL, starts, contexts, tables, BLOCKS, 1, HEADS, KV_HEADS, HEAD,
                                BLOCK, 0.125f, cap, window, 0, 0);
            check("attention", "float32", SETS[s].name, t, !memcmp(alone, whole + t * HEADS * HEAD, sizeof alone));
            double weights[TOKENS], sum = 0, worst = 0;
            int first = window && t >= window ? t - window + 1 : 0;
            for (int key = first; key <= t; key++) {
                const float *row = k + (tables[key / BLOCK] * KV_HEADS * BLOCK + key % BLOCK) * HEAD;
                sum += weights[key] = exp(score_of(own, row, cap));
            }
            for (int i = 0; i < HEAD; i++) {
                double expected = 0;
                for (int key = first; key <= t; key++)
                    expected += weights[key] / sum * v[(tables[key / BLOCK] * KV_HEADS * BLOCK + key % BLOCK) * HEAD + i];
                worst = fmax(worst, fabs(expected - alone[i]));
            }
            check("attention", cap > 0 ? "capped values" : "values", SETS[s].name, t, worst < 1e-5);
        }
    }
}

enum { INNER = 333 };

static double activated(double gate, int is_gelu) {
    if (!is_gelu) return gate / (1 + exp(-gate));
    return 0.5 * gate * (1 + tanh(sqrt(2 / acos(-1)) * (gate + 0.044715 * gate * gate * gate)));
}

/* Both activations, of floats and of bf16: all rows at once, then each alone. */
static void try_activations(int found) {
    static float x[MAX_ROWS * 2 * INNER], got[MAX_ROWS * INNER], alone[INNER];
    static uint16_t narrow[MAX_ROWS * 2 * INNER], narrow_got[MAX_ROWS * INNER], narrow_alone[INNER];
    for (int i = 0; i < MAX_ROWS * 2 * INNER; i++) x[i] = number_of(narrow[i] = bf16_of(9 * uniform()));
    for (size_t s = 0; s < sizeof SETS / sizeof *SETS; s++) {
        if ((SETS[s].mask & found) != SETS[s].mask) continue;
        chairlift_features(SETS[s].mask);
        for (int kind = 0; kind < 2; kind++) {
            const char *name = kind ? "gelu_tanh" : "silu";
            chairlift_activate(x, got, MAX_ROWS, INNER, kind, 1, 0);
            chairlift_activate(narrow, narrow_got, MAX_ROWS, INNER, kind, 1, 1);
            for (int r = 0; r < MAX_ROWS; r++) {
                const float *gate = x + 2 * r * INNER, *up = gate + INNER;
                chairlift_activate(gate, alone, 1, INNER, kind, 1, 0);
                check("activation", name, SETS[s].name, r, !memcmp(alone, got + r * INNER, sizeof alone));
                chairlift_activate(narrow + 2 * r * INNER, narrow_alone, 1, INNER, kind, 1, 1);
                int is_same = !memcmp(narrow_alone, narrow_got + r * INNER, sizeof narrow_alone);
                check("activation of bf16", name, SETS[s].name, r, is_same);
                for (int i = 0; i < INNER; i++) {
                    double wanted = activated(gate[i], kind) * up[i], size = 1 + fabs(wanted);
                    check("activation", name, SETS[s].name, r, fabs(wanted - alone[i]) < 1e-6 * size);
                    double error = fabs(wanted - number_of(narrow_alone[i]));
                    check("activation of bf16", name, SETS[s].name, r, error < 5e-3 * size);
                }
            }
        }
    }
}

/* Logits: all rows at once, then each alone; what is no number stays so. */
static void try_cap(int found) {
    static float x[MAX_ROWS * N], got[MAX_ROWS * N], alone[N];
    for (int i = 0; i < MAX_ROWS * N; i++) x[i] = 90 * uniform();
    for (size_t s = 0; s < sizeof SETS / sizeof *SETS; s++) {
        if ((SETS[s].mask & found) != SETS[s].mask) continue;
        chairlift_features(SETS[s].mask);
        memcpy(got, x, sizeof x);
        chairlift_cap(got, MAX_ROWS, N, 30);
        for (int r = 0; r < MAX_ROWS; r++) {
            memcpy(alone, x + r * N, sizeof alone);
            chairlift_cap(alone, 1, N, 30);
            check("cap", "bits", SETS[s].name, r, !memcmp(alone, got + r * N, sizeof alone));
            for (int i = 0; i < N; i++)
                check("cap", "values", SETS[s].name, r, fabs(30 * tanh(x[r * N + i] / 30.0) - alone[i]) < 2e-5);
        }
        float odd[4] = {NAN, -NAN, INFINITY, -INFINITY};
        chairlift_cap(odd, 1, 4, 30);
        check("cap", "no numbers", SETS[s].name, 1, isnan(odd[0]) && isnan(odd[1]) && odd[2] == 30 && odd[3] == -30);
    }
}

enum { DN_KEY_HEADS = 2, DN_HEADS = 4, DN_KEY = 32, DN_VALUE = 40, DN_TAPS = 4, DN_TILE = 16, DN_TOKENS = 70 };
enum { DN_QUERIES = DN_KEY_HEADS * DN_KEY, DN_OUTPUTS = DN_HEADS * DN_VALUE, DN_CHANNELS = 2 * DN_QUERIES + DN_OUTPUTS };
enum { DN_WIDTH = DN_CHANNELS + DN_OUTPUTS, DN_ROW_PAGES = 13, DN_PAGES = 30, DN_FIRST = 1040, DN_SECOND = 528 };

static double silu(double x) { return x / (1 + exp(-x)); }

/* Of a channel from its four taps on. */
static double convolved(const float *inputs, const float *taps, int t, int channel) {
    double sum = 0;
    for (int tap = 0; tap < DN_TAPS; tap++) {
        int from = t + tap - DN_TAPS + 1;
        if (from >= 0) sum += (double)taps[tap * DN_CHANNELS + channel] * inputs[from * DN_WIDTH + channel];
    }
    return silu(sum);
}

/* A head of all tokens from the definition, a token after the other: the worst distance of what was found. */
static double delta_net_error(const float *inputs, const float *rates, const float *taps, double decay, double bias,
                              int head, const float *found) {
    double state[DN_KEY][DN_VALUE] = {{0}}, worst = 0;
    for (int t = 0; t < DN_TOKENS; t++) {
        double q[DN_KEY], k[DN_KEY], out[DN_VALUE], q_size = 1e-6, k_size = 1e-6, mean = 1e-6;
        int shared = head / (DN_HEADS / DN_KEY_HEADS) * DN_KEY;
        for (int i = 0; i < DN_KEY; i++) {
            q[i] = convolved(inputs, taps, t, shared + i), q_size += q[i] * q[i];
            k[i] = convolved(inputs, taps, t, DN_QUERIES + shared + i), k_size += k[i] * k[i];
        }
        double beta = 1 / (1 + exp(-rates[t * 2 * DN_HEADS + head]));
        double fade = exp(decay * log1p(exp(rates[t * 2 * DN_HEADS + DN_HEADS + head] + bias)));
        for (int c = 0; c < DN_VALUE; c++) {
            double u = convolved(inputs, taps, t, 2 * DN_QUERIES + head * DN_VALUE + c);
            out[c] = 0;
            for (int i = 0; i < DN_KEY; i++) state[i][c] *= fade, u -= k[i] / sqrt(k_size) * state[i][c];
            for (int i = 0; i < DN_KEY; i++) {
                state[i][c] += k[i] / sqrt(k_size) * beta * u;
                out[c] += q[i] / sqrt(q_size * DN_KEY) * state[i][c];
            }
            mean += out[c] * out[c] / DN_VALUE;
        }
        for (int c = 0; c < DN_VALUE; c++) {
            double gate = silu(inputs[t * DN_WIDTH + DN_CHANNELS + head * DN_VALUE + c]);
            worst = fmax(worst, fabs(out[c] / sqrt(mean) * gate - found[t * DN_OUTPUTS + head * DN_VALUE + c]));
        }
    }
    return worst;
}

/* A prompt at once, then its tokens alone, over pages in which rows of states lie in two memories. */
static void try_delta_net(int found) {
    static float inputs[DN_TOKENS * DN_WIDTH], rates[DN_TOKENS * 2 * DN_HEADS], taps[DN_TAPS * DN_CHANNELS];
    static float whole[DN_TOKENS * DN_OUTPUTS], alone[DN_OUTPUTS], gain[DN_VALUE], decay[DN_HEADS], bias[DN_HEADS];
    static char first[2 * DN_PAGES * DN_FIRST], second[2 * DN_PAGES * DN_SECOND];
    int64_t tables[2 * DN_PAGES];
    for (int i = 0; i < DN_TOKENS * DN_WIDTH; i++) inputs[i] = uniform();
    for (int i = 0; i < DN_TOKENS * 2 * DN_HEADS; i++) rates[i] = uniform();
    for (int i = 0; i < DN_TAPS * DN_CHANNELS; i++) taps[i] = uniform();
    for (int i = 0; i < DN_VALUE; i++) gain[i] = 1;
    for (int h = 0; h < DN_HEADS; h++) decay[h] = -0.05f * (float)(h + 1), bias[h] = uniform();
    for (int i = 0; i < 2 * DN_PAGES; i++) tables[i] = i * 7 % (2 * DN_PAGES);
    const int64_t net[] = {(intptr_t)taps, (intptr_t)decay, (intptr_t)bias, (intptr_t)gain, DN_KEY_HEADS, DN_HEADS, DN_KEY,
                           DN_VALUE, DN_TAPS, DN_TILE, DN_PAGES, DN_ROW_PAGES, 2, (intptr_t)first, DN_FIRST,
                           (intptr_t)second, DN_SECOND};
    for (size_t s = 0; s < sizeof SETS / sizeof *SETS; s++) {
        if ((SETS[s].mask & found) != SETS[s].mask) continue;
        chairlift_features(SETS[s].mask);
        int32_t starts[2] = {0, DN_TOKENS}, contexts[1] = {DN_TOKENS};
        chairlift_delta_net(net, inputs, rates, whole, starts, contexts, tables, NULL, 0, 1, 1e-6f, 0);
        for (int h = 0; h < DN_HEADS; h++) {
            double worst = delta_net_error(inputs, rates, taps, decay[h], bias[h], h, whole);
            check("delta net", "values", SETS[s].name, h, worst < 1e-3);
        }
        memset(first, 0xff, sizeof first), memset(second, 0xff, sizeof second);
        for (int t = 0; t < DN_TOKENS; t++) {
            starts[1] = 1, contexts[0] = t + 1;
            chairlift_delta_net(net, inputs + t * DN_WIDTH, rates + t * 2 * DN_HEADS, alone, starts, contexts, tables, NULL,
                                0, 1, 1e-6f, 0);
            check("delta net", "bits", SETS[s].name, t, !memcmp(alone, whole + t * DN_OUTPUTS, sizeof alone));
        }
    }
}

int main(void) {
    int found = chairlift_features(-1), num_sets = 0;
    chairlift_set_threads(2, 14000);
    printf("instruction sets:");
    for (size_t s = 0; s < sizeof SETS / sizeof *SETS; s++)
        if ((SETS[s].mask & found) == SETS[s].mask) printf(" %s", SETS[s].name), num_sets++;
    printf("\n");
    try_quantised(found);
    try_groups(found);
    try_floats(found);
    try_bf16(found);
    try_attention(found, 0, 0);
    try_attention(found, 1.5f, 0);
    try_attention(found, 1.5f, 20);
    try_activations(found);
    try_cap(found);
    try_delta_net(found);
    printf("%d sets, %d failed\n", num_sets, num_failed);
    return num_failed || !num_sets;
}
