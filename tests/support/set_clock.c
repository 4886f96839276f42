/* The time of day, so many seconds ahead as the file says that CLOCK_AHEAD names. To be preloaded into a redis-server:
 * its clock can then be set while it runs, and nobody else's moves. Other clocks than the time of day stay as they are. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long ahead(void)
{
	long seconds = 0;
	const char *path = getenv("CLOCK_AHEAD");
	FILE *file = path ? fopen(path, "r") : NULL;

	if (file) {
		if (fscanf(file, "%ld", &seconds) != 1)
			seconds = 0;
		fclose(file);
	}
	return seconds;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	struct timespec right;

	(void)zone;
	if (clock_gettime(CLOCK_REALTIME, &right) != 0)
		return -1;
	now->tv_sec = right.tv_sec + ahead();
	now->tv_usec = right.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *where)
{
	struct timeval now;

	gettimeofday(&now, NULL);
	if (where)
		*where = now.tv_sec;
	return now.tv_sec;
}
