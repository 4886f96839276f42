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
	size_t name_length;
	char name[];
};

struct connection {
	int descriptor;
	bool is_closed;
	bool is_waiting;          /* in the list of publishers that wait for a slow subscriber */
	struct connection *next;  /* of that list */
	struct connection *next_closed;
	struct topic *topic;      /* NULL until it has subscribed, so always for a publisher */
	size_t position;          /* in topic->subscribers */
	char *input;
	size_t input_length, input_room;
	unsigned char *pending;   /* what the socket has not taken yet */
	size_t pending_length;
};

struct request {
	const char *topic; /* into the text that was read, like key */
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
