/* The physical floor of fan-out: a bare epoll loop that joins what it writes.
 *
 * All updates of a topic that one turn of the loop brings are framed once, one behind the other, and each subscriber gets
 * them with one send(). It keeps nothing, numbers nothing and promises nothing; what remains is what the kernel asks for
 * one write per subscriber and turn. Where updates come one by one, that is one write per delivery.
 *
 * It speaks the HTTP and WebSocket dialect of the nchan peer, so that the same load generator drives both:
 *
 *     GET  /sub?id=TOPIC   WebSocket upgrade; then one text frame per value of the topic
 *     POST /pub?id=TOPIC   keep-alive; the body is the value; answered 202 when every send() of it was made
 *     GET  /echo           WebSocket upgrade; then each text frame comes back: the reference for handshakes
 *
 * Never dropped: when a subscriber's socket is full, publishers wait until it has taken its frames.
 *
 * Usage: floor PORT       (0 picks a free port; "listening PORT" is printed when it accepts connections)
 */
#define _GNU_SOURCE
#include "floor.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	READ_CHUNK_BYTES = 4096,           /* room made before a first read; freed when a WebSocket has nothing to say */
	READ_MORE_BYTES = 1 << 16,         /* before a publisher's: all that is under way is to be joined in one turn */
	MAX_INPUT_BYTES = 1 << 20,         /* more than this without a whole request is no client of ours */
	EVENTS_PER_WAIT = 512,
	LISTEN_BACKLOG = 4096,             /* a storm of thousands of connections must not meet a full queue */
	TOPIC_BUCKETS = 1 << 16,           /* the largest case has 10,000 topics; a chain is nearly always one long */
	FRAME_HEADER_BYTES = 4,            /* values of 126 to 65,535 bytes need four, shorter ones two */
	MAX_VALUE_BYTES = 65535,
	SHORT_FRAME_BYTES = 125,
	MASK_BYTES = 4,
	FIN_TEXT = 0x81,
	FIN_PONG = 0x8a,
	EXTENDED_LENGTH = 126,
	OPCODE_TEXT = 0x1,
	OPCODE_CLOSE = 0x8,
	OPCODE_PING = 0x9,
};

static int epoll_descriptor;
static struct topic *topics[TOPIC_BUCKETS];
static int blocked_subscribers; /* with a part of a frame still to send; while there are any, no publish is taken */
static struct connection *waiting_publishers;
static struct topic *topics_to_send;             /* whose subscribers get what this turn has gathered */
static struct connection *publishers_to_answer;  /* after that */
static struct connection *closed_connections; /* whose memory this round's events may still refer to */

static void fail(const char *what) {
	perror(what);
	exit(1);
}

static void *reallocate(void *memory, size_t size) {
	void *grown = realloc(memory, size);
	if (grown == NULL)
		fail("realloc");
	return grown;
}

static void watch(struct connection *connection, int operation, unsigned events) {
	struct epoll_event event = {.events = events, .data.ptr = connection};
	if (epoll_ctl(epoll_descriptor, operation, connection->descriptor, &event) < 0)
		fail("epoll_ctl");
}

static struct topic *topic_of(const char *name, size_t length) {
	unsigned hash = 2166136261u; /* FNV-1a */
	for (size_t i = 0; i < length; i++)
		hash = (hash ^ (unsigned char)name[i]) * 16777619u;
	struct topic **slot = &topics[hash % TOPIC_BUCKETS];
	for (; *slot != NULL; slot = &(*slot)->next)
		if ((*slot)->name_length == length && memcmp((*slot)->name, name, length) == 0)
			return *slot;
	struct topic *made = reallocate(NULL, sizeof *made + length);
	*made = (struct topic){.name_length = length};
	memcpy(made->name, name, length);
	return *slot = made;
}

static void subscribe(struct connection *connection, struct topic *topic) {
	if (topic->count == topic->room) {
		topic->room = topic->room ? topic->room * 2 : 1;
		topic->subscribers = reallocate(topic->subscribers, topic->room * sizeof *topic->subscribers);
	}
	connection->topic = topic;
	connection->position = topic->count;
	topic->subscribers[topic->count++] = connection;
}

static void hang_up(struct connection *connection) {
	if (connection->is_closed)
		return;
	connection->is_closed = true;
	close(connection->descriptor);
	if (connection->topic != NULL) {
		struct topic *topic = connection->topic;
		struct connection *last = topic->subscribers[--topic->count];
		topic->subscribers[connection->position] = last;
		last->position = connection->position;
	}
	if (connection->pending_length > 0)
		blocked_subscribers--;
	connection->next_closed = closed_connections;
	closed_connections = connection;
}

/* After a round: nothing refers to closed connections any more but perhaps the list of waiting publishers. */
static void free_closed(void) {
	struct connection **slot = &closed_connections;
	while (*slot != NULL) {
		struct connection *connection = *slot;
		if (connection->is_waiting) {
			slot = &connection->next_closed;
			continue;
		}
		*slot = connection->next_closed;
		free(connection->input);
		free(connection->pending);
		free(connection);
	}
}

/* One send(); what the socket does not take waits as `pending`, never more than what one turn has joined. */
static void send_or_keep(struct connection *connection, const unsigned char *bytes, size_t length) {
	/* Behind what waits already: nothing overtakes it. */
	ssize_t sent = connection->pending_length > 0
	                   ? 0
	                   : send(connection->descriptor, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (sent == (ssize_t)length)
		return;
	if (sent < 0 && errno != EAGAIN) {
		shutdown(connection->descriptor, SHUT_RDWR); /* its end is then read from epoll, outside of any loop over it */
		return;
	}
	size_t taken = sent < 0 ? 0 : (size_t)sent;
	if (connection->pending_length == 0)
		blocked_subscribers++;
	connection->pending = reallocate(connection->pending, connection->pending_length + length - taken);
	memcpy(connection->pending + connection->pending_length, bytes + taken, length - taken);
	connection->pending_length += length - taken;
	watch(connection, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
}

static void send_pending(struct connection *connection) {
	ssize_t sent = send(connection->descriptor, connection->pending, connection->pending_length,
	                    MSG_DONTWAIT | MSG_NOSIGNAL);
	if (sent < 0) {
		if (errno != EAGAIN)
			hang_up(connection);
		return;
	}
	connection->pending_length -= (size_t)sent;
	memmove(connection->pending, connection->pending + sent, connection->pending_length);
	if (connection->pending_length == 0) {
		blocked_subscribers--;
		watch(connection, EPOLL_CTL_MOD, EPOLLIN);
	}
}

/* Write the head of an unmasked text frame. Returns its length. */
static size_t frame_header(unsigned char *frame, size_t length) {
	frame[0] = FIN_TEXT;
	if (length <= SHORT_FRAME_BYTES) {
		frame[1] = (unsigned char)length;
		return 2;
	}
	frame[1] = EXTENDED_LENGTH;
	frame[2] = (unsigned char)(length >> 8);
	frame[3] = (unsigned char)length;
	return FRAME_HEADER_BYTES;
}

/* Put a value behind those that this turn has brought for its topic already. */
static void gather(struct topic *topic, const char *value, size_t length) {
	size_t needed = topic->run_length + FRAME_HEADER_BYTES + length;
	if (needed > topic->run_room) {
		topic->run_room = needed * 2;
		topic->run = reallocate(topic->run, topic->run_room);
	}
	if (topic->run_length == 0) {
		topic->next_to_send = topics_to_send;
		topics_to_send = topic;
	}
	topic->run_length += frame_header(topic->run + topic->run_length, length);
	memcpy(topic->run + topic->run_length, value, length);
	topic->run_length += length;
}

/* The thing that is measured: one send() for each subscriber, whatever the number of updates. */
static void send_gathered(void) {
	for (; topics_to_send != NULL; topics_to_send = topics_to_send->next_to_send) {
		struct topic *topic = topics_to_send;
		for (size_t i = 0; i < topic->count; i++)
			send_or_keep(topic->subscribers[i], topic->run, topic->run_length);
		topic->run_length = 0;
	}
}

static void answer(struct connection *connection, const char *text) {
	send_or_keep(connection, (const unsigned char *)text, strlen(text));
}

/* After the deliveries: publishers are told of all of them at once. */
static void answer_publishers(void) {
	static const char ACCEPTED[] = "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n";
	enum { ACCEPTED_BYTES = sizeof ACCEPTED - 1, AT_ONCE = 256 };
	static unsigned char answers[AT_ONCE * ACCEPTED_BYTES];
	if (answers[0] == '\0')
		for (size_t i = 0; i < AT_ONCE; i++)
			memcpy(answers + i * ACCEPTED_BYTES, ACCEPTED, ACCEPTED_BYTES);
	for (; publishers_to_answer != NULL; publishers_to_answer = publishers_to_answer->next_to_answer) {
		struct connection *publisher = publishers_to_answer;
		while (publisher->unanswered > 0) {
			size_t count = publisher->unanswered < AT_ONCE ? publisher->unanswered : AT_ONCE;
			if (!publisher->is_closed)
				send_or_keep(publisher, answers, count * ACCEPTED_BYTES);
			publisher->unanswered -= count;
		}
	}
}

static void publish(struct connection *publisher, const struct request *request, const char *value) {
	gather(topic_of(request->topic, request->topic_length), value, request->body_length);
	publisher->has_published = true;
	if (publisher->unanswered++ == 0) {
		publisher->next_to_answer = publishers_to_answer;
		publishers_to_answer = publisher;
	}
}

/* Take one request off the input. Returns whether there was a whole one. */
static bool take_request(struct connection *connection) {
	char *input = connection->input + connection->taken;
	size_t left = connection->input_length - connection->taken;
	char *end = memmem(input, left, "\r\n\r\n", 4);
	if (end == NULL)
		return false;
	struct request request;
	size_t head = (size_t)(end - input) + 4;
	if (!read_request(input, head, &request) || request.body_length > MAX_VALUE_BYTES) {
		answer(connection, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
		shutdown(connection->descriptor, SHUT_RDWR);
		return false;
	}
	if (left < head + request.body_length)
		return false;
	if (request.is_upgrade) {
		char response[HANDSHAKE_RESPONSE_BYTES];
		handshake_response(request.key, response);
		answer(connection, response);
		connection->is_websocket = true;
		if (request.topic != NULL) {
			send_gathered(); /* what came before belongs to those who are here already */
			subscribe(connection, topic_of(request.topic, request.topic_length));
		}
	} else {
		publish(connection, &request, input + head);
	}
	connection->taken += head + request.body_length;
	return true;
}

/* Take one (masked) frame off a WebSocket's input: a ping is answered, a close is obeyed. Text comes back on an echo
 * connection; a subscriber has nothing to say. */
static bool take_frame(struct connection *connection) {
	unsigned char *input = (unsigned char *)connection->input + connection->taken;
	size_t left = connection->input_length - connection->taken;
	if (left < 2)
		return false;
	size_t length = input[1] & 0x7f, head = 2 + MASK_BYTES;
	int opcode = input[0] & 0x0f;
	if (length == EXTENDED_LENGTH && connection->topic == NULL && opcode == OPCODE_TEXT) {
		head = FRAME_HEADER_BYTES + MASK_BYTES;
		if (left < head)
			return false;
		length = (size_t)input[2] << 8 | input[3];
	} else if (length > SHORT_FRAME_BYTES) {
		hang_up(connection);
		return false;
	}
	if (left < head + length)
		return false;
	if (opcode == OPCODE_CLOSE) {
		hang_up(connection);
		return false;
	}
	if (opcode == OPCODE_PING || (opcode == OPCODE_TEXT && connection->topic == NULL)) {
		static unsigned char frame[FRAME_HEADER_BYTES + MAX_VALUE_BYTES];
		const unsigned char *mask = input + head - MASK_BYTES;
		size_t start = frame_header(frame, length);
		if (opcode == OPCODE_PING)
			frame[0] = FIN_PONG;
		for (size_t i = 0; i < length; i++)
			frame[start + i] = input[head + i] ^ mask[i % MASK_BYTES];
		send_or_keep(connection, frame, start + length);
	}
	connection->taken += head + length;
	return true;
}

/* Take all that is complete, as long as publishers need not wait. */
static void take_input(struct connection *connection) {
	while (!connection->is_closed && connection->input_length > connection->taken) {
		if (connection->is_websocket) {
			if (!take_frame(connection))
				return;
		} else if (connection->is_waiting) {
			return;
		} else if (blocked_subscribers > 0) {
			connection->next = waiting_publishers;
			waiting_publishers = connection;
			connection->is_waiting = true;
			watch(connection, EPOLL_CTL_MOD, 0);
			return;
		} else if (!take_request(connection)) {
			return;
		}
	}
}

static void process_input(struct connection *connection) {
	take_input(connection);
	connection->input_length -= connection->taken;
	if (connection->taken > 0 && connection->input_length > 0)
		memmove(connection->input, connection->input + connection->taken, connection->input_length);
	connection->taken = 0;
	if (connection->is_websocket && connection->input_length == 0) {
		free(connection->input);
		connection->input = NULL;
		connection->input_room = 0;
	}
}

static void read_from(struct connection *connection) {
	size_t wanted = connection->has_published ? READ_MORE_BYTES : READ_CHUNK_BYTES;
	if (connection->input_room - connection->input_length < wanted) {
		connection->input_room = connection->input_length + wanted;
		connection->input = reallocate(connection->input, connection->input_room);
	}
	ssize_t got = recv(connection->descriptor, connection->input + connection->input_length,
	                   connection->input_room - connection->input_length, MSG_DONTWAIT);
	if (got > 0)
		connection->input_length += (size_t)got;
	if (got == 0 || (got < 0 && errno != EAGAIN) || connection->input_length > MAX_INPUT_BYTES)
		hang_up(connection);
	else
		process_input(connection);
}

static void wake_publishers(void) {
	struct connection *woken = waiting_publishers;
	waiting_publishers = NULL;
	while (woken != NULL) {
		struct connection *next = woken->next;
		woken->is_waiting = false;
		if (!woken->is_closed) {
			watch(woken, EPOLL_CTL_MOD, woken->pending_length > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN);
			process_input(woken);
		}
		woken = next;
	}
}

static void accept_all(int listener) {
	int descriptor, on = 1;
	while ((descriptor = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
		struct connection *connection = reallocate(NULL, sizeof *connection);
		*connection = (struct connection){.descriptor = descriptor};
		setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
		watch(connection, EPOLL_CTL_ADD, EPOLLIN);
	}
}

static int listen_on(int port) {
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	socklen_t size = sizeof address;
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
	    bind(listener, (struct sockaddr *)&address, size) < 0 || listen(listener, LISTEN_BACKLOG) < 0 ||
	    getsockname(listener, (struct sockaddr *)&address, &size) < 0)
		fail("listen");
	printf("listening %d\n", ntohs(address.sin_port));
	fflush(stdout);
	return listener;
}

int main(int count, char **arguments) {
	if (count != 2) {
		fprintf(stderr, "usage: floor PORT\n");
		return 2;
	}
	int listener = listen_on(atoi(arguments[1]));
	struct epoll_event events[EVENTS_PER_WAIT], listening = {.events = EPOLLIN, .data.ptr = NULL};
	epoll_descriptor = epoll_create1(EPOLL_CLOEXEC);
	if (epoll_descriptor < 0 || epoll_ctl(epoll_descriptor, EPOLL_CTL_ADD, listener, &listening) < 0)
		fail("epoll");
	for (;;) {
		int ready = epoll_wait(epoll_descriptor, events, EVENTS_PER_WAIT, -1);
		if (ready < 0 && errno != EINTR)
			fail("epoll_wait");
		for (int i = 0; i < ready; i++) {
			struct connection *connection = events[i].data.ptr;
			if (connection == NULL) {
				accept_all(listener);
				continue;
			}
			if (!connection->is_closed && (events[i].events & EPOLLOUT))
				send_pending(connection);
			if (!connection->is_closed && (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
				read_from(connection);
		}
		if (blocked_subscribers == 0 && waiting_publishers != NULL)
			wake_publishers();
		send_gathered();
		answer_publishers();
		free_closed();
	}
}
