/* Text frames that hold a value and nothing else: nchan, and the floor. */
#include "generator.h"

static void opened(struct connection *connection) { connection_ready(connection); }

static void message(struct connection *connection, const char *text, size_t length) {
    if (connection->publisher)
        publish_answered(connection, connection->answers + 1);
    else
        check_received(connection, text, length);
}

static void publish(struct connection *connection, const char *topic, const char *value, uint64_t request) {
    (void)topic; /* the request target has told it */
    (void)request; /* answers come in turn */
    websocket_text(connection, value, (size_t)options.size);
}

const struct protocol protocol_plain = {.name = "plain", .opened = opened, .message = message, .publish = publish};
