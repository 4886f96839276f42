/* What the two files of the C floor share; floor.c says what it is for. */
#ifndef FLOOR_H
#define FLOOR_H

#include <stdbool.h>
#include <stddef.h>

enum {
	KEY_BYTES = 24,                  /* RFC 6455, section 4.1: a base64-encoded nonce of 16 bytes */
	HANDSHAKE_RESPONSE_BYTES = 160,  /* its text is 129 bytes */
};

struct topic {
	struct topic *next;               /* of the same bucket */
	struct connection **subscribers;  /* in no particular order */
	size_t count, room;
	unsigned char *run;               /* frames of this turn of the loop, which each subscriber is sent at once */
	size_t run_length, run_room;
	struct topic *next_to_send;
	size_t name_length;
	char name[];
};

struct connection {
	int descriptor;
	bool is_closed;
	bool is_waiting;          /* in the list of publishers that wait for a slow subscriber */
	struct connection *next;  /* of that list */
	struct connection *next_closed;
	bool is_websocket;
	bool has_published;
	size_t unanswered;        /* publishes of this turn of the loop */
	struct connection *next_to_answer;
	struct topic *topic;      /* NULL until it has subscribed, so always for a publisher and an echo */
	size_t position;          /* in topic->subscribers */
	char *input;
	size_t input_length, input_room;
	size_t taken;             /* of the input, while it is worked through */
	unsigned char *pending;   /* what the socket has not taken yet */
	size_t pending_length;
};

struct request {
	const char *topic; /* into the text that was read, like key; NULL for an echo */
	size_t topic_length;
	const char *key; /* of KEY_BYTES */
	bool is_upgrade;
	size_t body_length;
};

/* Read the `length` bytes of a request's head, the empty line included. Returns whether it is one that is served. */
bool read_request(const char *text, size_t length, struct request *request);

/* Write the answer to a WebSocket upgrade, ended by a NUL. */
void handshake_response(const char key[KEY_BYTES], char response[HANDSHAKE_RESPONSE_BYTES]);

#endif
