/* A load generator that believes nothing: it publishes numbered values, and every subscriber checks each update that it
 * receives against what was published, byte by byte and in order.
 *
 *     options.c     what was asked for
 *     main.c        one epoll loop: dial, warm up, measure, drain
 *     connection.c  sockets and their buffers
 *     websocket.c   client side of RFC 6455
 *     protocol_*.c  what is said inside: gateway.v1.json, plain text, Socket.IO, NATS, MQTT
 *     http.c        publishing by POST
 *     json.c        a cursor over JSON text
 *     publish.c     when to publish what
 *     check.c       what was published against what arrives
 *     histogram.c   latencies
 *     cpu.c         CPU time of the watched processes and our own
 *     report.c      the result as JSON
 *
 * Nothing is allocated per message. One process, one thread, so that publisher and subscribers share one clock and one
 * memory: a subscriber compares with the very bytes that were published.
 */
#ifndef GENERATOR_H
#define GENERATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- Options --------------------------------------------------------------------------------------------------- */

enum { MAX_WATCHED = 64, MAX_ROLES = 8, MAX_TARGET = 256, MAX_TOPIC = 64 };

struct watched {
    char role[16];
    int pid;
};

struct options {
    const struct protocol *protocol;
    const char *host;
    int port;
    const char *subscribe_target; /* "{topic}" in it stands for the topic */
    const char *publish_target;
    bool publish_by_http;
    int subscribers;
    int publishers;
    int topics;             /* subscriber i has topic i modulo this */
    const char *topic;      /* prefix of the topics' names */
    int size;               /* bytes of a value */
    double rate;            /* updates per second over all topics; 0: as fast as the window lets us */
    int window;             /* updates that may be under way: not answered, or not received by all */
    double warm_up, measure; /* seconds */
    uint64_t updates;        /* to publish in all, after which the window ends early; 0: as many as fit */
    double patience;        /* seconds without any progress after which we give up */
    int watched_count;
    struct watched watched[MAX_WATCHED];
};

void options_parse(struct options *options, int count, char **arguments);

/* --- Time ------------------------------------------------------------------------------------------------------ */

#define NS_PER_SECOND 1000000000LL

int64_t now_ns(void); /* CLOCK_MONOTONIC */

/* --- Buffers --------------------------------------------------------------------------------------------------- */

struct buffer {
    char *data;
    size_t length, capacity;
};

void buffer_reserve(struct buffer *buffer, size_t more);
void buffer_append(struct buffer *buffer, const void *data, size_t length);
void buffer_text(struct buffer *buffer, const char *text);
void buffer_number(struct buffer *buffer, uint64_t number);
void buffer_consume(struct buffer *buffer, size_t length);

/* --- Connections ----------------------------------------------------------------------------------------------- */

enum state {
    UNUSED,
    DIALLING,  /* TCP */
    UPGRADING, /* HTTP */
    GREETING,  /* what the protocol says first */
    READY,
    ENDED,
};

struct connection {
    int fd;
    enum state state;
    bool publisher;
    bool wants_write;
    uint32_t index;
    uint32_t topic; /* of a subscriber */
    struct buffer in, out;

    /* Checking (check.c). */
    uint64_t expected;                   /* number of the next update */
    uint64_t skipped_from, skipped_until; /* the last gap, to tell a late update from one sent twice */

    /* Publishing (publish.c): what is unanswered, by request number. */
    struct sent *sent;
    uint64_t requests, answers;
    bool touched; /* has to be flushed */

    /* gateway.v1.json: ids of section 5 of the protocol, versions of 6.4. */
    uint64_t received, acknowledged, numbered, peer_received, version;
    uint64_t request_limit, resend_limit;
    uint32_t acknowledge_after;
    int64_t unacknowledged_since;
    struct connection *next_to_acknowledge, *previous_to_acknowledge;
    struct buffer packets; /* written at the next flush, as one message */
    int packets_count;

    /* NATS and MQTT: what has arrived of an incomplete line or packet. */
    struct buffer stream;
    /* NATS: the last request before the PING that is under way, 0 for none. */
    uint64_t flushing;
    bool greeted;
};

bool connections_open(void);         /* all of them; false if one failed, which is recorded */
void connection_send(struct connection *connection); /* what is in `out`, as far as the kernel takes it */
void connection_end(struct connection *connection);
void connections_wait(int64_t until); /* serve sockets until something happened or the time has come */

/* Puts the topic into a request target. */
void target_for(char target[MAX_TARGET], const char *pattern, const char *topic);

extern struct options options;
extern struct connection *subscribers, *publishers;
extern int ended_count;              /* connections that are over: a failure each */
extern int64_t loop_now;             /* when the last read was done */
extern uint64_t receive_calls, received_bytes;

/* --- WebSocket ------------------------------------------------------------------------------------------------- */

void websocket_request(struct connection *connection, const char *target, const char *subprotocol);

/* Returns how many bytes of the answer were used; 0 if it is not complete. */
size_t websocket_answer(struct connection *connection, const char *data, size_t length, const char *subprotocol);

/* Hands every complete frame of the protocol's kind, text or binary, to the protocol, and answers pings. Returns the bytes used. */
size_t websocket_frames(struct connection *connection, const char *data, size_t length);

void websocket_text(struct connection *connection, const char *data, size_t length);
void websocket_binary(struct connection *connection, const char *data, size_t length);

/* --- Protocols ------------------------------------------------------------------------------------------------- */

struct protocol {
    const char *name;
    const char *subprotocol;                          /* to ask for in the handshake, or NULL */
    bool binary;                                      /* whether its frames are binary, not text */
    void (*opened)(struct connection *connection);    /* the WebSocket is open; ends in connection_ready */
    void (*message)(struct connection *connection, const char *text, size_t length);
    void (*publish)(struct connection *connection, const char *topic, const char *value, uint64_t request);
    /* The rest may be NULL. */
    bool (*may_publish)(const struct connection *connection);
    void (*flush)(struct connection *connection);     /* after all that one read brought, and after a turn's publishes */
    void (*timer)(int64_t now);                       /* every turn of the loop */
    int64_t (*next_timer)(void);                      /* when it has to be called; INT64_MAX for never */
};

extern const struct protocol protocol_gateway, protocol_plain, protocol_socketio, protocol_nats, protocol_mqtt;

void http_publish(struct connection *connection, const char *topic, const char *value);
size_t http_answers(struct connection *connection, const char *data, size_t length);

void connection_ready(struct connection *connection);

/* --- Publishing ------------------------------------------------------------------------------------------------ */

void publish_begin(int64_t start);
void publish_stop(void);
void publish_due(int64_t now);       /* publish all that may and should be published by now */
int64_t publish_next(void);          /* when publish_due has to be called; INT64_MAX if only progress can tell */
void publish_answered(struct connection *connection, uint64_t request);
const char *topic_name(uint32_t topic);

extern uint64_t published, answered, completed;
extern int64_t largest_lag;          /* ns between the time an update was scheduled for and its being sent */

/* --- Checking -------------------------------------------------------------------------------------------------- */

enum failure { LOST, DUPLICATED, SWAPPED, CORRUPT, PACKET_IDS, VERSIONS, PROTOCOL, CLOSED, REFUSED, STALLED, FAILURES };

struct update {
    int64_t scheduled;
    uint32_t awaited; /* subscribers that have not received it, and one for its answer */
};

void check_prepare(void);
bool check_free(uint32_t topic);     /* whether the ring of the topic has a place for another update */
const char *check_publish(uint32_t topic, int64_t scheduled, uint64_t *number); /* returns its value */
void check_answered(uint32_t topic, uint64_t number);
void check_received(struct connection *connection, const char *value, size_t length);
bool check_complete(void);           /* whether everybody has received everything */
void check_missing(void);            /* count what never arrived as lost */
void fail(enum failure kind, const struct connection *connection, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

extern uint64_t delivered;           /* checked deliveries, right or wrong */
extern uint64_t failures[FAILURES];
extern const char *const failure_names[FAILURES];

enum { QUOTED_FAILURES = 8, QUOTE_LENGTH = 240 };
extern char quoted_failures[QUOTED_FAILURES][QUOTE_LENGTH];
extern int quoted_failures_count;

/* --- Latencies ------------------------------------------------------------------------------------------------- */

struct histogram {
    uint64_t count, total, largest;
    uint32_t *buckets;
};

void histogram_prepare(struct histogram *histogram);
void histogram_record(struct histogram *histogram, int64_t ns);
int64_t histogram_quantile(const struct histogram *histogram, double quantile);

/* Of updates that were scheduled within the measured window. */
extern struct histogram delivery_latency, answer_latency;
extern int64_t window_start, window_end;

/* --- CPU ------------------------------------------------------------------------------------------------------- */

struct cpu {
    double own;
    int roles;
    const char *role[MAX_ROLES];
    double seconds[MAX_ROLES];
};

void cpu_read(struct cpu *cpu);

/* --- The result ------------------------------------------------------------------------------------------------ */

struct moment { /* counters at one time */
    int64_t at;
    uint64_t delivered, published, answered, receive_calls, received_bytes;
    struct cpu cpu;
};

void moment_take(struct moment *moment);
void report_print(const struct moment *begin, const struct moment *end);
bool report_failed(void);
void progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
void give_up(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn)); /* wrong use, not a result */

#endif
