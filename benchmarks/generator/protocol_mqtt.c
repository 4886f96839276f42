/* MQTT 3.1.1 over WebSocket (section 6 of its specification: binary frames, subprotocol "mqtt"), QoS 1 throughout, with
 * sessions that the server keeps (clean session 0). Frames are not packets: what is incomplete waits in `stream`.
 *
 * A publish is answered by its PUBACK. A subscriber confirms each update by one; those of one read leave in one frame. */
#include "generator.h"

#include <stdio.h>
#include <string.h>

enum {
    CONNECT = 0x10,
    CONNACK = 0x20,
    PUBLISH_QOS1 = 0x32,
    PUBACK = 0x40,
    SUBSCRIBE = 0x82,
    SUBACK = 0x90,
    PINGRESP = 0xD0,
    LEVEL = 4,       /* MQTT 3.1.1 */
    QOS = 1,
    IDENTIFIERS = 65535, /* of packets; 0 is none */
    LENGTH_BYTES = 4,
    SUBSCRIPTION = 1, /* identifier of the only SUBSCRIBE */
};

static void byte(struct buffer *to, unsigned value) {
    char character = (char)value;
    buffer_append(to, &character, 1);
}

static void two(struct buffer *to, size_t value) {
    byte(to, (unsigned)(value >> 8) & 0xFF);
    byte(to, (unsigned)value & 0xFF);
}

static void text(struct buffer *to, const char *content) {
    size_t length = strlen(content);
    two(to, length);
    buffer_append(to, content, length);
}

/* The first byte of a packet, and how long the rest is (section 2.2.3: seven bits at a time). */
static void head(struct buffer *to, unsigned kind, size_t rest) {
    byte(to, kind);
    do {
        unsigned bits = rest & 0x7F;
        rest >>= 7;
        byte(to, rest ? bits | 0x80 : bits);
    } while (rest);
}

static void flush(struct connection *connection) {
    if (!connection->packets.length || connection->state == ENDED) return;
    websocket_binary(connection, connection->packets.data, connection->packets.length);
    connection->packets.length = 0;
    connection_send(connection);
}

static void opened(struct connection *connection) {
    char client[MAX_TOPIC + 32];
    struct buffer *out = &connection->packets;
    /* Another for each run of this program against the same server, which keeps the sessions of the last. */
    snprintf(client, sizeof client, "%s-%c%u", options.topic, connection->publisher ? 'p' : 's', connection->index);
    head(out, CONNECT, 10 + 2 + strlen(client));
    text(out, "MQTT");
    byte(out, LEVEL);
    byte(out, 0); /* flags: the session is kept */
    two(out, 0);  /* no keep-alive: idle connections are no matter of ours */
    text(out, client);
    flush(connection);
}

static void subscribe(struct connection *connection) {
    const char *topic = topic_name(connection->topic);
    struct buffer *out = &connection->packets;
    head(out, SUBSCRIBE, 2 + 2 + strlen(topic) + 1);
    two(out, SUBSCRIPTION);
    text(out, topic);
    byte(out, QOS);
}

static size_t number(const unsigned char *at) { return (size_t)at[0] << 8 | at[1]; }

static void update(struct connection *connection, const unsigned char *rest, size_t length) {
    size_t topic = length >= 2 ? number(rest) : 0;
    if (length < 2 || length < 2 + topic + 2) {
        fail(PROTOCOL, connection, "a PUBLISH of %zu bytes is too short", length);
        connection_end(connection);
        return;
    }
    const unsigned char *identifier = rest + 2 + topic;
    check_received(connection, (const char *)identifier + 2, length - 2 - topic - 2);
    head(&connection->packets, PUBACK, 2);
    two(&connection->packets, number(identifier));
}

static void confirmed(struct connection *connection, size_t identifier) {
    uint64_t request = connection->answers + 1;
    if (identifier != request % IDENTIFIERS + 1)
        fail(PROTOCOL, connection, "packet %zu was confirmed out of turn", identifier);
    publish_answered(connection, request);
}

static void packet(struct connection *connection, unsigned kind, const unsigned char *rest, size_t length) {
    if (kind == PUBLISH_QOS1 && !connection->publisher) {
        update(connection, rest, length);
    } else if (kind == PUBACK && length == 2 && connection->publisher) {
        confirmed(connection, number(rest));
    } else if (kind == CONNACK && length == 2 && !rest[1] && connection->state == GREETING) {
        if (connection->publisher)
            connection_ready(connection);
        else
            subscribe(connection);
    } else if (kind == SUBACK && length == 3 && rest[2] == QOS && connection->state == GREETING) {
        connection_ready(connection);
    } else if (kind != PINGRESP) {
        fail(kind == CONNACK || kind == SUBACK ? REFUSED : PROTOCOL, connection, "unexpected packet 0x%02x of %zu bytes",
             kind, length);
        connection_end(connection);
    }
}

/* Takes all that is complete. Returns the bytes used. */
static size_t packets(struct connection *connection, const char *data, size_t length) {
    size_t used = 0;
    while (connection->state != ENDED) {
        const unsigned char *at = (const unsigned char *)data + used;
        size_t left = length - used, rest = 0, start = 1;
        bool known = false;
        for (; start <= LENGTH_BYTES && start < left && !known; start++) {
            rest |= (size_t)(at[start] & 0x7F) << (7 * (start - 1));
            known = !(at[start] & 0x80);
        }
        if (!known && start > LENGTH_BYTES) {
            fail(PROTOCOL, connection, "a packet's length has no end");
            connection_end(connection);
        }
        if (!known || left < start + rest) break;
        packet(connection, at[0], at + start, rest);
        used += start + rest;
    }
    return used;
}

static void message(struct connection *connection, const char *data, size_t length) {
    struct buffer *stream = &connection->stream;
    if (!stream->length) {
        size_t used = packets(connection, data, length);
        if (used < length) buffer_append(stream, data + used, length - used);
        return;
    }
    buffer_append(stream, data, length);
    buffer_consume(stream, packets(connection, stream->data, stream->length));
}

static void publish(struct connection *connection, const char *topic, const char *value, uint64_t request) {
    struct buffer *out = &connection->packets;
    head(out, PUBLISH_QOS1, 2 + strlen(topic) + 2 + (size_t)options.size);
    text(out, topic);
    two(out, request % IDENTIFIERS + 1);
    buffer_append(out, value, (size_t)options.size);
}

const struct protocol protocol_mqtt = {
    .name = "mqtt",
    .subprotocol = "mqtt",
    .binary = true,
    .opened = opened,
    .message = message,
    .publish = publish,
    .flush = flush,
};
