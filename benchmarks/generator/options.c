/* Options are name=value; the driver (driver.py) is who writes them. */
#include "generator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_SIZE = 40, MOST_SIZE = 4000 };

static double number(const char *name, const char *text, double least, double most) {
    char *end;
    double value = strtod(text, &end);
    if (!*text || *end || !(value >= least && value <= most)) give_up("%s must be a number from %g to %g", name, least, most);
    return value;
}

static const struct protocol *protocol(const char *name) {
    static const struct protocol *const known[] = {&protocol_gateway, &protocol_plain, &protocol_socketio,
                                                   &protocol_nats, &protocol_mqtt};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i]->name, name)) return known[i];
    give_up("unknown protocol %s", name);
}

static void watch(struct options *wanted, const char *text) {
    if (wanted->watched_count == MAX_WATCHED) give_up("too many processes to watch");
    struct watched *watched = &wanted->watched[wanted->watched_count++];
    if (sscanf(text, "%15[a-z]:%d", watched->role, &watched->pid) != 2) give_up("watch=role:pid, not %s", text);
}

static void option(struct options *wanted, const char *name, const char *value) {
    if (!strcmp(name, "protocol")) wanted->protocol = protocol(value);
    else if (!strcmp(name, "host")) wanted->host = value;
    else if (!strcmp(name, "port")) wanted->port = (int)number(name, value, 1, 65535);
    else if (!strcmp(name, "subscribe")) wanted->subscribe_target = value;
    else if (!strcmp(name, "publish")) wanted->publish_target = value;
    else if (!strcmp(name, "http")) wanted->publish_by_http = number(name, value, 0, 1) > 0;
    else if (!strcmp(name, "subscribers")) wanted->subscribers = (int)number(name, value, 1, 1e6);
    else if (!strcmp(name, "publishers")) wanted->publishers = (int)number(name, value, 1, 1e4);
    else if (!strcmp(name, "topics")) wanted->topics = (int)number(name, value, 1, 1e6);
    else if (!strcmp(name, "topic")) wanted->topic = value;
    else if (!strcmp(name, "size")) wanted->size = (int)number(name, value, LEAST_SIZE, MOST_SIZE);
    else if (!strcmp(name, "rate")) wanted->rate = number(name, value, 0, 1e7);
    else if (!strcmp(name, "window")) wanted->window = (int)number(name, value, 1, 65536);
    else if (!strcmp(name, "updates")) wanted->updates = (uint64_t)number(name, value, 0, 1e12);
    else if (!strcmp(name, "warm_up")) wanted->warm_up = number(name, value, 0, 3600);
    else if (!strcmp(name, "measure")) wanted->measure = number(name, value, 0.01, 3600);
    else if (!strcmp(name, "patience")) wanted->patience = number(name, value, 0.1, 3600);
    else if (!strcmp(name, "watch")) watch(wanted, value);
    else give_up("unknown option %s", name);
}

void options_parse(struct options *wanted, int count, char **arguments) {
    *wanted = (struct options){
        .protocol = &protocol_gateway,
        .host = "127.0.0.1",
        .subscribe_target = "/",
        .publish_target = "/",
        .subscribers = 1,
        .publishers = 1,
        .topics = 1,
        .topic = "benchmark",
        .size = 100,
        .window = 64,
        .warm_up = 1,
        .measure = 3,
        .patience = 10,
    };
    for (int i = 1; i < count; i++) {
        char *equals = strchr(arguments[i], '=');
        if (!equals) give_up("not name=value: %s", arguments[i]);
        *equals = '\0';
        option(wanted, arguments[i], equals + 1);
    }
    if (!wanted->port) give_up("port is missing");
    if (strlen(wanted->topic) > MAX_TOPIC - 16) give_up("the topic is too long");
    /* A topic without a subscriber would never be finished by deliveries, only by answers. */
    if (wanted->topics > wanted->subscribers) give_up("there are more topics than subscribers");
    /* Over WebSocket a plain publisher has one topic, that of its request target. */
    if (wanted->protocol == &protocol_plain && !wanted->publish_by_http && wanted->topics != wanted->publishers)
        give_up("plain publishers need a connection for each topic");
}
