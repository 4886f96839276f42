/* CPU time, user and system, of the watched processes (proc(5)) and our own. */
#include "generator.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static double of_process(int pid) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    /* The name in parentheses may hold anything; utime and stime are fields 14 and 15. */
    const char *after = strrchr(text, ')');
    unsigned long long user = 0, system = 0;
    if (!after || sscanf(after + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &system) != 2)
        return 0;
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
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
