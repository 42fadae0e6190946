/* Draws a token from each row of logits: temperature, top-k, top-p, min-p, then the inverse of the running sums.
 *
 * The steps of chairlift/runner/sampling/sampler.py, in the same order and with the same noise, so both draw the same
 * token but for rounding at an edge.
 */
#include "draw.h"

#include <math.h>

enum {
    LANES = 32,
    BLOCK = 256,        /* weights that share a running sum */
    GROUPS = 1024,      /* value i is in group i % GROUPS */
    MAX_WANTED = 768,   /* most likely tokens that groups can find */
    MAX_FOUND = 4096,   /* tokens that are sorted */
    MAX_ATTEMPTS = 8,   /* as in sampler.py */
};

/* The first fields of a row of chairlift/runner/sampling/table.py. */
typedef struct {
    int64_t row, position;
    uint64_t stream;
    double temperature;
    int64_t top_k;
    double top_p, min_p;
} table_row;

typedef struct {
    const float *x; /* [rows, n] */
    int64_t n;
    const char *table;
    int64_t row_bytes;
    int64_t *out;
} draw_job;

/* chairlift/runner/sampling/noise.py, number for number. */
static uint64_t mixed(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

double uniform(const sample *asked, int attempt) {
    return (double)(mixed(asked->noise ^ (uint64_t)attempt) >> 12) * 0x1p-52;
}

/* In a fixed order; leaves the lanes changed. */
INLINE double sum_lanes(float *lanes) {
    for (int l = 0; l < 16; l++) lanes[l] += lanes[l + 16];
    for (int l = 0; l < 8; l++) lanes[l] += lanes[l + 8];
    for (int l = 0; l < 4; l++) lanes[l] += lanes[l + 4];
    return (double)(lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

INLINE float largest(const float *x, int64_t n) {
    float best[LANES];
    for (int l = 0; l < LANES; l++) best[l] = -INFINITY;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int64_t l = 0; l < LANES; l++) best[l] = x[i + l] > best[l] ? x[i + l] : best[l];
    for (; i < n; i++) best[0] = x[i] > best[0] ? x[i] : best[0];
    for (int l = 1; l < LANES; l++) best[0] = best[l] > best[0] ? best[l] : best[0];
    return best[0];
}

INLINE void exponentials(const float *restrict x, float *restrict out, int64_t n, float top, float temperature,
                         const int has_fma) {
    if (temperature == 1.0f) /* half the time goes into the division */
        for (int64_t i = 0; i < n; i++) out[i] = exponential(x[i] - top, has_fma);
    else
        for (int64_t i = 0; i < n; i++) out[i] = exponential((x[i] - top) / temperature, has_fma);
}

INLINE double sum_of(const float *restrict weights, int64_t n) {
    float lanes[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int64_t l = 0; l < LANES; l++) lanes[l] += weights[i + l];
    for (; i < n; i++) lanes[0] += weights[i];
    return sum_lanes(lanes);
}

INLINE void weigh(weighed *row, float temperature, const int has_fma) {
    float top = largest(row->x, row->n);
    row->whole = 0;
    for (int64_t first = 0; first < row->n; first += BLOCK) {
        int64_t count = row->n - first < BLOCK ? row->n - first : BLOCK;
        exponentials(row->x + first, row->weights + first, count, top, temperature, has_fma);
        row->sums[first / BLOCK] = sum_of(row->weights + first, count);
        row->whole += row->sums[first / BLOCK];
    }
}

double mark_of(double noise, double whole) {
    double mark = noise * whole;
    return mark < whole ? mark : nextafter(whole, 0.0);
}

/* The first token, by id, at which the running sum of weights exceeds the mark. */
static int64_t locate(const weighed *row, double mark) {
    double before = 0;
    int64_t first = 0;
    for (; first + BLOCK < row->n && !(before + row->sums[first / BLOCK] > mark); first += BLOCK)
        before += row->sums[first / BLOCK];
    int64_t last = first + BLOCK < row->n ? first + BLOCK : row->n, found = first;
    for (int64_t i = first; i < last; i++) {
        if (row->weights[i] == 0) continue;
        found = i; /* the last one, should the block's sum have been rounded up */
        before += row->weights[i];
        if (before > mark) break;
    }
    return found;
}

/* The weight of the tokens whose value is at least `least`. */
INLINE double weight_from(const float *restrict x, const float *restrict weights, int64_t n, float least) {
    double sum = 0;
    for (int64_t first = 0; first < n; first += BLOCK) {
        int64_t last = n - first < BLOCK ? n : first + BLOCK, i = first;
        float lanes[LANES] = {0};
        for (; i + LANES <= last; i += LANES)
            for (int64_t l = 0; l < LANES; l++) lanes[l] += x[i + l] >= least ? weights[i + l] : 0.0f;
        for (; i < last; i++) lanes[0] += x[i] >= least ? weights[i] : 0.0f;
        sum += sum_lanes(lanes);
    }
    return sum;
}

/* The weight of all that go before token `at` in descending order, equal ones by id. */
INLINE double weight_ahead(const weighed *row, int64_t at) {
    float value = row->x[at];
    return weight_from(row->x, row->weights, at, value) +
           weight_from(row->x + at, row->weights + at, row->n - at, nextafterf(value, INFINITY));
}

/* The value with `rank` - 1 larger ones (0 < rank <= n); reorders the values. */
static float select_largest(float *values, int n, int rank) {
    int low = 0, high = n - 1, wanted = rank - 1;
    while (low < high) {
        float pivot = values[(low + high) / 2];
        int i = low, j = high;
        while (i <= j) {
            while (values[i] > pivot) i++;
            while (values[j] < pivot) j--;
            if (i <= j) {
                float held = values[i];
                values[i++] = values[j], values[j--] = held;
            }
        }
        if (wanted <= j)
            high = j;
        else if (wanted >= i)
            low = i;
        else
            break;
    }
    return values[wanted];
}

/* A value that at least `wanted` others reach, and not many more: that many groups hold one. */
INLINE float threshold(const float *x, int64_t n, int wanted) {
    if (n <= 2 * GROUPS) return -INFINITY;
    float best[GROUPS];
    memcpy(best, x, sizeof best);
    int64_t first = GROUPS;
    for (; first + GROUPS <= n; first += GROUPS)
        for (int g = 0; g < GROUPS; g++) best[g] = x[first + g] > best[g] ? x[first + g] : best[g];
    for (int g = 0; first + g < n; g++) best[g] = x[first + g] > best[g] ? x[first + g] : best[g];
    return select_largest(best, GROUPS, wanted);
}

/* All tokens that reach `least`, by id; how many, or -1 if they are too many. */
INLINE int gather(const float *x, int64_t n, float least, candidate *found) {
    int count = 0;
    for (int64_t first = 0; first < n; first += LANES) {
        int size = n - first < LANES ? (int)(n - first) : LANES, is_any = 0;
        if (size == LANES)
            for (int l = 0; l < LANES; l++) is_any |= x[first + l] >= least;
        if (size == LANES && !is_any) continue;
        if (count + LANES > MAX_FOUND) return -1;
        for (int l = 0; l < size; l++)
            if (x[first + l] >= least) found[count++] = (candidate){descending(x[first + l]), (int32_t)(first + l)};
    }
    return count;
}

/* By key; equal keys stay in order. The result is in `items`. */
void sort_by_key(candidate *items, candidate *spare, int count) {
    for (int shift = 0; shift < 32; shift += 8) {
        int starts[257] = {0};
        for (int i = 0; i < count; i++) starts[(items[i].key >> shift & 255) + 1]++;
        for (int b = 0; b < 256; b++) starts[b + 1] += starts[b];
        for (int i = 0; i < count; i++) spare[starts[items[i].key >> shift & 255]++] = items[i];
        candidate *held = items;
        items = spare, spare = held;
    } /* an even number of passes: back where they were */
}

/* For filters that keep a large part of the vocabulary: draws from all of it until a token is one they keep. */
INLINE int64_t draw_wide(const sample *asked, const weighed *row) {
    double top_p = asked->top_p;
    for (int attempt = 1; attempt <= MAX_ATTEMPTS; attempt++) {
        int64_t token = locate(row, mark_of(uniform(asked, attempt), row->whole));
        if (row->weights[token] < asked->min_p) continue;
        if (top_p >= 1.0 || weight_ahead(row, token) < top_p * row->whole) return token;
    }
    return -1;
}

/* How many of the sorted candidates the filters keep; `is_all` tells that no token beyond them would be kept. */
static int num_kept(const sample *asked, const weighed *row, const candidate *found, int count, int *is_all) {
    int64_t top_k = asked->top_k && asked->top_k < row->n ? asked->top_k : 0;
    double top_p = asked->top_p, part = row->whole, before = 0;
    int limit = top_k && top_k < count ? (int)top_k : count, kept = 0;
    if (top_k) {
        part = 0;
        for (int i = 0; i < limit; i++) part += row->weights[found[i].id];
    }
    for (; kept < limit; kept++) {
        float weight = row->weights[found[kept].id];
        if (kept && ((top_p < 1.0 && !(before < top_p * part)) || weight < asked->min_p)) break;
        before += weight;
    }
    *is_all = kept < limit || kept == top_k || count == row->n;
    return kept;
}

/* Beyond the candidates. Torch draws from all tokens there, unless a filter is top-k: the same here, by the same noise. */
INLINE int64_t draw_far(const sample *asked, const weighed *row) {
    int is_wide;
    int64_t token = draw_in_order(asked, row, &is_wide), wide = is_wide && !asked->top_k ? draw_wide(asked, row) : -1;
    return wide < 0 ? token : wide;
}

INLINE int64_t draw_filtered(const sample *asked, const weighed *row) {
    int64_t top_k = asked->top_k, n = row->n;
    int64_t wanted = top_k > CANDIDATES && top_k < n ? top_k : CANDIDATES;
    if (wanted > MAX_WANTED && n > 2 * GROUPS) return draw_far(asked, row);
    candidate *found = scratch(SCRATCH_ITEMS, 2 * MAX_FOUND * sizeof(candidate));
    int count = gather(row->x, n, threshold(row->x, n, (int)wanted), found), is_all;
    if (count < 0) return draw_far(asked, row);
    sort_by_key(found, found + MAX_FOUND, count);
    int kept = num_kept(asked, row, found, count, &is_all);
    int is_wide = n > CANDIDATES && found[kept - 1].key >= found[CANDIDATES - 1].key;
    if (is_wide && !top_k) {
        int64_t token = draw_wide(asked, row);
        return token < 0 ? draw_in_order(asked, row, &is_wide) : token;
    }
    if (!is_all) return draw_far(asked, row);
    double sum = 0;
    for (int i = 0; i < kept; i++) sum += row->weights[found[i].id];
    double mark = mark_of(uniform(asked, 0), sum), before = 0;
    int i = 0;
    for (; i < kept - 1; i++)
        if ((before += row->weights[found[i].id]) > mark) break;
    return found[i].id;
}

INLINE void draw_row(const draw_job *job, int at, const int has_fma) {
    const table_row *own = (const table_row *)(job->table + at * job->row_bytes);
    sample asked = {mixed(own->stream ^ (uint64_t)own->position), (float)own->temperature, (float)own->top_p,
                    (float)own->min_p, own->top_k};
    weighed row = {.x = job->x + own->row * job->n, .n = job->n};
    row.weights = scratch(SCRATCH_ROWS, (size_t)job->n * sizeof(float));
    row.sums = scratch(SCRATCH_SCORES, (size_t)(job->n / BLOCK + 1) * sizeof(double));
    weigh(&row, asked.temperature, has_fma);
    int is_filtered = asked.top_k || asked.top_p < 1.0f || asked.min_p > 0.0f;
    job->out[at] = is_filtered ? draw_filtered(&asked, &row) : locate(&row, mark_of(uniform(&asked, 0), row.whole));
}

#if defined(__x86_64__)
AVX512 static void draw_avx512(void *job, int at) { draw_row(job, at, 1); }
AVX2 static void draw_avx2(void *job, int at) { draw_row(job, at, 1); }
BASELINE static void draw_baseline(void *job, int at) { draw_row(job, at, 0); }
#else
NEON static void draw_neon(void *job, int at) { draw_row(job, at, 1); }
#endif

/* `table`: a row for each token that is drawn, `row_bytes` apart. */
EXPORT void chairlift_draw(const float *x, int64_t n, int count, const void *table, int64_t row_bytes, int64_t *out) {
    draw_job job = {x, n, table, row_bytes, out};
    pool_run(CHOOSE_SET(draw), &job, count);
}

