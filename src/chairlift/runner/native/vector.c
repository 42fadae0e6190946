/* Norms, rotation, activation, attention and argmax: the entry points, and the choice of instruction set. */
#include "kernels.h"

#include <math.h>
#include <string.h>

enum {
    CHUNK_ITEMS = 8192, /* elements that are worth another thread */
    ATTEND_KEYS = 32,   /* keys that are read at once */
};

enum { SILU, GELU_TANH, CLAMPED, GELU_ERF }; /* as in native/ops.py */

typedef struct {
    const void *x;
    const float *gain, *bias;
    void *residual, *out; /* residual may be NULL, and with one the gain; the bias always */
    int64_t n, stride;    /* stride: from a row to the next */
    int rows, rows_per_chunk, is_centred;
    float eps, factor;
} norm_job;

typedef struct {
    const void *x;
    void *out;
    int64_t n;
    int rows, rows_per_chunk;
} activate_job;

typedef struct {
    const void *qkv;
    const float *q_gain, *k_gain, *rotation, *factors;
    const int64_t *positions, *slots;
    void *q, *keys, *values;
    int rows, rows_per_chunk, heads, gates, kv_heads, head_dim, block_size, kv_is_int8; /* gates: of heads, not read */
    float eps;
} rotate_job;

typedef struct {
    void *x;
    const void *gates;
    int64_t n, stride; /* stride: from a row's gates to the next's */
    int rows, rows_per_chunk, is_one; /* is_one: a gate for the whole row */
} gate_job;

#define KERNELS "rows.inc"
#include "sets.inc"

/* Rows per chunk that give each thread enough to do. */
static int share(int rows, int64_t row_items) {
    int enough = (int)((CHUNK_ITEMS + row_items - 1) / row_items);
    return max_int(max_int(1, enough), ceil_div(rows, pool_threads() * 4));
}

EXPORT void chairlift_norm(const void *x, void *residual, const float *gain, const float *bias, void *out, int rows,
                           int64_t n, int64_t stride, float eps, float factor, int is_centred, int is_bf16) {
    norm_job job = {x, gain, bias, residual, out, n, stride, rows, share(rows, n), is_centred, eps, factor};
    pool_run(CHOOSE(norm_chunk, is_bf16), &job, ceil_div(rows, job.rows_per_chunk));
}

EXPORT void chairlift_activate(const void *x, void *out, int rows, int64_t n, int activation, int has_gate,
                               int is_bf16) {
    activate_job job = {x, out, n, rows, share(rows, (1 + has_gate) * n)};
    chunk_fn gated = CHOOSE(silu_chunk, is_bf16), alone = CHOOSE(silu_alone, is_bf16);
    if (activation == GELU_TANH) gated = CHOOSE(gelu_chunk, is_bf16), alone = CHOOSE(gelu_alone, is_bf16);
    if (activation == GELU_ERF) gated = CHOOSE(erf_gelu_chunk, is_bf16), alone = CHOOSE(erf_gelu_alone, is_bf16);
    if (activation == CLAMPED) gated = CHOOSE(clamped_chunk, is_bf16);
    chunk_fn run = has_gate ? gated : alone;
    pool_run(run, &job, ceil_div(rows, job.rows_per_chunk));
}

typedef struct {
    float *x;
    int64_t n;
    float cap;
} cap_job;

#define CAP(set, attribute)                                    \
    attribute static void cap_##set(void *arg, int r) {        \
        const cap_job *job = arg;                              \
        cap_all_##set##_float(job->x + r * job->n, job->n, job->cap); \
    }
#if defined(__x86_64__)
CAP(avx512, AVX512)
CAP(avx2, AVX2)
CAP(baseline, BASELINE)
#else
CAP(neon, NEON)
#endif

EXPORT void chairlift_cap(float *x, int rows, int64_t n, float cap) {
    cap_job job = {x, n, cap};
    pool_run(CHOOSE_SET(cap), &job, rows);
}

EXPORT void chairlift_rotate(const void *qkv, const float *rotation, const int64_t *positions, const int64_t *slots,
                             void *q, void *keys, void *values, const float *q_gain, const float *k_gain,
                             const float *factors, int rows, int heads, int gates, int kv_heads, int head_dim,
                             int block_size, float eps, int is_bf16, int kv_is_int8) {
    rotate_job job = {qkv, q_gain, k_gain, rotation, factors, positions, slots, q, keys, values, rows, 0, heads, gates,
                      kv_heads, head_dim, block_size, kv_is_int8, eps};
    job.rows_per_chunk = share(rows, (int64_t)(heads + 2 * kv_heads) * head_dim);
    pool_run(CHOOSE(rotate_chunk, is_bf16), &job, ceil_div(rows, job.rows_per_chunk));
}

EXPORT void chairlift_gate(void *x, const void *gates, int rows, int64_t n, int64_t stride, int is_one, int is_bf16) {
    gate_job job = {x, gates, n, stride, rows, share(rows, n), is_one};
    pool_run(CHOOSE(gate_chunk, is_bf16), &job, ceil_div(rows, job.rows_per_chunk));
}

typedef void (*attend_fn)(const attention_job *, const attention_item *);
typedef struct {
    attention_job job;
    attend_fn attend;
} attention_run;

/* Item `index` of chunk r or a later one; r moves on to its chunk. */
static attention_item item_at(const attention_job *job, int index, int *chunk) {
    while (index >= job->item_starts[*chunk + 1]) ++*chunk;
    int r = *chunk, group = job->heads / job->kv_heads;
    int tokens = job->starts[r + 1] - job->starts[r];
    int tiles = ceil_div(tokens, job->tile_tokens) * job->head_tiles;
    int at = index - job->item_starts[r], kv_head = at / tiles, tile = at % tiles;
    int token = tile / job->head_tiles * job->tile_tokens, head = tile % job->head_tiles * job->tile_heads;
    return (attention_item){
        .kv_head = kv_head,
        .first_head = kv_head * group + head,
        .num_heads = min_int(job->tile_heads, group - head),
        .first_row = job->starts[r] + token,
        .num_tokens = min_int(job->tile_tokens, tokens - token),
        .first_position = job->contexts[r] - tokens + token,
        .context = job->contexts[r],
        .table = job->tables + r * job->table_width,
    };
}

static void attention_chunk(void *arg, int index) {
    const attention_run *run = arg;
    const attention_job *job = &run->job;
    int first = index * job->items_per_run, last = min_int(first + job->items_per_run, job->num_items), r = 0;
    for (int low = 0, high = job->num_chunks; low < high;) { /* the last chunk that starts at or before `first` */
        int middle = (low + high) / 2;
        if (job->item_starts[middle] <= first)
            r = middle, low = middle + 1;
        else
            high = middle;
    }
    for (int i = first; i < last; i++) {
        attention_item item = item_at(job, i, &r);
        run->attend(job, &item);
    }
}

/* Shares the items of a job whose shapes are set among the threads. */
static void attend_all(attention_run *run) {
    attention_job *job = &run->job;
    int group = job->heads / job->kv_heads;
    int *item_starts = scratch(SCRATCH_ITEMS, (size_t)(job->num_chunks + 1) * sizeof(int));
    job->item_starts = item_starts;
    job->tile_heads = min_int(group, MAX_LANES);
    job->tile_tokens = max_int(1, MAX_LANES / group);
    job->head_tiles = ceil_div(group, MAX_LANES);
    item_starts[0] = 0;
    for (int r = 0; r < job->num_chunks; r++) {
        int tiles = ceil_div(job->starts[r + 1] - job->starts[r], job->tile_tokens) * job->head_tiles;
        item_starts[r + 1] = item_starts[r] + tiles * job->kv_heads;
    }
    job->num_items = item_starts[job->num_chunks];
    job->items_per_run = max_int(1, job->num_items / (pool_threads() * 16));
    pool_run(attention_chunk, run, ceil_div(job->num_items, job->items_per_run));
}

EXPORT void chairlift_attention(const void *q, const void *keys, const void *values, void *out, const float *sinks,
                                const int32_t *starts, const int32_t *contexts, const int32_t *tables,
                                int64_t table_width, int num_chunks, int heads, int kv_heads, int head_dim,
                                int block_size, float scale, float cap, int window, int is_bf16, int kv_is_int8) {
    attention_run run = {{.q = q, .keys = keys, .values = values, .out = out, .sinks = sinks, .starts = starts,
                          .contexts = contexts, .tables = tables, .table_width = table_width,
                          .num_chunks = num_chunks, .heads = heads, .kv_heads = kv_heads, .head_dim = head_dim,
                          .block_size = block_size, .window = window,
                          .kv_is_int8 = kv_is_int8, .scale = scale, .cap = cap},
                         CHOOSE(attend, is_bf16)};
#if defined(__x86_64__)
    int has_tiles = is_bf16 && !kv_is_int8 && !sinks && cpu_features() & HAS_AMX;
    if (has_tiles && attend_amx_fits(head_dim)) run.attend = attend_amx;
#endif
    attend_all(&run);
}

/* As chairlift_attention, of whole inputs, in which a query sees the keys behind it too. */
EXPORT void chairlift_encoder_attention(const void *q, const void *keys, const void *values, void *out,
                                        const int32_t *starts, const int32_t *contexts, const int32_t *tables,
                                        int64_t table_width, int num_chunks, int heads, int head_dim, int block_size,
                                        float scale, int reach, int is_bf16) {
    attention_run run = {{.q = q, .keys = keys, .values = values, .out = out, .starts = starts, .contexts = contexts,
                          .tables = tables, .table_width = table_width, .num_chunks = num_chunks, .heads = heads,
                          .kv_heads = heads, .head_dim = head_dim, .block_size = block_size, .scale = scale,
                          .sees_all = 1, .reach = reach},
                         CHOOSE(attend, is_bf16)};
    attend_all(&run);
}

typedef struct {
    const float *x;
    int64_t *out, n;
} argmax_job;

/* The largest of each of 64 lanes and where it was first seen; then the largest of those, the first on a tie. */
INLINE int64_t argmax_row(const float *x, int64_t n) {
    enum { LANES = 64 };
    float best[LANES];
    int32_t where[LANES], is_nan = 0;
    for (int l = 0; l < LANES; l++) best[l] = -INFINITY, where[l] = INT32_MAX;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float v = x[i + l];
            is_nan |= v != v;
            int is_better = v > best[l] || (v == -INFINITY && where[l] == INT32_MAX);
            where[l] = is_better ? (int32_t)i + l : where[l];
            best[l] = is_better ? v : best[l];
        }
    for (int l = 0; i + l < n; l++) {
        float v = x[i + l];
        is_nan |= v != v;
        int is_better = v > best[l] || (v == -INFINITY && where[l] == INT32_MAX);
        where[l] = is_better ? (int32_t)(i + l) : where[l];
        best[l] = is_better ? v : best[l];
    }
    if (is_nan) return -1;
    int first = 0;
    for (int l = 1; l < LANES; l++)
        if (best[l] > best[first] || (best[l] == best[first] && where[l] < where[first])) first = l;
    return where[first];
}

#define ARGMAX(set, attribute)                                     \
    attribute static void argmax_##set(void *arg, int r) {         \
        const argmax_job *job = arg;                               \
        job->out[r] = argmax_row(job->x + r * job->n, job->n);     \
    }
#if defined(__x86_64__)
ARGMAX(avx512, AVX512)
ARGMAX(avx2, AVX2)
ARGMAX(baseline, BASELINE)
#else
ARGMAX(neon, NEON)
#endif

EXPORT void chairlift_argmax(const float *x, int64_t *out, int rows, int64_t n) {
    argmax_job job = {x, out, n};
    pool_run(CHOOSE_SET(argmax), &job, rows);
}

