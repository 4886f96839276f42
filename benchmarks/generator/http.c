/* Publishing by POST over a connection that is kept: requests are pipelined, answers come in turn (RFC 9112, 9.3.2). */
#include "generator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void http_publish(struct connection *connection, const char *topic, const char *value) {
    char head[MAX_TARGET + 160], target[MAX_TARGET];
    target_for(target, options.publish_target, topic);
    int length = snprintf(head, sizeof head,
                          "POST %s HTTP/1.1\r\nHost: %s:%d\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n",
                          target, options.host, options.port, options.size);
    buffer_append(&connection->out, head, (size_t)length);
    buffer_append(&connection->out, value, (size_t)options.size);
}

/* Returns the length of the body that a head announces; -1 for chunks, which are not understood. */
static long body_length(const char *head, size_t length) {
    for (const char *line = head, *end = head + length; line < end;) {
        const char *next = memchr(line, '\n', (size_t)(end - line));
        if (!next) break;
        if (!strncasecmp(line, "Content-Length:", 15)) return strtol(line + 15, NULL, 10);
        if (!strncasecmp(line, "Transfer-Encoding:", 18)) return -1;
        line = next + 1;
    }
    return 0;
}

size_t http_answers(struct connection *connection, const char *data, size_t length) {
    size_t used = 0;
    while (used < length) {
        const char *answer = data + used, *end = memmem(answer, length - used, "\r\n\r\n", 4);
        if (!end) break;
        size_t head = (size_t)(end - answer) + 4;
        long body = body_length(answer, head);
        if (strncmp(answer, "HTTP/1.1 2", 10) || body < 0) {
            fail(REFUSED, connection, "a POST was answered with %.40s", answer);
            connection_end(connection);
            break;
        }
        if (length - used < head + (size_t)body) break;
        used += head + (size_t)body;
        publish_answered(connection, connection->answers + 1);
    }
    return used;
}
