/* Socket.IO protocol 5 over Engine.IO 4: a digit of Engine.IO (0 open, 1 close, 2 ping, 3 pong, 4 message), and in
 * messages one of Socket.IO (0 connect, 1 disconnect, 2 event, 3 acknowledgement, 4 refused), then an id and JSON. */
#include "generator.h"

#include <stdio.h>
#include <string.h>

static const char UPDATE[] = "42[\"update\",\"";

static bool begins(const char *text, size_t length, const char *with) {
    size_t wanted = strlen(with);
    return length >= wanted && !memcmp(text, with, wanted);
}

static void send_text(struct connection *connection, const char *text) {
    websocket_text(connection, text, strlen(text));
    connection_send(connection);
}

static void opened(struct connection *connection) { (void)connection; /* the server speaks first */ }

static void acknowledgement(struct connection *connection, const char *text, size_t length) {
    uint64_t request = 0;
    size_t at = 2;
    for (; at < length && text[at] >= '0' && text[at] <= '9'; at++) request = request * 10 + (uint64_t)(text[at] - '0');
    if (at == 2) {
        fail(PROTOCOL, connection, "an acknowledgement without an id");
    } else if (connection->publisher) {
        publish_answered(connection, request);
    } else if (connection->state == GREETING) {
        connection_ready(connection);
    } else {
        fail(PROTOCOL, connection, "an unexpected acknowledgement");
    }
}

static void update(struct connection *connection, const char *text, size_t length) {
    const char *value = text + sizeof UPDATE - 1, *end = text + length;
    const char *quote = memchr(value, '"', (size_t)(end - value));
    /* Behind the value: the end, or with connection state recovery ,"<offset>" before it. */
    bool whole = quote && ((end - quote == 2 && quote[1] == ']') ||
                           (end - quote > 5 && quote[1] == ',' && quote[2] == '"' && end[-2] == '"' && end[-1] == ']'));
    if (whole)
        check_received(connection, value, (size_t)(quote - value));
    else
        fail(CORRUPT, connection, "not a whole event: %.*s", (int)(length < 100 ? length : 100), text);
}

static void message(struct connection *connection, const char *text, size_t length) {
    char subscribe[MAX_TOPIC + 32];
    if (begins(text, length, UPDATE)) {
        update(connection, text, length);
    } else if (begins(text, length, "43")) {
        acknowledgement(connection, text, length);
    } else if (begins(text, length, "2")) {
        send_text(connection, "3");
    } else if (begins(text, length, "0{") && connection->state == GREETING) {
        send_text(connection, "40");
    } else if (begins(text, length, "40{") && connection->state == GREETING) {
        if (connection->publisher) {
            connection_ready(connection);
        } else {
            snprintf(subscribe, sizeof subscribe, "420[\"subscribe\",\"%s\"]", topic_name(connection->topic));
            send_text(connection, subscribe);
        }
    } else {
        fail(PROTOCOL, connection, "unexpected: %.*s", (int)(length < 100 ? length : 100), text);
        connection_end(connection);
    }
}

static void publish(struct connection *connection, const char *topic, const char *value, uint64_t request) {
    char event[MAX_TOPIC + 4096];
    int length = snprintf(event, sizeof event, "42%llu[\"publish\",\"%s\",\"%.*s\"]", (unsigned long long)request, topic,
                          options.size, value);
    websocket_text(connection, event, (size_t)length);
}

const struct protocol protocol_socketio = {.name = "socketio", .opened = opened, .message = message, .publish = publish};
