/* gateway.v1.json, as a client that only reads or only publishes and never resumes. Numbers in comments are sections of
 * docs/reference/protocol.md. */
#include "generator.h"
#include "json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    ACKNOWLEDGE_AFTER = 256,     /* packets (5.3.2) */
    LONGEST_MESSAGE = 32 * 1024, /* half of limits.message_bytes, so that no publish crosses it (2.2) */
};
static const int64_t ACKNOWLEDGE_WITHIN = NS_PER_SECOND / 2; /* ns (5.3.2) */

/* Connections that owe an acknowledgement, the longest first. */
static struct connection *first_owing, *last_owing;

static void settle(struct connection *connection) {
    connection->acknowledged = connection->received;
    if (!connection->unacknowledged_since) return;
    connection->unacknowledged_since = 0;
    struct connection *before = connection->previous_to_acknowledge, *after = connection->next_to_acknowledge;
    *(before ? &before->next_to_acknowledge : &first_owing) = after;
    *(after ? &after->previous_to_acknowledge : &last_owing) = before;
    connection->next_to_acknowledge = connection->previous_to_acknowledge = NULL;
}

static void owe(struct connection *connection) {
    if (connection->unacknowledged_since) return;
    connection->unacknowledged_since = loop_now;
    connection->previous_to_acknowledge = last_owing;
    *(last_owing ? &last_owing->next_to_acknowledge : &first_owing) = connection;
    last_owing = connection;
}

static void say(struct connection *connection, const char *type) {
    char text[96];
    int length = snprintf(text, sizeof text, "{\"type\":\"%s\",\"received\":%" PRIu64 "}", type, connection->received);
    websocket_text(connection, text, (size_t)length);
    settle(connection);
    connection_send(connection);
}

/* Begins a session packet among those of the next message (2.2). */
static struct buffer *begin_packet(struct connection *connection) {
    struct buffer *packets = &connection->packets;
    buffer_text(packets, connection->packets_count++ ? ",{\"id\":" : "[{\"id\":");
    buffer_number(packets, ++connection->numbered);
    if (connection->received > connection->acknowledged) {
        buffer_text(packets, ",\"received\":");
        buffer_number(packets, connection->received);
        settle(connection);
    }
    return packets;
}

static void write_packets(struct connection *connection) {
    struct buffer *packets = &connection->packets;
    if (connection->packets_count > 1) {
        buffer_text(packets, "]");
        websocket_text(connection, packets->data, packets->length);
    } else if (connection->packets_count == 1) {
        websocket_text(connection, packets->data + 1, packets->length - 1);
    }
    packets->length = 0;
    connection->packets_count = 0;
}

static void flush(struct connection *connection) {
    if (connection->packets_count) {
        write_packets(connection);
        connection_send(connection);
    }
    if (connection->received - connection->acknowledged >= connection->acknowledge_after && connection->state == READY)
        say(connection, "ack");
}

static void opened(struct connection *connection) {
    char hello[192];
    int length = snprintf(hello, sizeof hello,
                          "{\"type\":\"hello\",\"principal\":\"%s-%" PRIu32 "\",\"client\":\"load-generator\","
                          /* Sessions of clients that do not know of copies are not copied. */
                          "\"supports\":[\"mirrored\"]}",
                          connection->publisher ? "publisher" : "subscriber", connection->index);
    websocket_text(connection, hello, (size_t)length);
    connection_send(connection);
}

static void welcome(struct connection *connection, struct span limits) {
    struct json json = {limits.start, limits.start + limits.length, false};
    struct span name, value;
    for (json_enter(&json, '{'); json_member(&json, &name, &value);) {
        if (span_is(name, "requests")) connection->request_limit = json_number(&json, value);
        if (span_is(name, "resend_packets")) connection->resend_limit = json_number(&json, value);
    }
    if (json.wrong || !connection->request_limit || connection->resend_limit < 4) {
        fail(PROTOCOL, connection, "the welcome has no limits that can be used");
        connection_end(connection);
        return;
    }
    uint64_t quarter = connection->resend_limit / 4;
    connection->acknowledge_after = (uint32_t)(quarter < ACKNOWLEDGE_AFTER ? quarter : ACKNOWLEDGE_AFTER);
    if (connection->publisher) {
        say(connection, "ack"); /* the proof that we hold the token (10.4) */
        connection_ready(connection);
    } else {
        struct buffer *packet = begin_packet(connection);
        buffer_text(packet, ",\"type\":\"subscribe\",\"request\":1,\"selector\":\"");
        buffer_text(packet, topic_name(connection->topic));
        buffer_text(packet, "\"}");
    }
}

struct packet {
    uint64_t id, received, request, version;
    struct span type, topic, value, error, limits, code, message;
    bool snapshot;
};

static void update(struct connection *connection, const struct packet *packet) {
    if (packet->snapshot) fail(PROTOCOL, connection, "an update came as a snapshot: the one before it was left out");
    if (packet->version <= connection->version)
        fail(VERSIONS, connection, "version %" PRIu64 " came after %" PRIu64, packet->version, connection->version);
    connection->version = packet->version;
    if (!span_is(json_text(packet->topic), topic_name(connection->topic)))
        fail(CORRUPT, connection, "got topic %.*s", (int)packet->topic.length, packet->topic.start);
    struct span value = json_text(packet->value);
    check_received(connection, value.start, value.length);
}

static void session_packet(struct connection *connection, const struct packet *packet) {
    if (packet->id != connection->received + 1)
        fail(PACKET_IDS, connection, "packet %" PRIu64 " came after %" PRIu64, packet->id, connection->received);
    if (packet->id > connection->received) connection->received = packet->id;
    owe(connection);
    if (span_is(packet->type, "\"update\"")) {
        update(connection, packet);
    } else if (span_is(packet->type, "\"reply\"")) {
        if (packet->error.length) {
            fail(REFUSED, connection, "request %" PRIu64 " was refused: %.*s", packet->request,
                 (int)packet->error.length, packet->error.start);
            connection_end(connection);
        } else if (connection->publisher) {
            publish_answered(connection, packet->request);
        } else if (connection->state == GREETING) {
            connection_ready(connection);
        } else {
            fail(PROTOCOL, connection, "an unexpected reply");
        }
    } else {
        /* A notice declares that something was left out (5.8), which no system may do here. */
        fail(PROTOCOL, connection, "a packet of type %.*s: %.*s", (int)packet->type.length, packet->type.start,
             (int)packet->code.length, packet->code.start);
    }
}

static void link_packet(struct connection *connection, const struct packet *packet) {
    if (span_is(packet->type, "\"welcome\"")) {
        welcome(connection, packet->limits);
    } else if (span_is(packet->type, "\"ping\"")) {
        say(connection, "pong");
    } else if (!span_is(packet->type, "\"ack\"") && !span_is(packet->type, "\"pong\"")) {
        fail(PROTOCOL, connection, "%.*s %.*s %.*s", (int)packet->type.length, packet->type.start,
             (int)packet->code.length, packet->code.start, (int)packet->message.length, packet->message.start);
    }
}

static void read_field(struct packet *packet, struct json *json, struct span name, struct span value) {
    if (value.length == 4 && !memcmp(value.start, "null", 4) && name.start[0] != 'v') return; /* absent (2.3) */
    switch (name.length) {
    case 2:
        if (span_is(name, "id")) packet->id = json_number(json, value);
        break;
    case 4:
        if (span_is(name, "type")) packet->type = value;
        if (span_is(name, "code")) packet->code = value;
        break;
    case 5:
        if (span_is(name, "value")) packet->value = value;
        if (span_is(name, "topic")) packet->topic = value;
        if (span_is(name, "error")) packet->error = value;
        break;
    case 6:
        if (span_is(name, "limits")) packet->limits = value;
        break;
    case 7:
        if (span_is(name, "version")) packet->version = json_number(json, value);
        if (span_is(name, "request")) packet->request = json_number(json, value);
        if (span_is(name, "message")) packet->message = value;
        break;
    case 8:
        if (span_is(name, "received")) packet->received = json_number(json, value);
        if (span_is(name, "snapshot")) packet->snapshot = span_is(value, "true");
        break;
    default: break;
    }
}

static bool is_session_packet(const struct packet *packet) {
    return span_is(packet->type, "\"update\"") || span_is(packet->type, "\"reply\"") ||
           span_is(packet->type, "\"notice\"");
}

/* Reads one packet; `following` is the id of the next session packet of this message if it does not carry one (5.1). */
static void one_packet(struct connection *connection, struct json *json, uint64_t *following) {
    struct packet packet = {.id = 0};
    struct span name, value;
    if (!json_enter(json, '{')) {
        json->wrong = true;
        return;
    }
    while (json_member(json, &name, &value)) read_field(&packet, json, name, value);
    if (json->wrong) return;
    if (packet.received > connection->numbered)
        fail(PROTOCOL, connection, "%" PRIu64 " was acknowledged, never sent", packet.received);
    if (packet.received > connection->peer_received) connection->peer_received = packet.received;
    if (!is_session_packet(&packet)) {
        link_packet(connection, &packet);
        return;
    }
    if (!packet.id) packet.id = *following;
    *following = packet.id + 1;
    session_packet(connection, &packet);
}

static void message(struct connection *connection, const char *text, size_t length) {
    struct json json = {text, text + length, false};
    uint64_t following = 0;
    if (json_enter(&json, '[')) {
        for (bool first = true; connection->state != ENDED && json_element(&json, &first);)
            one_packet(connection, &json, &following);
    } else {
        one_packet(connection, &json, &following);
    }
    if (connection->state != ENDED && (json.wrong || json.at != json.end)) {
        fail(PROTOCOL, connection, "not a message: %.*s", (int)(length < 100 ? length : 100), text);
        connection_end(connection);
    }
}

/* 5.2.3 and 5.3.4. */
static bool may_publish(const struct connection *connection) {
    return connection->requests - connection->answers < connection->request_limit &&
           connection->numbered - connection->peer_received < connection->resend_limit;
}

static void publish(struct connection *connection, const char *topic, const char *value, uint64_t request) {
    struct buffer *packet = begin_packet(connection);
    buffer_text(packet, ",\"type\":\"publish\",\"request\":");
    buffer_number(packet, request);
    buffer_text(packet, ",\"topic\":\"");
    buffer_text(packet, topic);
    buffer_text(packet, "\",\"value\":\"");
    buffer_append(packet, value, (size_t)options.size);
    buffer_text(packet, "\"}");
    if (packet->length > LONGEST_MESSAGE) write_packets(connection);
}

static void timer(int64_t now) {
    while (first_owing && now - first_owing->unacknowledged_since >= ACKNOWLEDGE_WITHIN) {
        if (first_owing->state == READY)
            say(first_owing, "ack");
        else
            settle(first_owing);
    }
}

static int64_t next_timer(void) {
    return first_owing ? first_owing->unacknowledged_since + ACKNOWLEDGE_WITHIN : INT64_MAX;
}

const struct protocol protocol_gateway = {
    .name = "gateway",
    .subprotocol = "gateway.v1.json",
    .opened = opened,
    .message = message,
    .publish = publish,
    .may_publish = may_publish,
    .flush = flush,
    .timer = timer,
    .next_timer = next_timer,
};
