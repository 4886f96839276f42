/* Sockets: dialled a few at a time, read with one call per event into one large buffer that all share. */
#include "generator.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum {
    AT_ONCE = 128,             /* connections that are being opened at the same time */
    READ_BYTES = 512 * 1024,   /* what one read may bring: many frames, so that reads do not limit us */
    EVENTS = 512,
    PER_SOURCE = 8000,         /* connections per source address, far below the 28,000 ports that one has */
    LONGEST_WAIT_MS = 1000,
};

struct connection *subscribers, *publishers;
uint64_t receive_calls, received_bytes;
int ended_count;
int64_t loop_now;

static int epoll_fd = -1, timer_fd = -1, opening, opened;
static int64_t armed;
static char *scratch;
static size_t scratch_capacity;

/* --- Buffers --------------------------------------------------------------------------------------------------- */

void buffer_reserve(struct buffer *buffer, size_t more) {
    if (buffer->length + more <= buffer->capacity) return;
    size_t capacity = buffer->capacity ? buffer->capacity : 256;
    while (capacity < buffer->length + more) capacity *= 2;
    buffer->data = realloc(buffer->data, capacity);
    if (!buffer->data) give_up("out of memory");
    buffer->capacity = capacity;
}

void buffer_append(struct buffer *buffer, const void *data, size_t length) {
    buffer_reserve(buffer, length);
    memcpy(buffer->data + buffer->length, data, length);
    buffer->length += length;
}

void buffer_text(struct buffer *buffer, const char *text) { buffer_append(buffer, text, strlen(text)); }

void buffer_number(struct buffer *buffer, uint64_t number) {
    char text[20];
    int at = sizeof text;
    do text[--at] = (char)('0' + number % 10);
    while (number /= 10);
    buffer_append(buffer, text + at, sizeof text - (size_t)at);
}

void buffer_consume(struct buffer *buffer, size_t length) {
    buffer->length -= length;
    if (buffer->length) memmove(buffer->data, buffer->data + length, buffer->length);
}

/* --- One connection -------------------------------------------------------------------------------------------- */

void target_for(char target[MAX_TARGET], const char *pattern, const char *topic) {
    const char *mark = strstr(pattern, "{topic}");
    int length = mark ? snprintf(target, MAX_TARGET, "%.*s%s%s", (int)(mark - pattern), pattern, topic, mark + 7)
                      : snprintf(target, MAX_TARGET, "%s", pattern);
    if (length >= MAX_TARGET) give_up("the request target is too long: %s", pattern);
}

static void watch(struct connection *connection, int operation, bool writing) {
    struct epoll_event event = {.events = EPOLLIN | (writing ? EPOLLOUT : 0), .data.ptr = connection};
    if (epoll_ctl(epoll_fd, operation, connection->fd, &event)) give_up("epoll_ctl: %s", strerror(errno));
    connection->wants_write = writing;
}

void connection_end(struct connection *connection) {
    if (connection->state == ENDED) return;
    if (connection->state != READY) opening--;
    connection->state = ENDED;
    ended_count++;
    close(connection->fd);
}

void connection_ready(struct connection *connection) {
    connection->state = READY;
    opening--;
    opened++;
}

void connection_send(struct connection *connection) {
    struct buffer *out = &connection->out;
    if (connection->state == ENDED || connection->state == DIALLING || !out->length) return;
    ssize_t sent = send(connection->fd, out->data, out->length, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        fail(CLOSED, connection, "sending failed: %s", strerror(errno));
        connection_end(connection);
        return;
    }
    if (sent > 0) buffer_consume(out, (size_t)sent);
    if ((out->length > 0) != connection->wants_write) watch(connection, EPOLL_CTL_MOD, out->length > 0);
}

static void dial(struct connection *connection) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)options.port)};
    /* The whole of 127/8 is ours: other source addresses give other ports. */
    struct sockaddr_in from = {
        .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 256 + connection->index / PER_SOURCE),
    };
    int on = 1;
    opening++;
    connection->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (connection->fd < 0) give_up("socket: %s", strerror(errno));
    setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(connection->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    if (inet_pton(AF_INET, options.host, &to.sin_addr) != 1) give_up("not an IPv4 address: %s", options.host);
    if (bind(connection->fd, (struct sockaddr *)&from, sizeof from)) give_up("bind: %s", strerror(errno));
    if (connect(connection->fd, (struct sockaddr *)&to, sizeof to) && errno != EINPROGRESS) {
        fail(REFUSED, connection, "connect: %s", strerror(errno));
        connection->state = DIALLING;
        connection_end(connection);
        return;
    }
    connection->state = DIALLING;
    watch(connection, EPOLL_CTL_ADD, true);
}

static void dialled(struct connection *connection) {
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(connection->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error) {
        fail(REFUSED, connection, "connect: %s", strerror(error));
        connection_end(connection);
        return;
    }
    if (connection->publisher && options.publish_by_http) {
        connection_ready(connection);
        watch(connection, EPOLL_CTL_MOD, false);
        return;
    }
    char target[MAX_TARGET];
    target_for(target, connection->publisher ? options.publish_target : options.subscribe_target,
               topic_name(connection->topic));
    connection->state = UPGRADING;
    websocket_request(connection, target, options.protocol->subprotocol);
    connection_send(connection);
}

/* Takes from what was read all that is complete. Returns the bytes used. */
static size_t take(struct connection *connection, const char *data, size_t length) {
    if (connection->publisher && options.publish_by_http) return http_answers(connection, data, length);
    size_t used = 0;
    if (connection->state == UPGRADING) {
        used = websocket_answer(connection, data, length, options.protocol->subprotocol);
        if (!used || connection->state == ENDED) return used;
        connection->state = GREETING;
        options.protocol->opened(connection);
    }
    used += websocket_frames(connection, data + used, length - used);
    if (options.protocol->flush && connection->state != ENDED) options.protocol->flush(connection);
    return used;
}

static void readable(struct connection *connection) {
    struct buffer *in = &connection->in;
    size_t before = in->length;
    if (scratch_capacity < before + READ_BYTES) {
        scratch_capacity = before + READ_BYTES;
        scratch = realloc(scratch, scratch_capacity);
        if (!scratch) give_up("out of memory");
    }
    ssize_t got = recv(connection->fd, scratch + before, READ_BYTES, 0);
    loop_now = now_ns();
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
        fail(CLOSED, connection, "the connection was lost: %s", got ? strerror(errno) : "end of stream");
        connection_end(connection);
        return;
    }
    receive_calls++;
    received_bytes += (uint64_t)got;
    if (before) memcpy(scratch, in->data, before);
    size_t length = before + (size_t)got, used = take(connection, scratch, length);
    in->length = 0;
    if (used < length) buffer_append(in, scratch + used, length - used);
}

/* --- All of them ----------------------------------------------------------------------------------------------- */

void connections_wait(int64_t until) {
    static struct epoll_event events[EVENTS];
    if (until != armed && until != INT64_MAX) {
        struct itimerspec when = {.it_value = {.tv_sec = until / NS_PER_SECOND, .tv_nsec = until % NS_PER_SECOND}};
        timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
        armed = until;
    }
    int count = epoll_wait(epoll_fd, events, EVENTS, LONGEST_WAIT_MS);
    for (int i = 0; i < count; i++) {
        struct connection *connection = events[i].data.ptr;
        if (!connection) {
            uint64_t expirations;
            if (read(timer_fd, &expirations, sizeof expirations) > 0) armed = 0;
            continue;
        }
        if (connection->state == ENDED) continue;
        if (connection->state == DIALLING) {
            dialled(connection);
            continue;
        }
        if (events[i].events & EPOLLOUT) connection_send(connection);
        if (connection->state != ENDED && events[i].events & ~(unsigned)EPOLLOUT) readable(connection);
    }
    loop_now = now_ns();
}

bool connections_open(void) {
    int all = options.subscribers + options.publishers, begun = 0;
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    if (epoll_fd < 0 || timer_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, timer_fd, &event))
        give_up("epoll: %s", strerror(errno));
    subscribers = calloc((size_t)options.subscribers + 1, sizeof *subscribers);
    publishers = calloc((size_t)options.publishers + 1, sizeof *publishers);
    if (!subscribers || !publishers) give_up("out of memory");
    int64_t last = now_ns();
    for (int seen = 0, told = 0; opened < all;) {
        for (; begun < all && opening < AT_ONCE && !ended_count; begun++) {
            bool publisher = begun >= options.subscribers;
            int index = publisher ? begun - options.subscribers : begun;
            struct connection *connection = publisher ? &publishers[index] : &subscribers[index];
            connection->publisher = publisher;
            connection->index = (uint32_t)index;
            connection->topic = (uint32_t)(index % options.topics);
            dial(connection);
        }
        if (ended_count) return false;
        connections_wait(INT64_MAX);
        if (options.protocol->timer) options.protocol->timer(loop_now);
        if (opened != seen) last = loop_now;
        seen = opened;
        if (opened - told >= 500 || opened == all) {
            progress("%d of %d connections are open", opened, all);
            told = opened;
        }
        if (loop_now - last > (int64_t)(options.patience * NS_PER_SECOND)) {
            fail(STALLED, NULL, "%d of %d connections were opened, then nothing happened for %.0f s", opened, all,
                 options.patience);
            return false;
        }
    }
    return true;
}
