/* The C floor's reading of HTTP requests, and its half of the WebSocket handshake (RFC 6455, section 4.2.2). */
#define _GNU_SOURCE
#include "floor.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
	BLOCK_BYTES = 64,
	LENGTH_BYTES = 8,
	DIGEST_WORDS = 5,
	DIGEST_BYTES = 20,
	ACCEPT_CHARACTERS = 28,
};

static const char GUID[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
static const char UPGRADE_START[] = "GET /sub?id=";
static const char ECHO_START[] = "GET /echo ";
static const char PUBLISH_START[] = "POST /pub?id=";

static uint32_t rotate_left(uint32_t word, int bits) {
	return word << bits | word >> (32 - bits);
}

/* One block of SHA-1 (RFC 3174, section 6.1). */
static void sha1_block(uint32_t state[DIGEST_WORDS], const unsigned char block[BLOCK_BYTES]) {
	uint32_t words[80];
	for (int i = 0; i < 16; i++)
		words[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 |
		           block[4 * i + 3];
	for (int i = 16; i < 80; i++)
		words[i] = rotate_left(words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16], 1);
	uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
	for (int i = 0; i < 80; i++) {
		uint32_t mixed;
		if (i < 20)
			mixed = ((b & c) | (~b & d)) + 0x5a827999;
		else if (i < 40)
			mixed = (b ^ c ^ d) + 0x6ed9eba1;
		else if (i < 60)
			mixed = ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc;
		else
			mixed = (b ^ c ^ d) + 0xca62c1d6;
		uint32_t next = rotate_left(a, 5) + mixed + e + words[i];
		e = d, d = c, c = rotate_left(b, 30), b = a, a = next;
	}
	state[0] += a, state[1] += b, state[2] += c, state[3] += d, state[4] += e;
}

/* SHA-1 of a key with the GUID behind it: 60 bytes, so with its padding always two blocks. */
static void accept_digest(const char key[KEY_BYTES], unsigned char digest[DIGEST_BYTES]) {
	unsigned char message[2 * BLOCK_BYTES] = {0};
	size_t length = KEY_BYTES + sizeof GUID - 1;
	memcpy(message, key, KEY_BYTES);
	memcpy(message + KEY_BYTES, GUID, sizeof GUID - 1);
	message[length] = 0x80;
	for (int i = 0; i < LENGTH_BYTES; i++)
		message[sizeof message - 1 - i] = (unsigned char)((uint64_t)length * 8 >> 8 * i);
	uint32_t state[DIGEST_WORDS] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
	sha1_block(state, message);
	sha1_block(state, message + BLOCK_BYTES);
	for (int i = 0; i < DIGEST_BYTES; i++)
		digest[i] = (unsigned char)(state[i / 4] >> (24 - 8 * (i % 4)));
}

static void base64(const unsigned char digest[DIGEST_BYTES], char text[ACCEPT_CHARACTERS + 1]) {
	static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char *out = text;
	for (int i = 0; i < DIGEST_BYTES; i += 3) {
		uint32_t third = i + 2 < DIGEST_BYTES ? digest[i + 2] : 0; /* 20 bytes leave two in the last group */
		uint32_t group = (uint32_t)digest[i] << 16 | (uint32_t)digest[i + 1] << 8 | third;
		for (int shift = 18; shift >= 0; shift -= 6)
			*out++ = alphabet[group >> shift & 0x3f];
	}
	text[ACCEPT_CHARACTERS - 1] = '=';
	text[ACCEPT_CHARACTERS] = '\0';
}

void handshake_response(const char key[KEY_BYTES], char response[HANDSHAKE_RESPONSE_BYTES]) {
	unsigned char digest[DIGEST_BYTES];
	char accept[ACCEPT_CHARACTERS + 1];
	accept_digest(key, digest);
	base64(digest, accept);
	snprintf(response, HANDSHAKE_RESPONSE_BYTES,
	         "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
	         "Sec-WebSocket-Accept: %s\r\n\r\n",
	         accept);
}

/* Find a header's value. The head ends with an empty line, so there is always a "\r\n" behind the last one. */
static const char *header(const char *text, size_t length, const char *name) {
	size_t name_length = strlen(name);
	const char *end = text + length;
	for (const char *line = memmem(text, length, "\r\n", 2); line != NULL;) {
		line += 2;
		if ((size_t)(end - line) > name_length && line[name_length] == ':' &&
		    strncasecmp(line, name, name_length) == 0) {
			line += name_length + 1;
			while (*line == ' ')
				line++;
			return line;
		}
		line = memmem(line, (size_t)(end - line), "\r\n", 2);
	}
	return NULL;
}

/* Find the key of an upgrade. Returns whether there is one. */
static bool read_key(const char *text, size_t length, struct request *request) {
	request->is_upgrade = true;
	request->key = header(text, length, "sec-websocket-key");
	return request->key != NULL && strcspn(request->key, "\r") == KEY_BYTES;
}

bool read_request(const char *text, size_t length, struct request *request) {
	*request = (struct request){0};
	size_t start;
	if (length > sizeof ECHO_START && memcmp(text, ECHO_START, sizeof ECHO_START - 1) == 0)
		return read_key(text, length, request);
	if (length > sizeof UPGRADE_START && memcmp(text, UPGRADE_START, sizeof UPGRADE_START - 1) == 0) {
		start = sizeof UPGRADE_START - 1;
		if (!read_key(text, length, request))
			return false;
	} else if (length > sizeof PUBLISH_START && memcmp(text, PUBLISH_START, sizeof PUBLISH_START - 1) == 0) {
		start = sizeof PUBLISH_START - 1;
		const char *body_length = header(text, length, "content-length");
		if (body_length == NULL)
			return false;
		request->body_length = strtoul(body_length, NULL, 10);
	} else {
		return false;
	}
	request->topic = text + start;
	request->topic_length = strcspn(request->topic, " &\r");
	return request->topic_length > 0;
}
