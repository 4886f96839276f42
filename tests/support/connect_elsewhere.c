/* Connections to ports of the loopback that CONNECT_ELSEWHERE names (7000=8000,7001=8001) go to other ports of it. To be
 * preloaded into a node: it reaches each Redis through a proxy of its own, whatever address a Redis tells of itself. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static unsigned int elsewhere(unsigned int port)
{
	const char *entry = getenv("CONNECT_ELSEWHERE");
	unsigned int from, to;

	while (entry && sscanf(entry, "%u=%u", &from, &to) == 2) {
		if (from == port)
			return to;
		entry = strchr(entry, ',');
		if (entry)
			entry++;
	}
	return port;
}

int connect(int socket, const struct sockaddr *address, socklen_t length)
{
	int (*next)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "connect");
	struct sockaddr_in target;

	if (address->sa_family != AF_INET || length < sizeof(target))
		return next(socket, address, length);
	memcpy(&target, address, sizeof(target));
	if (target.sin_addr.s_addr == htonl(INADDR_LOOPBACK))
		target.sin_port = htons(elsewhere(ntohs(target.sin_port)));
	return next(socket, (struct sockaddr *)&target, sizeof(target));
}
