/* The result, as one JSON object on standard output. */
#include "generator.h"

#include <inttypes.h>
#include <stdio.h>

void moment_take(struct moment *moment) {
    *moment = (struct moment){
        .at = now_ns(),
        .delivered = delivered,
        .published = published,
        .answered = answered,
        .receive_calls = receive_calls,
        .received_bytes = received_bytes,
    };
    cpu_read(&moment->cpu);
}

bool report_failed(void) {
    for (int i = 0; i < FAILURES; i++)
        if (failures[i]) return true;
    return false;
}

static void print_text(const char *text) {
    putchar('"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            printf("\\%c", *text);
        else if ((unsigned char)*text < 0x20 || (unsigned char)*text > 0x7E)
            printf("\\u%04x", (unsigned char)*text);
        else
            putchar(*text);
    }
    putchar('"');
}

static void print_latency(const char *name, const struct histogram *histogram) {
    printf(",\"%s\":{\"count\":%" PRIu64 ",\"mean\":%.0f,\"p50\":%" PRId64 ",\"p90\":%" PRId64 ",\"p99\":%" PRId64
           ",\"p999\":%" PRId64 ",\"largest\":%" PRIu64 "}",
           name, histogram->count, histogram->count ? (double)histogram->total / (double)histogram->count : 0.0,
           histogram_quantile(histogram, 0.5), histogram_quantile(histogram, 0.9), histogram_quantile(histogram, 0.99),
           histogram_quantile(histogram, 0.999), histogram->largest);
}

void report_print(const struct moment *begin, const struct moment *end) {
    printf("{\"seconds\":%.6f,\"delivered\":%" PRIu64 ",\"published\":%" PRIu64 ",\"answered\":%" PRIu64,
           (double)(end->at - begin->at) / (double)NS_PER_SECOND, end->delivered - begin->delivered,
           end->published - begin->published, end->answered - begin->answered);
    printf(",\"reads\":%" PRIu64 ",\"bytes\":%" PRIu64, end->receive_calls - begin->receive_calls,
           end->received_bytes - begin->received_bytes);
    printf(",\"total_published\":%" PRIu64 ",\"total_delivered\":%" PRIu64 ",\"largest_lag\":%" PRId64, published,
           delivered, largest_lag);
    printf(",\"cpu\":{\"generator\":%.6f", end->cpu.own - begin->cpu.own);
    for (int i = 0; i < end->cpu.roles; i++)
        printf(",\"%s\":%.6f", end->cpu.role[i], end->cpu.seconds[i] - (begin->cpu.roles ? begin->cpu.seconds[i] : 0));
    printf("}");
    print_latency("delivery_ns", &delivery_latency);
    print_latency("answer_ns", &answer_latency);
    printf(",\"failures\":{");
    const char *separator = "";
    for (int i = 0; i < FAILURES; i++) {
        if (!failures[i]) continue;
        printf("%s\"%s\":%" PRIu64, separator, failure_names[i], failures[i]);
        separator = ",";
    }
    printf("},\"failure_examples\":[");
    for (int i = 0; i < quoted_failures_count; i++) {
        if (i) putchar(',');
        print_text(quoted_failures[i]);
    }
    printf("]}\n");
}
