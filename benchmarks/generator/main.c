/* Exit codes: 0 all was right, 1 something was received wrong or not at all (the report says what), 2 wrong use. */
#include "generator.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct options options;
struct histogram delivery_latency, answer_latency;
int64_t window_start = INT64_MAX, window_end = INT64_MAX;

int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * NS_PER_SECOND + now.tv_nsec;
}

void progress(const char *format, ...) {
    va_list values;
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
}

void give_up(const char *format, ...) {
    va_list values;
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
    exit(2);
}

static int64_t earlier(int64_t one, int64_t other) { return one < other ? one : other; }

/* Serves everything until `until`, or until all is complete if no more is to come. False if it makes no sense to go on. */
static bool serve(int64_t until, bool draining) {
    static uint64_t seen;
    static int64_t last;
    const struct protocol *protocol = options.protocol;
    if (!last) last = loop_now;
    while (loop_now < until) {
        if ((draining || (options.updates && published == options.updates)) && check_complete()) break;
        publish_due(loop_now);
        int64_t next = earlier(until, publish_next());
        if (protocol->timer) {
            protocol->timer(loop_now);
            next = earlier(next, protocol->next_timer());
        }
        connections_wait(next);
        if (ended_count) return false;
        uint64_t all = delivered + answered;
        if (all != seen || published == completed) last = loop_now;
        seen = all;
        if (loop_now - last > (int64_t)(options.patience * NS_PER_SECOND)) {
            fail(STALLED, NULL, "nothing arrived for %.0f s while updates were under way", options.patience);
            return false;
        }
    }
    return true;
}

static int64_t seconds(double count) { return (int64_t)(count * NS_PER_SECOND); }

int main(int count, char **arguments) {
    struct moment begin, end;
    options_parse(&options, count, arguments);
    histogram_prepare(&delivery_latency);
    histogram_prepare(&answer_latency);
    check_prepare();
    moment_take(&begin);
    end = begin;
    if (connections_open()) {
        progress("warming up for %.1f s", options.warm_up);
        int64_t start = loop_now = now_ns();
        publish_begin(start);
        window_start = start + seconds(options.warm_up);
        window_end = window_start + seconds(options.measure);
        bool going = serve(window_start, false);
        moment_take(&begin);
        if (going) {
            progress("measuring for %.1f s", options.measure);
            going = serve(window_end, false);
        }
        moment_take(&end);
        publish_stop();
        if (going) {
            progress("waiting for what is under way");
            serve(INT64_MAX, true);
        }
        check_missing();
    }
    report_print(&begin, &end);
    return report_failed() ? 1 : 0;
}
