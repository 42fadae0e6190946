/* What the kernel files share: the thread pool, processor features, bfloat16 conversion, scratch memory.
 *
 * Every kernel computes a row of its result in an order that depends only on that row, so its bits do not change with
 * the number of rows in the call, the number of threads, or the way work is cut into chunks.
 */
#ifndef CHAIRLIFT_KERNELS_H
#define CHAIRLIFT_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

/* pool.c: runs fn(job, i) for every i in [0, count), on the caller and on the threads that are awake in time. */
typedef void (*chunk_fn)(void *job, int index);
void pool_run(chunk_fn fn, void *job, int count);
int pool_threads(void);

/* cpu.c: what the processor can do. */
enum { HAS_AVX2 = 1, HAS_AVX512 = 2, HAS_AVX512_BF16 = 4, HAS_AMX = 8 };
int cpu_features(void);

/* cpu.c: 64-byte aligned memory of the calling thread, valid until its next call with the same slot. Ends the
 * process if there is none: half a result is worth nothing. */
enum { SCRATCH_ITEMS, SCRATCH_ROWS, SCRATCH_SCORES, NUM_SCRATCH };
void *scratch(int slot, size_t bytes);

/* One attention call; shapes as in chairlift.runner.ops. */
typedef struct {
    const void *q, *keys, *values;
    void *out;
    const int32_t *starts, *contexts, *tables;
    int64_t table_width;
    int num_chunks, heads, kv_heads, head_dim, block_size, window;
    float scale;
    const int *item_starts; /* [num_chunks + 1]: items of chunk r are item_starts[r] .. item_starts[r + 1] */
    int num_items, items_per_run;
    int tile_tokens, tile_heads, head_tiles;
} attention_job;

/* Up to 16 queries (tokens x heads of one group) of one chunk that share a key/value head. */
typedef struct {
    int kv_head, first_head, num_heads, first_row, num_tokens, first_position;
    const int32_t *table;
} attention_item;

enum { MAX_LANES = 16 };
void attend_amx(const attention_job *job, const attention_item *item);
int attend_amx_fits(int head_dim);

static inline int min_int(int a, int b) { return a < b ? a : b; }
static inline int max_int(int a, int b) { return a > b ? a : b; }
static inline int ceil_div(int a, int b) { return (a + b - 1) / b; }

#endif
