/* NATS over WebSocket: its text protocol (docs.nats.io, "Client Protocol") inside binary frames. Frames are not messages
 * there: one frame may hold many lines, and a line may begin in one frame and end in the next, so what is incomplete
 * waits in `stream`.
 *
 * NATS confirms no publish by itself. What its clients do instead is a flush: PING after what was published, and the PONG
 * tells that the server has processed all before it. That counts as the answer here; one PING is under way at a time, so
 * publishes share it. */
#include "generator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char CONNECT[] =
    "CONNECT {\"verbose\":false,\"pedantic\":false,\"echo\":false,\"lang\":\"c\",\"version\":\"1\",\"protocol\":1}\r\n";

static void send_packets(struct connection *connection) {
    websocket_binary(connection, connection->packets.data, connection->packets.length);
    connection->packets.length = 0;
    connection_send(connection);
}

static void opened(struct connection *connection) { (void)connection; /* the server speaks first */ }

static void greet(struct connection *connection) {
    struct buffer *out = &connection->packets;
    buffer_text(out, CONNECT);
    if (!connection->publisher) {
        buffer_text(out, "SUB ");
        buffer_text(out, topic_name(connection->topic));
        buffer_text(out, " 1\r\n");
    }
    buffer_text(out, "PING\r\n"); /* its answer tells that the subscription stands */
    send_packets(connection);
}

static void pong(struct connection *connection) {
    if (connection->state == GREETING) {
        connection_ready(connection);
        return;
    }
    if (!connection->flushing) {
        fail(PROTOCOL, connection, "a PONG that nobody asked for");
        return;
    }
    uint64_t until = connection->flushing;
    connection->flushing = 0;
    while (connection->answers < until) {
        uint64_t before = connection->answers;
        publish_answered(connection, before + 1);
        if (connection->answers == before) return; /* it has failed */
    }
}

/* MSG <subject> <subscription> [reply-to] <bytes>. Returns the bytes of the value; -1 if this is no such line. */
static long value_length(const char *line, size_t length) {
    const char *last = memrchr(line, ' ', length);
    char *end;
    if (!last || last + 1 == line + length) return -1;
    long found = strtol(last + 1, &end, 10);
    return end == line + length && found >= 0 ? found : -1;
}

static bool is(const char *line, size_t length, const char *with) {
    size_t wanted = strlen(with);
    return length >= wanted && !memcmp(line, with, wanted);
}

/* Takes all that is complete. Returns the bytes used. */
static size_t lines(struct connection *connection, const char *data, size_t length) {
    size_t used = 0;
    while (used < length && connection->state != ENDED) {
        const char *line = data + used, *end = memmem(line, length - used, "\r\n", 2);
        if (!end) break;
        size_t size = (size_t)(end - line), whole = size + 2;
        if (is(line, size, "MSG ")) {
            long value = value_length(line, size);
            if (value >= 0 && length - used < whole + (size_t)value + 2) break;
            if (value < 0 || memcmp(line + whole + value, "\r\n", 2)) {
                fail(PROTOCOL, connection, "not a message: %.*s", (int)(size < 100 ? size : 100), line);
                connection_end(connection);
                break;
            }
            check_received(connection, line + whole, (size_t)value);
            whole += (size_t)value + 2;
        } else if (is(line, size, "PONG")) {
            pong(connection);
        } else if (is(line, size, "PING")) {
            buffer_text(&connection->packets, "PONG\r\n");
            send_packets(connection);
        } else if (is(line, size, "INFO ")) {
            /* Also later, when the cluster changes; that needs no answer. */
            if (connection->state == GREETING && !connection->greeted) {
                connection->greeted = true;
                greet(connection);
            }
        } else if (!is(line, size, "+OK")) {
            fail(is(line, size, "-ERR") ? REFUSED : PROTOCOL, connection, "unexpected: %.*s",
                 (int)(size < 100 ? size : 100), line);
            connection_end(connection);
            break;
        }
        used += whole;
    }
    return used;
}

static void message(struct connection *connection, const char *text, size_t length) {
    struct buffer *stream = &connection->stream;
    if (!stream->length) {
        size_t used = lines(connection, text, length);
        if (used < length) buffer_append(stream, text + used, length - used);
        return;
    }
    buffer_append(stream, text, length);
    buffer_consume(stream, lines(connection, stream->data, stream->length));
}

static void publish(struct connection *connection, const char *topic, const char *value, uint64_t request) {
    (void)request; /* answers come in turn */
    struct buffer *out = &connection->packets;
    buffer_text(out, "PUB ");
    buffer_text(out, topic);
    buffer_text(out, " ");
    buffer_number(out, (uint64_t)options.size);
    buffer_text(out, "\r\n");
    buffer_append(out, value, (size_t)options.size);
    buffer_text(out, "\r\n");
}

static void flush(struct connection *connection) {
    if (!connection->publisher || connection->state != READY) return;
    if (!connection->flushing && connection->requests > connection->answers) {
        connection->flushing = connection->requests;
        buffer_text(&connection->packets, "PING\r\n");
    }
    if (connection->packets.length) send_packets(connection);
}

const struct protocol protocol_nats = {
    .name = "nats",
    .binary = true,
    .opened = opened,
    .message = message,
    .publish = publish,
    .flush = flush,
};
