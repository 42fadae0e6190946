/* What the kernel files share: the thread pool, processor features, bfloat16 conversion, scratch memory.
 *
 * Every kernel computes a row of its result in an order that depends only on that row, so its bits do not change with
 * the number of rows in the call, the number of threads, or the way work is cut into chunks.
 */
#ifndef CHAIRLIFT_KERNELS_H
#define CHAIRLIFT_KERNELS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "entries.h"

#define EXPORT __attribute__((visibility("default")))
#define INLINE static inline __attribute__((always_inline))
#define NOINLINE static __attribute__((noinline))

/* What a function may use beyond the architecture's baseline; chosen at run time. FMA_...(x, v, sum) is sum + x * v of a
 * number and a vector in one rounding, but on the baseline of x86-64, which has none. Written out, and the compiler is
 * told to fuse nothing by itself (setup.py): it may in one loop and not in another, and then bits change with the loop. */
#if defined(__x86_64__)
#include <immintrin.h>
#define FMA_AVX512(x, v, sum) _mm512_fmadd_ps(_mm512_set1_ps(x), v, sum)
#define FMA_AVX2(x, v, sum) _mm256_fmadd_ps(_mm256_set1_ps(x), v, sum)
#define FMA_BASELINE(x, v, sum) ((sum) + (x) * (v))
#define AVX512 __attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512dq")))
#define AVX2 __attribute__((target("avx2,fma")))
#define BASELINE
#else
#include <arm_neon.h>
#define FMA_NEON(x, v, sum) vfmaq_n_f32(sum, v, x)
#define NEON
#endif

/* pool.c: runs fn(job, i) for every i in [0, count), on the caller and on threads that are awake. */
typedef void (*chunk_fn)(void *job, int index);
void pool_run(chunk_fn fn, void *job, int count);
int pool_threads(void);

/* cpu.c: features of the processor; as in library.py. */
enum {
    HAS_AVX2 = 1,
    HAS_AVX512 = 2,
    HAS_AVX512_BF16 = 4,
    HAS_AMX = 8,
    HAS_AVX512_VNNI = 16,
    HAS_AMX_INT8 = 32,
    HAS_NEON = 64,
    HAS_DOTPROD = 128,
    HAS_I8MM = 256,
    HAS_ARM_BF16 = 512,
};
int cpu_features(void);

/* cpu.c: 64-byte aligned memory of the calling thread, valid until its next call with the same slot. Ends the
 * process if there is none. */
enum { SCRATCH_ITEMS, SCRATCH_ROWS, SCRATCH_SCORES, SCRATCH_PANEL, SCRATCH_EXPERTS, SCRATCH_PAIRS, SCRATCH_ADAPTERS,
       SCRATCH_DELTA, NUM_SCRATCH };
void *scratch(int slot, size_t bytes);

/* Keys and values may be kept as bytes: those of a head, then a float that each is multiplied by. */
enum { SCALE_BYTES = 4 };

/* One attention call; shapes as in chairlift.runner.ops. */
typedef struct {
    const void *q, *keys, *values;
    void *out;
    const float *sinks; /* [heads]: scores without values; NULL: there are none */
    const int32_t *starts, *contexts, *tables;
    int64_t table_width;
    int num_chunks, heads, kv_heads, head_dim, block_size, window, kv_is_int8;
    float scale, cap; /* a score s becomes cap * tanh(s / cap), unless the cap is 0 */
    const int *item_starts; /* [num_chunks + 1]: items of chunk r are item_starts[r] .. item_starts[r + 1] */
    int sees_all, reach; /* of an encoder: keys behind a query too; so many to each side, unless it is 0 */
    int num_items, items_per_run;
    int tile_tokens, tile_heads, head_tiles;
} attention_job;

/* Up to 16 queries (tokens x heads of one group) of one chunk that share a key/value head. */
typedef struct {
    int kv_head, first_head, num_heads, first_row, num_tokens, first_position, context;
    const int32_t *table;
} attention_item;

enum { MAX_LANES = 16, MAX_HEAD_DIM = 576 };
void attend_amx(const attention_job *job, const attention_item *item);
int attend_amx_fits(int head_dim);

/* product.c: as the entry points of linear.c, for matrices that are not in tiles. */
void product(const void *x, const void *w, const void *bias, void *y, int64_t m, int64_t n, int64_t k, int is_bf16,
             int is_float);
void product_pack(const void *matrix, void *packed, int64_t n, int64_t k, int is_bf16);
void product_rows(const void *packed, const int64_t *ids, void *out, int64_t count, int64_t k, int is_bf16);

static inline float from_bf16(uint16_t x) {
    uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

/* To nearest, ties to even; a NaN stays one. */
static inline uint16_t to_bf16(float f) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : (uint16_t)rounded;
}

static inline float from_float(float x) { return x; }

/* a * b + c, in one rounding where the caller's instructions can. */
INLINE float madd(float a, float b, float c, const int has_fma) { return has_fma ? __builtin_fmaf(a, b, c) : a * b + c; }

/* exp of what is at most 88; 0 below -87.7. Error under 2 units in the last place. */
INLINE float exponential(float x, const int has_fma) {
    int32_t bits;
    float scale;
#if defined(__x86_64__)
    x = -88.0f > x ? -88.0f : x;
#else
    uint32_t size; /* of negative numbers the larger, as bits, is the smaller; that a NaN stays one costs no more so */
    memcpy(&size, &x, 4);
    size = size < 0xc2b00000u ? size : 0xc2b00000u;
    memcpy(&x, &size, 4);
#endif
    float whole = madd(x, 1.44269504f, 12582912.0f, has_fma); /* 1.5 * 2^23: rounds to an integer in the low bits */
    float n = whole - 12582912.0f;
    float f = madd(n, 2.12194440e-4f, madd(n, -0.693359375f, x, has_fma), has_fma);
    float p = 1.9875691500e-4f;
    p = madd(p, f, 1.3981999507e-3f, has_fma);
    p = madd(p, f, 8.3334519073e-3f, has_fma);
    p = madd(p, f, 4.1665795894e-2f, has_fma);
    p = madd(p, f, 1.6666665459e-1f, has_fma);
    p = madd(p, f, 5.0000001201e-1f, has_fma);
    p = madd(p * f, f, f, has_fma) + 1.0f;
    memcpy(&bits, &whole, 4);
    bits = (bits - 0x4b400000 + 127) << 23;
    memcpy(&scale, &bits, 4);
    return p * scale; /* 2^-127 is 0 here */
}

/* tanh, by what exp(-2|x|) leaves of 1; an error of a few units in the last place of 1. A NaN stays one. */
INLINE float hyperbolic_tangent(float x, const int has_fma) {
    float e = exponential(-2.0f * (x < 0.0f ? -x : x), has_fma), t = (1.0f - e) / (1.0f + e);
    return x < 0.0f ? -t : x > 0.0f ? t : x;
}

/* The best of a kernel's forms that this processor can run: CHOOSE by element type, CHOOSE_SET without one. */
#if defined(__x86_64__)
#define CHOOSE_SET(name)                           \
    (cpu_features() & HAS_AVX512 ? name##_avx512   \
     : cpu_features() & HAS_AVX2 ? name##_avx2     \
                                 : name##_baseline)
#define CHOOSE(name, is_bf16)                                                                       \
    (cpu_features() & HAS_AVX512 ? ((is_bf16) ? name##_avx512_bf16 : name##_avx512_float)           \
     : cpu_features() & HAS_AVX2 ? ((is_bf16) ? name##_avx2_bf16 : name##_avx2_float)               \
                                 : ((is_bf16) ? name##_baseline_bf16 : name##_baseline_float))
#else
#define CHOOSE_SET(name) name##_neon
#define CHOOSE(name, is_bf16) ((is_bf16) ? name##_neon_bf16 : name##_neon_float)
#endif

/* Numbers up to a whole number of the widest registers. */
#define PADDED(count) (((count) + 15) / 16 * 16)

static inline int min_int(int a, int b) { return a < b ? a : b; }
static inline int max_int(int a, int b) { return a > b ? a : b; }
static inline int ceil_div(int a, int b) { return (a + b - 1) / b; }

#endif
