/* Client side of RFC 6455, as much as the servers we measure need: no extensions, no fragments. */
#include "generator.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* The example of RFC 6455 section 1.3. A key that never changes spares us SHA-1, and the answer is still checked. */
static const char KEY[] = "dGhlIHNhbXBsZSBub25jZQ==";
static const char ACCEPT[] = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

enum { FIN = 0x80, MASKED = 0x80, TEXT = 0x1, BINARY = 0x2, CLOSE = 0x8, PING = 0x9, PONG = 0xA, MASK_BYTES = 4 };

void websocket_request(struct connection *connection, const char *target, const char *subprotocol) {
    char request[1024];
    int length = snprintf(request, sizeof request,
                          "GET %s HTTP/1.1\r\nHost: %s:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                          "Sec-WebSocket-Key: %s\r\nSec-WebSocket-Version: 13\r\n%s%s%s\r\n",
                          target, options.host, options.port, KEY, subprotocol ? "Sec-WebSocket-Protocol: " : "",
                          subprotocol ? subprotocol : "", subprotocol ? "\r\n" : "");
    buffer_append(&connection->out, request, (size_t)length);
}

/* Finds a header's value within the first `length` bytes; NULL if it is not there. */
static const char *header(const char *head, size_t length, const char *name) {
    size_t name_length = strlen(name);
    for (const char *line = head, *end = head + length; line < end;) {
        const char *next = memchr(line, '\n', (size_t)(end - line));
        if (!next) break;
        if ((size_t)(next - line) > name_length && !strncasecmp(line, name, name_length) && line[name_length] == ':') {
            const char *value = line + name_length + 1;
            while (*value == ' ') value++;
            return value;
        }
        line = next + 1;
    }
    return NULL;
}

size_t websocket_answer(struct connection *connection, const char *data, size_t length, const char *subprotocol) {
    const char *end = memmem(data, length, "\r\n\r\n", 4);
    if (!end) return 0;
    size_t head = (size_t)(end - data) + 4;
    const char *accept = header(data, head, "Sec-WebSocket-Accept");
    const char *chosen = header(data, head, "Sec-WebSocket-Protocol");
    if (strncmp(data, "HTTP/1.1 101", 12)) {
        fail(REFUSED, connection, "the upgrade was answered with %.40s", data);
        connection_end(connection);
    } else if (!accept || strncmp(accept, ACCEPT, sizeof ACCEPT - 1)) {
        fail(PROTOCOL, connection, "Sec-WebSocket-Accept is wrong");
        connection_end(connection);
    } else if (subprotocol && (!chosen || strncmp(chosen, subprotocol, strlen(subprotocol)))) {
        fail(PROTOCOL, connection, "the server did not choose the subprotocol %s", subprotocol);
        connection_end(connection);
    }
    return head;
}

static void frame(struct connection *connection, int opcode, const char *data, size_t length) {
    static uint32_t random_state = 0x9E3779B9; /* xorshift32: masks are there for proxies, not for secrecy */
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    unsigned char head[14];
    size_t size = 2;
    head[0] = (unsigned char)(FIN | opcode);
    if (length < 126) {
        head[1] = (unsigned char)(MASKED | length);
    } else if (length < 65536) {
        head[1] = MASKED | 126;
        head[size++] = (unsigned char)(length >> 8);
        head[size++] = (unsigned char)length;
    } else {
        head[1] = MASKED | 127;
        for (int shift = 56; shift >= 0; shift -= 8) head[size++] = (unsigned char)((uint64_t)length >> shift);
    }
    memcpy(head + size, &random_state, MASK_BYTES);
    size += MASK_BYTES;
    struct buffer *out = &connection->out;
    buffer_append(out, head, size);
    buffer_reserve(out, length + sizeof(uint64_t));
    char *to = out->data + out->length;
    uint64_t mask = (uint64_t)random_state << 32 | random_state;
    for (size_t i = 0; i < length; i += sizeof mask) {
        uint64_t word = 0;
        memcpy(&word, data + i, length - i < sizeof word ? length - i : sizeof word);
        word ^= mask;
        memcpy(to + i, &word, sizeof word);
    }
    out->length += length;
}

void websocket_text(struct connection *connection, const char *data, size_t length) {
    frame(connection, TEXT, data, length);
}

void websocket_binary(struct connection *connection, const char *data, size_t length) {
    frame(connection, BINARY, data, length);
}

size_t websocket_frames(struct connection *connection, const char *data, size_t length) {
    size_t used = 0;
    while (connection->state != ENDED && length - used >= 2) {
        const unsigned char *head = (const unsigned char *)data + used;
        size_t size = head[1], start = 2;
        if (size == 126) {
            if (length - used < 4) break;
            size = (size_t)head[2] << 8 | head[3];
            start = 4;
        } else if (size == 127) {
            if (length - used < 10) break;
            size = 0;
            for (int i = 2; i < 10; i++) size = size << 8 | head[i];
            start = 10;
        } else if (size & MASKED) {
            fail(PROTOCOL, connection, "the server sent a masked frame");
            connection_end(connection);
            break;
        }
        if (length - used < start + size) break;
        const char *content = data + used + start;
        if (head[0] == (FIN | (options.protocol->binary ? BINARY : TEXT))) {
            options.protocol->message(connection, content, size);
            used += start + size;
            continue;
        }
        switch (head[0]) {
        case FIN | PING:
            frame(connection, PONG, content, size);
            connection_send(connection);
            break;
        case FIN | PONG: break;
        case FIN | CLOSE: {
            int code = size >= 2 ? (unsigned char)content[0] << 8 | (unsigned char)content[1] : 0;
            fail(CLOSED, connection, "the server closed with %d %.*s", code, size > 2 ? (int)size - 2 : 0, content + 2);
            connection_end(connection);
            break;
        }
        default:
            fail(PROTOCOL, connection, "a frame that begins with 0x%02x was not expected", head[0]);
            connection_end(connection);
        }
        used += start + size;
    }
    return used;
}
