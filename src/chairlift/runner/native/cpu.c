/* What this processor and operating system can do, asked once; and scratch memory per thread. */
#include "kernels.h"

#if defined(__x86_64__) && defined(__linux__)

#define _GNU_SOURCE
#include <cpuid.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_TILE_DATA = 18 };
enum { STATE_AVX = 0x6, STATE_AVX512 = 0xe6, STATE_TILES = 0x60000 };

static uint64_t enabled_states(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static int detect(void) {
    unsigned a, b, c, d, a1, b1, c1, d1;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1) || !(c >> 12 & 1)) return 0; /* OSXSAVE, FMA */
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    if (!__get_cpuid_count(7, 1, &a1, &b1, &c1, &d1)) a1 = 0;
    uint64_t states = enabled_states();
    int found = 0;
    if ((states & STATE_AVX) == STATE_AVX && (b >> 5 & 1)) found |= HAS_AVX2;
    /* F, DQ, BW and VL together */
    if ((states & STATE_AVX512) == STATE_AVX512 && (b >> 16 & 1) && (b >> 17 & 1) && (b >> 30 & 1) && (b >> 31 & 1))
        found |= HAS_AVX512;
    if ((found & HAS_AVX512) && (a1 >> 5 & 1)) found |= HAS_AVX512_BF16;
    if ((found & HAS_AVX512_BF16) && (d >> 22 & 1) && (d >> 24 & 1) && (states & STATE_TILES) == STATE_TILES &&
        syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_TILE_DATA) == 0)
        found |= HAS_AMX;
    return found;
}

static int features = -1;
static int allowed = ~0;

int cpu_features(void) {
    if (features < 0) features = detect();
    return features & allowed;
}

/* Also lets a test see how a lesser processor fares. */
EXPORT int chairlift_features(int mask) {
    allowed = mask;
    return cpu_features();
}

static _Thread_local struct {
    void *memory;
    size_t bytes;
} slots[NUM_SCRATCH];

void *scratch(int slot, size_t bytes) {
    if (slots[slot].bytes < bytes) {
        size_t wanted = (bytes + bytes / 2 + 4095) & ~(size_t)4095;
        free(slots[slot].memory);
        slots[slot].memory = aligned_alloc(64, wanted);
        if (!slots[slot].memory) {
            fprintf(stderr, "chairlift: no memory for %zu bytes of scratch\n", wanted);
            abort();
        }
        slots[slot].bytes = wanted;
    }
    return slots[slot].memory;
}

#else

EXPORT int chairlift_features(int mask) { return 0 & mask; }

#endif
