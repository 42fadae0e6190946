/* Draws a token where filters keep so many that candidates do not suffice: as a sort of the whole row would, without it.
 *
 * Tokens are counted and weighed in buckets of nearly equal values, most likely first. Only the buckets in which top-k
 * or top-p ends and that in which the token lies are sorted.
 */
#include "draw.h"

#include <math.h>

enum {
    SHIFT = 20, /* of keys to their bucket */
    BUCKETS = 1 << (32 - SHIFT),
    STEP = 32, /* keys that are looked at together */
};

typedef struct {
    const weighed *row;
    candidate *items; /* tokens of the bucket `sorted`, in order; room for twice the row */
    uint32_t *keys;   /* of the row */
    int sorted, counts[BUCKETS];
    double weights[BUCKETS];
} buckets;

static buckets *in_buckets(const weighed *row) {
    size_t n = (size_t)row->n;
    buckets *all = scratch(SCRATCH_ITEMS, sizeof(buckets) + n * (2 * sizeof(candidate) + sizeof(uint32_t)));
    memset(all, 0, sizeof *all);
    all->row = row, all->items = (candidate *)(all + 1), all->keys = (uint32_t *)(all->items + 2 * n), all->sorted = -1;
    for (size_t i = 0; i < n; i++) all->keys[i] = descending(row->x[i]);
    for (size_t i = 0; i < n; i++) {
        all->counts[all->keys[i] >> SHIFT]++;
        all->weights[all->keys[i] >> SHIFT] += row->weights[i];
    }
    return all;
}

/* The tokens of a bucket, in order. */
static const candidate *members(buckets *all, int bucket) {
    if (all->sorted == bucket) return all->items;
    const uint32_t *restrict keys = all->keys, wanted = (uint32_t)bucket;
    candidate *restrict items = all->items;
    int count = 0, most = all->counts[bucket];
    for (int64_t first = 0; count < most; first += STEP) {
        int64_t last = all->row->n - first < STEP ? all->row->n : first + STEP;
        int is_any = last - first < STEP;
        if (!is_any)
            for (int l = 0; l < STEP; l++) is_any |= keys[first + l] >> SHIFT == wanted;
        for (int64_t i = first; is_any && i < last; i++)
            if (keys[i] >> SHIFT == wanted) items[count++] = (candidate){keys[i], (int32_t)i};
    }
    sort_by_key(items, items + count, count);
    all->sorted = bucket;
    return all->items;
}

/* The key of the token behind `rank` others. */
static uint32_t key_at(buckets *all, int64_t rank) {
    int bucket = 0;
    for (; rank >= all->counts[bucket]; bucket++) rank -= all->counts[bucket];
    return members(all, bucket)[rank].key;
}

static double weight_of_first(buckets *all, int64_t count) {
    double sum = 0;
    for (int bucket = 0; count > 0; count -= all->counts[bucket++]) {
        if (all->counts[bucket] <= count) {
            sum += all->weights[bucket];
            continue;
        }
        const candidate *own = members(all, bucket);
        for (int i = 0; i < count; i++) sum += all->row->weights[own[i].id];
    }
    return sum;
}

/* How many the filters keep, and their weight. */
static int64_t num_kept(const sample *asked, buckets *all, double *weight) {
    const weighed *row = all->row;
    int64_t limit = row->n, kept = 0;
    double most = INFINITY;
    if (asked->min_p > 0) {
        limit = 0;
        for (int64_t i = 0; i < row->n; i++) limit += row->weights[i] >= asked->min_p;
    }
    if (limit < 1) limit = 1;
    int is_limited = asked->top_k && asked->top_k < row->n;
    if (asked->top_p < 1.0f) most = asked->top_p * (is_limited ? weight_of_first(all, asked->top_k) : row->whole);
    if (is_limited && asked->top_k < limit) limit = asked->top_k;
    *weight = 0;
    for (int bucket = 0; kept < limit; bucket++) {
        int count = all->counts[bucket];
        if (kept + count <= limit && *weight + all->weights[bucket] < most) {
            kept += count, *weight += all->weights[bucket];
            continue;
        }
        const candidate *own = members(all, bucket);
        for (int i = 0; i < count && kept < limit; i++, kept++) {
            if (kept && !(*weight < most)) return kept; /* the token that crosses it stays */
            *weight += row->weights[own[i].id];
        }
    }
    return kept;
}

int64_t draw_in_order(const sample *asked, const weighed *row, int *is_wide) {
    buckets *all = in_buckets(row);
    double whole, before = 0;
    int64_t kept = num_kept(asked, all, &whole), found = 0;
    *is_wide = row->n > CANDIDATES && (kept >= CANDIDATES || key_at(all, kept - 1) == key_at(all, CANDIDATES - 1));
    double mark = mark_of(uniform(asked, 0), whole);
    for (int bucket = 0; kept > 0; kept -= all->counts[bucket++]) {
        if (all->counts[bucket] < kept && !(before + all->weights[bucket] > mark)) {
            before += all->weights[bucket];
            continue;
        }
        const candidate *own = members(all, bucket);
        for (int i = 0; i < all->counts[bucket] && i < kept; i++) {
            float weight = row->weights[own[i].id];
            if (weight == 0) break;
            found = own[i].id; /* the last one, should the bucket's sum have been rounded up */
            if ((before += weight) > mark) break;
        }
        break;
    }
    return found;
}
