/* init.py and bridge.py as one C program: `init CONTROL KEEP BRIDGES COMMAND...`. See there for what it does and why. */

#define _GNU_SOURCE
#include "bridge.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#define HOME_FILES "/run/arena/home"
#define FREEZE_LIMIT_NS 2000000000ull
#define SETTLE_NS 200000
#define CPUCLOCK_SCHED 2
#define MOST_KEPT 256
#define MOST_REAPED 256 /* dead processes between two looks at arena's orders: a sandbox can make them without end */

enum { IN_KERNEL = 1, RUNNABLE = 2 }; /* states of threads that are neither stopped nor dead: D, and all others */

struct clock {
    int pid;
    uint64_t ns;
};

struct clocks {
    struct clock *at; /* in the order of the pids, as the kernel lists them */
    size_t count, room;
};

static pid_t command;
static struct clocks frozen; /* the clocks at the freeze, while `is_frozen` */
static int is_frozen;

/* ---- start ---- */

static int kept[MOST_KEPT];
static size_t kept_count;

static void keep(int fd) {
    if (kept_count == MOST_KEPT)
        fail(EMFILE, "too many descriptors to keep");
    kept[kept_count++] = fd;
}

static void close_all_but_kept(void) {
    DIR *folder = opendir("/proc/self/fd");
    if (!folder)
        fail(errno, "/proc/self/fd");
    for (struct dirent *entry; (entry = readdir(folder));) {
        int fd = atoi(entry->d_name), found = fd == dirfd(folder) || !isdigit(*entry->d_name);
        for (size_t i = 0; i < kept_count && !found; i++)
            found = kept[i] == fd;
        if (!found)
            close(fd);
    }
    closedir(folder);
}

static void copy_file(const char *from, const char *to) {
    char data[1 << 16];
    int source = open(from, O_RDONLY | O_CLOEXEC), copy = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ssize_t length = -1;
    while (source >= 0 && copy >= 0 && (length = read(source, data, sizeof data)) > 0) {
        ssize_t written = write(copy, data, (size_t)length);
        if (written != length)
            fail(written < 0 ? errno : ENOSPC, to);
    }
    if (length < 0)
        fail(errno, to);
    close(source);
    close(copy);
}

/* Copy a folder's files into another one, each owned by its user. */
static void fill(const char *from, const char *to) {
    DIR *folder = opendir(from);
    if (!folder && errno == ENOENT)
        return; /* no file to copy */
    if (!folder)
        fail(errno, from);
    if (mkdir(to, 0700) && errno != EEXIST)
        fail(errno, to);
    for (struct dirent *entry; (entry = readdir(folder));) {
        char source[PATH_MAX], copy[PATH_MAX];
        struct stat about;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        if (snprintf(source, sizeof source, "%s/%s", from, entry->d_name) >= PATH_MAX ||
            snprintf(copy, sizeof copy, "%s/%s", to, entry->d_name) >= PATH_MAX)
            fail(ENAMETOOLONG, from);
        if (stat(source, &about))
            fail(errno, source);
        if (S_ISDIR(about.st_mode))
            fill(source, copy);
        else
            copy_file(source, copy);
    }
    closedir(folder);
}

static void limit_processes(rlim_t processes) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NPROC, &limit))
        fail(errno, "RLIMIT_NPROC");
    if (limit.rlim_max == RLIM_INFINITY || processes < limit.rlim_max)
        limit.rlim_max = processes;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NPROC, &limit))
        fail(errno, "RLIMIT_NPROC");
}

/* Become the command, looked up on PATH. Unlike execvp, this hands no text file to a shell. */
static void become(char **words) {
    const char *path = getenv("PATH");
    int error = ENOENT;
    if (strchr(words[0], '/')) {
        execv(words[0], words);
        error = errno;
        path = NULL;
    }
    while (path) {
        char file[PATH_MAX];
        size_t length = strcspn(path, ":");
        if (snprintf(file, sizeof file, "%.*s%s%s", (int)length, path, length ? "/" : "", words[0]) < PATH_MAX) {
            execv(file, words);
            if (errno != ENOENT && errno != ENOTDIR)
                error = errno;
        }
        path = path[length] ? path + length + 1 : NULL;
    }
    dprintf(2, "%s: %s\n", words[0], error == ENOENT ? "not found in the sandbox" : strerror(error));
    _exit(error == ENOENT ? 127 : 126);
}

static pid_t start(char **words, int control) {
    int pair[2];
    char byte;
    if (pipe2(pair, O_CLOEXEC))
        fail(errno, "pipe");
    pid_t pid = fork();
    if (pid < 0)
        fail(errno, "cannot start the command");
    if (pid) {
        close(pair[1]);
        while (read(pair[0], &byte, 1) < 0 && errno == EINTR)
            continue;
        close(pair[0]);
        return pid;
    }
    close(control);
    setsid();
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL); /* refused for the two that no process can change, and for the library's own */
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    close(pair[1]);
    become(words);
    return 0;
}

/* ---- freeze ---- */

static uint64_t monotonic_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* A process or thread may end while it is looked at. Any other error would hide one that runs. */
static void gone_or_fail(int error) {
    if (error && error != ENOENT && error != ESRCH)
        fail(error, "/proc");
}

/* The next name in a listing that is a number; NULL at its end. */
static const char *next_number(DIR *folder) {
    struct dirent *entry;
    do {
        errno = 0;
        entry = readdir(folder);
    } while (entry && !isdigit(*entry->d_name));
    if (!entry)
        gone_or_fail(errno);
    return entry ? entry->d_name : NULL;
}

/* The next pid in a listing of /proc, not our own; 0 at its end. */
static int next_pid(DIR *proc) {
    for (const char *name; (name = next_number(proc));)
        if (atoi(name) > 1)
            return atoi(name);
    return 0;
}

static DIR *listing(void) {
    DIR *proc = opendir("/proc");
    if (!proc)
        fail(errno, "/proc");
    return proc;
}

/* CPU time of each process, with its ended threads; a dead process that is not reaped counts. */
static void read_clocks(struct clocks *clocks) {
    DIR *proc = listing();
    clocks->count = 0;
    for (int pid; (pid = next_pid(proc));) {
        struct timespec used;
        if (clock_gettime((clockid_t)((~(unsigned)pid << 3) | CPUCLOCK_SCHED), &used))
            continue; /* gone meanwhile */
        if (clocks->count == clocks->room) {
            clocks->room = 2 * clocks->room + 64;
            if (!(clocks->at = realloc(clocks->at, clocks->room * sizeof *clocks->at)))
                fail(errno, "freeze");
        }
        clocks->at[clocks->count++] = (struct clock){pid, (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec};
    }
    closedir(proc);
}

static uint64_t sum(const struct clocks *clocks) {
    uint64_t total = 0;
    for (size_t i = 0; i < clocks->count; i++)
        total += clocks->at[i].ns;
    return total;
}

/* The differences of all processes, each without its sign; one that is in one list only counts in full. */
static uint64_t distance(const struct clocks *one, const struct clocks *other) {
    uint64_t total = 0;
    for (size_t i = 0, j = 0; i < one->count || j < other->count;) {
        const struct clock *a = i < one->count ? one->at + i : NULL, *b = j < other->count ? other->at + j : NULL;
        if (a && b && a->pid == b->pid)
            total += a->ns > b->ns ? a->ns - b->ns : b->ns - a->ns, i++, j++;
        else if (!b || (a && a->pid < b->pid))
            total += a->ns, i++;
        else
            total += b->ns, j++;
    }
    return total;
}

static int same(const struct clocks *one, const struct clocks *other) {
    size_t i = 0;
    while (i < one->count && i < other->count && one->at[i].pid == other->at[i].pid && one->at[i].ns == other->at[i].ns)
        i++;
    return i == one->count && i == other->count;
}

/* The first bytes of a file of one thread, as text; empty when it cannot be read. Returns why not, or 0. */
static int first_bytes(int pid, const char *tid, const char *file, char text[512]) {
    char path[320];
    snprintf(path, sizeof path, "/proc/%d/task/%s/%s", pid, tid, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, 511);
    int error = length < 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    text[length > 0 ? length : 0] = 0;
    return error;
}

/* Call `look` for each thread of the sandbox but ours, also of a dead leader. Returns the or of its results. */
static int each_thread(int (*look)(int pid, const char *tid)) {
    DIR *proc = listing();
    int found = 0;
    for (int pid; (pid = next_pid(proc));) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/task", pid);
        DIR *tasks = opendir(path);
        if (!tasks) {
            gone_or_fail(errno);
            continue;
        }
        for (const char *tid; (tid = next_number(tasks));)
            found |= look(pid, tid);
        closedir(tasks);
    }
    closedir(proc);
    return found;
}

static int active_state(int pid, const char *tid) {
    char text[512];
    gone_or_fail(first_bytes(pid, tid, "stat", text));
    char *name_end = strrchr(text, ')');
    if (!name_end || name_end[1] != ' ' || strchr("TZX", name_end[2]))
        return 0;
    return name_end[2] == 'D' ? IN_KERNEL : RUNNABLE;
}

/* The kernel waits until a stopped thread is off its processor before it reports which system call the thread is in. */
static int on_processor(int pid, const char *tid) {
    char text[512];
    first_bytes(pid, tid, "syscall", text);
    return !strncmp(text, "running", 7);
}

/* Whether there may be more. */
static int reap(void) {
    int status, count = 0;
    for (pid_t pid; count < MOST_REAPED && (pid = waitpid(-1, &status, WNOHANG)) > 0; count++)
        if (pid == command)
            _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    return count == MOST_REAPED;
}

/* Stop all. 0, or 1 when some process cannot be stopped. */
static int freeze(void) {
    static struct clocks now;
    uint64_t deadline = monotonic_ns() + FREEZE_LIMIT_NS;
    for (int earlier = 0;;) {
        kill(-1, SIGSTOP);
        reap();
        int states = each_thread(active_state);
        int still = !states && !each_thread(on_processor);
        read_clocks(&now);
        int late = monotonic_ns() > deadline;
        if (late && states & RUNNABLE)
            return 1;
        int settled = still && earlier && same(&now, &frozen);
        struct clocks swap = frozen;
        frozen = now;
        now = swap;
        if (late || settled) {
            is_frozen = 1;
            return 0;
        }
        earlier = still;
        nanosleep(&(struct timespec){0, SETTLE_NS}, NULL);
    }
}

static uint64_t cpu(void) {
    static struct clocks now;
    int running = is_frozen && each_thread(active_state) & RUNNABLE; /* before the clocks are read */
    read_clocks(&now);
    if (!is_frozen)
        return sum(&now);
    uint64_t changed = distance(&now, &frozen);
    return sum(&frozen) + (changed ? changed : (uint64_t)running);
}

/* ---- orders ---- */

static void obey(int control) {
    char order[16];
    ssize_t length = read(control, order, sizeof order);
    unsigned char answer[9] = {0};
    uint64_t value = 0;
    if (length <= 0) /* arena is gone */
        _exit(128 + SIGKILL);
    switch (order[0]) {
    case 'f':
        answer[0] = (unsigned char)freeze();
        value = answer[0] ? 0 : sum(&frozen);
        break;
    case 'c':
        value = cpu();
        break;
    case 'r':
        is_frozen = 0;
        kill(-1, SIGCONT);
        break;
    default:
        fail(EPROTO, "order");
    }
    for (int i = 0; i < 8; i++)
        answer[1 + i] = (unsigned char)(value >> 8 * i);
    if (write(control, answer, sizeof answer) != sizeof answer)
        _exit(128 + SIGKILL);
}

static void serve(int control, int signals) {
    struct pollfd ready[3] = {{control, POLLIN, 0}, {signals, POLLIN, 0}, {bridge_epoll(), POLLIN, 0}};
    for (int more = 0;;) {
        if (poll(ready, 3, more ? 0 : -1) < 0) {
            if (errno != EINTR)
                fail(errno, "poll");
            continue;
        }
        if (ready[0].revents)
            obey(control);
        if (ready[1].revents) {
            /* One look each time: a process inside can send signals without end. */
            struct signalfd_siginfo got[16];
            ssize_t length = read(signals, got, sizeof got);
            int asked = 0;
            for (ssize_t i = 0; i < length / (ssize_t)sizeof *got; i++)
                asked |= got[i].ssi_signo == SIGTERM;
            if (asked)
                kill(-command, SIGTERM);
        }
        if (ready[2].revents)
            bridge_serve_ready();
        more = is_frozen ? 0 : reap();
    }
}

int main(int count, char **words) {
    if (count < 5)
        fail(EINVAL, "usage: init CONTROL KEEP BRIDGES COMMAND...");
    int control = atoi(words[1]);
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
        fail(errno, "PR_SET_DUMPABLE");
    for (int fd = 0; fd < 3; fd++)
        keep(fd);
    keep(control);
    size_t own = kept_count;
    for (char *rest = words[2], *word; (word = strsep(&rest, ","));)
        if (*word)
            keep(atoi(word));
    size_t theirs = kept_count;
    for (char *rest = words[3], *word; (word = strsep(&rest, ","));)
        if (*word)
            keep(bridge_add(word));
    close_all_but_kept();
    signal(SIGPIPE, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signal(SIGCHLD, SIG_DFL); /* ignored, as it may have been inherited, the kernel would reap the command by itself */
    signal(SIGTERM, SIG_DFL);
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGCHLD);
    sigaddset(&wanted, SIGTERM);
    sigprocmask(SIG_SETMASK, &wanted, NULL);
    int signals = signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC);
    if (signals < 0)
        fail(errno, "signalfd");
    bridge_listen();
    const char *home = getenv("HOME");
    if (!home)
        fail(ENOENT, "HOME");
    fill(HOME_FILES, home);
    char order[17] = "";
    if (write(control, "ready", 5) != 5 || read(control, order, 16) < 2 || strncmp(order, "go", 2))
        fail(EPROTO, "arena did not take the sandbox over");
    if (order[2] == ' ')
        limit_processes(strtoull(order + 3, NULL, 10));
    command = start(words + 4, control);
    for (size_t i = own; i < theirs; i++) /* the other side is to see it when the command closes them */
        close(kept[i]);
    serve(control, signals);
}
