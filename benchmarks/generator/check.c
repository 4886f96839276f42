/* What was published against what arrives.
 *
 * Each topic keeps its updates in a ring until all subscribers have received them:
 *
 *     oldest                 published
 *       |  3 awaited  |  500  |  501  |          a subscriber that expects number n compares with the value of n
 *
 * so the usual check is one memcmp over the whole value: number, time and filler. Only if that fails the number is read
 * out of what arrived, to say what is wrong.
 */
#include "generator.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NUMBER_DIGITS = 10, /* of an update within its topic */
    CLOCK_DIGITS = 19,  /* of an int64_t in ns */
    HEAD = NUMBER_DIGITS + 1 + CLOCK_DIGITS + 1,
};

struct topic {
    char name[MAX_TOPIC];
    uint32_t subscribers;
    uint64_t oldest, published;
    struct update *updates;
    char *values;
};

static struct topic *topics;
static uint64_t ring; /* a power of two */

uint64_t delivered, failures[FAILURES];
const char *const failure_names[FAILURES] = {
    "lost",     "duplicated", "swapped", "corrupt", "packet_ids",
    "versions", "protocol",   "closed",  "refused", "stalled",
};
char quoted_failures[QUOTED_FAILURES][QUOTE_LENGTH];
int quoted_failures_count;

void fail(enum failure kind, const struct connection *connection, const char *format, ...) {
    failures[kind]++;
    if (quoted_failures_count == QUOTED_FAILURES) return;
    char *quote = quoted_failures[quoted_failures_count++];
    int length = 0;
    if (connection)
        length = snprintf(quote, QUOTE_LENGTH, "%s %" PRIu32 ": ", connection->publisher ? "publisher" : "subscriber",
                          connection->index);
    va_list values;
    va_start(values, format);
    vsnprintf(quote + length, QUOTE_LENGTH - (size_t)length, format, values);
    va_end(values);
}

void check_prepare(void) {
    /* One topic may have the whole window under way; with many topics each has its share, and room for bursts. */
    uint64_t wanted = (uint64_t)options.window;
    if (options.topics > 1) wanted = wanted / (uint64_t)options.topics * 4 + 16;
    for (ring = 16; ring < wanted; ring *= 2) {}
    topics = calloc((size_t)options.topics, sizeof *topics);
    if (!topics) give_up("out of memory");
    for (int i = 0; i < options.topics; i++) {
        struct topic *topic = &topics[i];
        if (options.topics == 1)
            snprintf(topic->name, MAX_TOPIC, "%s", options.topic);
        else
            snprintf(topic->name, MAX_TOPIC, "%s%d", options.topic, i);
        topic->updates = calloc(ring, sizeof *topic->updates);
        topic->values = calloc(ring, (size_t)options.size);
        if (!topic->updates || !topic->values) give_up("out of memory");
    }
    for (int i = 0; i < options.subscribers; i++) topics[i % options.topics].subscribers++;
}

const char *topic_name(uint32_t topic) { return topics[topic].name; }

bool check_free(uint32_t topic) { return topics[topic].published - topics[topic].oldest < ring; }

static void digits(char *to, int count, uint64_t number) {
    for (int i = count - 1; i >= 0; i--, number /= 10) to[i] = (char)('0' + number % 10);
}

/* Letters that follow from the number (a multiplicative congruential generator), so that no two neighbours are alike. */
static void fill(char *to, size_t count, uint64_t number) {
    uint64_t state = number * 0x9E3779B97F4A7C15u + 1;
    for (size_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        to[i] = (char)('a' + (state >> 33) % 26);
    }
}

const char *check_publish(uint32_t index, int64_t scheduled, uint64_t *number) {
    struct topic *topic = &topics[index];
    *number = topic->published++;
    uint64_t place = *number & (ring - 1);
    char *value = topic->values + place * (size_t)options.size;
    digits(value, NUMBER_DIGITS, *number);
    value[NUMBER_DIGITS] = ' ';
    digits(value + NUMBER_DIGITS + 1, CLOCK_DIGITS, (uint64_t)scheduled);
    value[HEAD - 1] = ' ';
    fill(value + HEAD, (size_t)options.size - HEAD, *number + ((uint64_t)index << 32));
    topic->updates[place] = (struct update){.scheduled = scheduled, .awaited = topic->subscribers + 1};
    return value;
}

static void arrived(struct topic *topic, uint64_t number) {
    struct update *update = &topic->updates[number & (ring - 1)];
    if (update->awaited && --update->awaited == 0) {
        completed++;
        while (topic->oldest < topic->published && !topic->updates[topic->oldest & (ring - 1)].awaited) topic->oldest++;
    }
}

void check_answered(uint32_t index, uint64_t number) {
    int64_t scheduled = topics[index].updates[number & (ring - 1)].scheduled;
    if (scheduled >= window_start && scheduled < window_end)
        histogram_record(&answer_latency, loop_now - scheduled);
    arrived(&topics[index], number);
}

/* Reads the number that a value begins with; UINT64_MAX if it begins otherwise. */
static uint64_t number_of(const char *value, size_t length) {
    if (length < HEAD) return UINT64_MAX;
    uint64_t number = 0;
    for (int i = 0; i < NUMBER_DIGITS; i++) {
        if (value[i] < '0' || value[i] > '9') return UINT64_MAX;
        number = number * 10 + (uint64_t)(value[i] - '0');
    }
    return value[NUMBER_DIGITS] == ' ' ? number : UINT64_MAX;
}

static bool matches(const struct topic *topic, uint64_t number, const char *value, size_t length) {
    return number < topic->published && length == (size_t)options.size &&
           !memcmp(value, topic->values + (number & (ring - 1)) * (size_t)options.size, length);
}

static void count(struct topic *topic, struct connection *connection, int64_t now) {
    const struct update *update = &topic->updates[connection->expected & (ring - 1)];
    if (update->scheduled >= window_start && update->scheduled < window_end)
        histogram_record(&delivery_latency, now - update->scheduled);
    arrived(topic, connection->expected++);
}

static void wrong(struct topic *topic, struct connection *connection, const char *value, size_t length);

void check_received(struct connection *connection, const char *value, size_t length) {
    struct topic *topic = &topics[connection->topic];
    delivered++;
    if (matches(topic, connection->expected, value, length))
        count(topic, connection, loop_now);
    else
        wrong(topic, connection, value, length);
}

static void wrong(struct topic *topic, struct connection *connection, const char *value, size_t length) {
    uint64_t number = number_of(value, length), expected = connection->expected;
    if (number == UINT64_MAX || number >= topic->published) {
        fail(CORRUPT, connection, "expected update %" PRIu64 ", got what nobody published: %.*s", expected,
             (int)(length < 60 ? length : 60), value);
        if (expected < topic->published) arrived(topic, connection->expected++);
    } else if (number == expected) {
        fail(CORRUPT, connection, "update %" PRIu64 " arrived with other content (%zu bytes)", number, length);
        arrived(topic, connection->expected++);
    } else if (number > expected) {
        if (number >= topic->oldest && !matches(topic, number, value, length))
            fail(CORRUPT, connection, "update %" PRIu64 " arrived with other content (%zu bytes)", number, length);
        fail(LOST, connection, "expected update %" PRIu64 ", got %" PRIu64, expected, number);
        failures[LOST] += number - expected - 1;
        connection->skipped_from = expected;
        connection->skipped_until = number;
        while (connection->expected <= number) arrived(topic, connection->expected++);
    } else if (number >= connection->skipped_from && number < connection->skipped_until) {
        /* It was not lost, it was overtaken; told once more, it would be a duplicate. */
        failures[LOST]--;
        if (number == connection->skipped_from) connection->skipped_from++;
        fail(SWAPPED, connection, "update %" PRIu64 " arrived after %" PRIu64, number, connection->skipped_until);
    } else {
        fail(DUPLICATED, connection, "update %" PRIu64 " arrived again, expected %" PRIu64, number, expected);
    }
}

bool check_complete(void) { return completed == published; }

void check_missing(void) {
    for (int i = 0; i < options.subscribers; i++) {
        struct connection *each = &subscribers[i];
        uint64_t all = topics[each->topic].published;
        if (each->expected == all) continue;
        fail(LOST, each, "updates %" PRIu64 " to %" PRIu64 " never arrived", each->expected, all - 1);
        failures[LOST] += all - each->expected - 1;
    }
}
