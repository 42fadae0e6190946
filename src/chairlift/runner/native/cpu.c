/* Features of this processor and operating system, queried once; and scratch memory per thread. */
#define _GNU_SOURCE
#include "kernels.h"

#include <stdio.h>
#include <stdlib.h>

#if defined(__x86_64__)

#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_TILE_DATA = 18 };
enum { STATE_AVX = 0x6, STATE_AVX512 = 0xe6, STATE_TILES = 0x60000 };

/* A process must request tiles before it uses them. */
static int may_use_tiles(void) {
#if defined(__linux__)
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_TILE_DATA) == 0;
#else
    return 0;
#endif
}

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
    if ((found & HAS_AVX512) && (c >> 11 & 1)) found |= HAS_AVX512_VNNI;
    if ((found & HAS_AVX512_BF16) && (d >> 22 & 1) && (d >> 24 & 1) && (states & STATE_TILES) == STATE_TILES &&
        may_use_tiles()) {
        found |= HAS_AMX;
        if ((found & HAS_AVX512_VNNI) && (d >> 25 & 1)) found |= HAS_AMX_INT8;
    }
    return found;
}

#elif defined(__aarch64__)

#if defined(__linux__)
#include <sys/auxv.h>

enum { CAP_ASIMDDP = 1 << 20, CAP2_I8MM = 1 << 13, CAP2_BF16 = 1 << 14 };

static int detect(void) {
    unsigned long caps = getauxval(AT_HWCAP), caps2 = getauxval(AT_HWCAP2);
    int found = HAS_NEON;
    if (caps & CAP_ASIMDDP) found |= HAS_DOTPROD;
    if ((found & HAS_DOTPROD) && (caps2 & CAP2_I8MM)) found |= HAS_I8MM;
    if (caps2 & CAP2_BF16) found |= HAS_ARM_BF16;
    return found;
}
#elif defined(__APPLE__)
#include <sys/sysctl.h>

static int has(const char *name) {
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname(name, &value, &size, NULL, 0) == 0 && value;
}

static int detect(void) {
    int found = HAS_NEON;
    if (has("hw.optional.arm.FEAT_DotProd")) found |= HAS_DOTPROD;
    if ((found & HAS_DOTPROD) && has("hw.optional.arm.FEAT_I8MM")) found |= HAS_I8MM;
    if (has("hw.optional.arm.FEAT_BF16")) found |= HAS_ARM_BF16;
    return found;
}
#else
static int detect(void) { return HAS_NEON; }
#endif

#else

static int detect(void) { return 0; }

#endif

static int features = -1;
static int allowed = ~0;

int cpu_features(void) {
    if (features < 0) features = detect();
    return features & allowed;
}

/* Also lets a test run as a lesser processor. */
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
