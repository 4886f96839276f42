/* Latencies in log-linear buckets: each power of two is cut into 128, so a quantile is off by less than 1 %. */
#include "generator.h"

#include <stdlib.h>

enum {
    LINEAR_BITS = 7,
    LINEAR = 1 << LINEAR_BITS,
    LARGEST_BITS = 40, /* 2^40 ns = 18 minutes */
    BUCKETS = (LARGEST_BITS - LINEAR_BITS + 1) * LINEAR,
};

static unsigned bucket_of(uint64_t ns) {
    if (ns < LINEAR) return (unsigned)ns;
    int shift = 63 - __builtin_clzll(ns) - LINEAR_BITS;
    unsigned bucket = (unsigned)(shift + 1) * LINEAR + (unsigned)((ns >> shift) - LINEAR);
    return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

/* The middle of what falls into a bucket. */
static int64_t value_of(unsigned bucket) {
    if (bucket < LINEAR) return bucket;
    unsigned shift = bucket / LINEAR - 1;
    return (int64_t)(((uint64_t)(bucket % LINEAR + LINEAR) << shift) + ((1ULL << shift) >> 1));
}

void histogram_prepare(struct histogram *histogram) {
    histogram->buckets = calloc(BUCKETS, sizeof *histogram->buckets);
    if (!histogram->buckets) give_up("out of memory");
}

void histogram_record(struct histogram *histogram, int64_t ns) {
    uint64_t value = ns < 0 ? 0 : (uint64_t)ns;
    histogram->buckets[bucket_of(value)]++;
    histogram->count++;
    histogram->total += value;
    if (value > histogram->largest) histogram->largest = value;
}

int64_t histogram_quantile(const struct histogram *histogram, double quantile) {
    uint64_t wanted = (uint64_t)((double)histogram->count * quantile), seen = 0;
    if (!histogram->count) return 0;
    for (unsigned i = 0; i < BUCKETS; i++) {
        seen += histogram->buckets[i];
        if (seen > wanted) {
            int64_t value = value_of(i);
            return value < (int64_t)histogram->largest ? value : (int64_t)histogram->largest;
        }
    }
    return (int64_t)histogram->largest;
}
