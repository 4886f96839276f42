/* CPU time, user and system, of the watched processes, all their threads, and our own. */
#include "generator.h"

#include <string.h>
#include <sys/resource.h>
#include <time.h>

static double of_process(int pid) {
    clockid_t clock;
    struct timespec used;
    /* Exact, where the ticks of /proc would be a percent of a short window. */
    if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &used)) return 0;
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

void cpu_read(struct cpu *cpu) {
    struct rusage own;
    getrusage(RUSAGE_SELF, &own);
    *cpu = (struct cpu){.own = (double)(own.ru_utime.tv_sec + own.ru_stime.tv_sec) +
                               (double)(own.ru_utime.tv_usec + own.ru_stime.tv_usec) / 1e6};
    for (int i = 0; i < options.watched_count; i++) {
        const struct watched *each = &options.watched[i];
        int role = 0;
        while (role < cpu->roles && strcmp(cpu->role[role], each->role)) role++;
        if (role == MAX_ROLES) give_up("too many roles");
        if (role == cpu->roles) cpu->role[cpu->roles++] = each->role;
        cpu->seconds[role] += of_process(each->pid);
    }
}
