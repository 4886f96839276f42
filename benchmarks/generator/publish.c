/* When to publish: as fast as a window of unfinished updates allows, or by a schedule that does not wait for anyone.
 *
 * An update is finished when it was answered and every subscriber has received it. The window bounds what servers have
 * to keep, so that none has a reason to drop; and as it waits for the deliveries, a server cannot look fast by
 * answering early. A paced publisher fills its schedule even while it is late (the lag is reported), and latencies
 * count from the time on the schedule: an update that a slow server kept us from sending has waited all the same.
 */
#include "generator.h"

#include <inttypes.h>
#include <stdlib.h>

struct sent {
    uint32_t topic;
    bool unanswered;
    uint64_t number;
};

enum { MOST_PER_TURN = 256 }; /* publishes before sockets are looked at again */

uint64_t published, answered, completed;
int64_t largest_lag;

static bool running;
static int64_t schedule_start;
static uint64_t scheduled_count, sent_ring;
static uint32_t next_topic;

void publish_begin(int64_t start) {
    for (sent_ring = 16; sent_ring < (uint64_t)options.window; sent_ring *= 2) {}
    for (int i = 0; i < options.publishers; i++) {
        publishers[i].sent = calloc(sent_ring, sizeof *publishers[i].sent);
        if (!publishers[i].sent) give_up("out of memory");
    }
    schedule_start = start;
    running = true;
}

void publish_stop(void) { running = false; }

static int64_t scheduled_for(uint64_t count) {
    return schedule_start + (int64_t)((double)count * (double)NS_PER_SECOND / options.rate);
}

/* Publishes one update unless something forbids it. */
static bool publish_one(int64_t scheduled) {
    uint32_t topic = next_topic;
    struct connection *publisher = &publishers[topic % (uint32_t)options.publishers];
    uint64_t request = publisher->requests + 1;
    struct sent *sent = &publisher->sent[request & (sent_ring - 1)];
    if ((options.updates && published == options.updates) || published - completed >= (uint64_t)options.window || !check_free(topic) || sent->unanswered ||
        publisher->state != READY || (options.protocol->may_publish && !options.protocol->may_publish(publisher)))
        return false;
    *sent = (struct sent){.topic = topic, .unanswered = true};
    const char *value = check_publish(topic, scheduled, &sent->number);
    publisher->requests = request;
    publisher->touched = true;
    published++;
    if (options.publish_by_http)
        http_publish(publisher, topic_name(topic), value);
    else
        options.protocol->publish(publisher, topic_name(topic), value, request);
    next_topic = (topic + 1) % (uint32_t)options.topics;
    return true;
}

void publish_due(int64_t now) {
    if (!running) return;
    bool any = false;
    for (int i = 0; i < MOST_PER_TURN; i++) {
        int64_t scheduled = now;
        if (options.rate > 0) {
            scheduled = scheduled_for(scheduled_count);
            if (scheduled > now) break;
        }
        if (!publish_one(scheduled)) break;
        any = true;
        scheduled_count++;
        if (now - scheduled > largest_lag) largest_lag = now - scheduled;
    }
    if (!any) return;
    for (int i = 0; i < options.publishers; i++) {
        if (!publishers[i].touched) continue;
        publishers[i].touched = false;
        if (options.protocol->flush) options.protocol->flush(&publishers[i]);
        connection_send(&publishers[i]);
    }
}

int64_t publish_next(void) {
    if (!running || options.rate <= 0) return INT64_MAX;
    int64_t next = scheduled_for(scheduled_count);
    /* Late already: then only progress lets us publish, and every progress wakes the loop. */
    return next > loop_now ? next : INT64_MAX;
}

void publish_answered(struct connection *connection, uint64_t request) {
    struct sent *sent = connection->sent ? &connection->sent[request & (sent_ring - 1)] : NULL;
    if (!sent || request > connection->requests || connection->requests - request >= sent_ring || !sent->unanswered) {
        fail(PROTOCOL, connection, "request %" PRIu64 " was answered, but is not open", request);
        return;
    }
    sent->unanswered = false;
    connection->answers++;
    answered++;
    check_answered(sent->topic, sent->number);
}
