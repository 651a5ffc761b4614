/* launch.py as a C program: `launch FD`. See there for what it does and why. An order is words of `key=value`, each ended by NUL. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STAGING "/tmp"
#define SYS_MOVE_MOUNT 429
#define MOVE_MOUNT_EMPTY_PATH 4

struct words {
    char **at; /* ends with NULL */
    size_t count;
};

static void fail(int error, const char *format, ...) {
    va_list values;
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fprintf(stderr, ": %s\n", strerror(error));
    exit(1);
}

static void add(struct words *words, char *word) {
    words->at = realloc(words->at, (words->count + 2) * sizeof *words->at);
    if (!words->at)
        fail(errno, "launch");
    words->at[words->count++] = word;
    words->at[words->count] = NULL;
}

static char *whole(int fd, size_t *length) {
    struct stat about;
    if (fstat(fd, &about))
        fail(errno, "cannot read the order");
    char *text = malloc((size_t)about.st_size + 1);
    size_t done = 0;
    while (text && done < (size_t)about.st_size) {
        ssize_t more = read(fd, text + done, (size_t)about.st_size - done);
        if (more <= 0)
            fail(more ? errno : EPROTO, "cannot read the order");
        done += (size_t)more;
    }
    if (!text || !done || text[done - 1])
        fail(EPROTO, "cannot read the order");
    *length = done;
    return text;
}

static char *value_of(char *word) {
    return word + strlen(word) + 1;
}

static void mount_at(const char *source, const char *target, const char *type, unsigned long flags, const char *options) {
    if (mount(source, target, type, flags, options))
        fail(errno, "cannot mount %s on %s", source, target);
}

/* Make the folders above a path below STAGING. */
static void make_parents(char *path) {
    for (char *slash = path + sizeof STAGING; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        if (mkdir(path, 0755) && errno != EEXIST)
            fail(errno, "cannot make %s", path);
        *slash = '/';
    }
}

/* Write a file of that user. `mode` is in octal. */
static void put(const char *target, const char *content, const char *mode, uid_t user) {
    int fd = open(target, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    size_t length = strlen(content);
    ssize_t written = fd < 0 ? -1 : write(fd, content, length);
    if (written < 0)
        fail(errno, "cannot make %s", target);
    if ((size_t)written != length)
        fail(ENOSPC, "cannot make %s", target);
    if (fchown(fd, user, user) || fchmod(fd, (mode_t)strtoul(mode, NULL, 8)))
        fail(errno, "cannot make %s", target);
    close(fd);
}

/* Bind source number i at STAGING/i; a `folder` is a number too. In it follow a `member` (NAME, a line's end, a host path to bind)
   or a `text` (MODE NAME, a line's end, the content). `workspace` is the descriptor of a detached mount, or -1; one of the sources
   lies in it. The words are KEY NUL VALUE. */
static void stage(struct words sources, int workspace, uid_t user) {
    if (unshare(CLONE_NEWNS))
        fail(errno, "arena runs as root but may not make a mount namespace (it lacks CAP_SYS_ADMIN)");
    mount_at("none", "/", NULL, MS_REC | MS_PRIVATE, NULL);
    umount2("/sys", MNT_DETACH); /* bwrap reads the table of all mounts for each bind, and no sandbox shows these */
    int *opened = calloc(sources.count + 1, sizeof *opened);
    char **named = calloc(sources.count + 1, sizeof *named);
    if (!opened || !named)
        fail(errno, "cannot stage");
    for (size_t i = 0; i < sources.count; i++) {
        char *path = value_of(sources.at[i]);
        if (*sources.at[i] == 'm' || *sources.at[i] == 't') {
            named[i] = path;
            if (!(path = strchr(path, '\n')))
                fail(EPROTO, "cannot read the order");
            *path++ = 0;
        }
        if ((*sources.at[i] == 's' || *sources.at[i] == 'm') && (opened[i] = open(path, O_PATH | O_CLOEXEC)) < 0)
            fail(errno, "cannot bind %s", path);
    }
    if (workspace >= 0) {
        fcntl(workspace, F_SETFD, FD_CLOEXEC);
        if (syscall(SYS_MOVE_MOUNT, workspace, "", AT_FDCWD, STAGING, MOVE_MOUNT_EMPTY_PATH))
            fail(errno, "cannot mount the workspace");
    }
    mount_at("tmpfs", STAGING, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0711,size=64m");
    for (size_t i = 0, number = 0; i < sources.count; i++) {
        char target[PATH_MAX], source[64];
        struct stat about;
        char kind = *sources.at[i], *name = kind == 't' ? strchr(named[i], ' ') : named[i];
        if (kind == 't') {
            if (!name)
                fail(EPROTO, "cannot read the order");
            *name++ = 0;
        }
        int length = name ? snprintf(target, sizeof target, STAGING "/%zu/%s", number - 1, name)
                          : snprintf(target, sizeof target, STAGING "/%zu", number++);
        if (length >= PATH_MAX)
            fail(ENAMETOOLONG, "cannot make %s", target);
        make_parents(target);
        if (kind == 'f') {
            if (mkdir(target, 0755))
                fail(errno, "cannot make %s", target);
            continue;
        }
        if (kind == 't') {
            put(target, name + strlen(name) + 1, named[i], user);
            continue;
        }
        snprintf(source, sizeof source, "/proc/self/fd/%d", opened[i]);
        if (fstat(opened[i], &about))
            fail(errno, "cannot bind %s", target);
        int made = S_ISDIR(about.st_mode) ? mkdir(target, 0711) : open(target, O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (made < 0)
            fail(errno, "cannot make %s", target);
        if (made)
            close(made);
        mount_at(source, target, NULL, MS_BIND | MS_REC, NULL);
    }
    free(opened);
    free(named);
}

static void write_file(const char *path, const char *text, const char *what) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        fail(errno, "%s %s", what, path);
    close(fd);
}

/* Of the form NUMBER:VALUE. A hard limit that is lower already stays. */
static void set_limit(const char *text) {
    char *value;
    int which = (int)strtol(text, &value, 10);
    struct rlimit limit;
    if (*value != ':' || getrlimit(which, &limit))
        fail(EINVAL, "cannot set the limit %s", text);
    rlim_t wanted = strtoull(value + 1, NULL, 10);
    if (limit.rlim_max == RLIM_INFINITY || wanted < limit.rlim_max)
        limit.rlim_max = wanted;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(which, &limit))
        fail(errno, "cannot set the limit %s", text);
}

static void pin(struct words cpus) {
    cpu_set_t wanted;
    CPU_ZERO(&wanted);
    int error = 0;
    for (size_t i = 0; i < cpus.count; i++) {
        unsigned long cpu = strtoul(cpus.at[i], NULL, 10);
        if (cpu >= CPU_SETSIZE)
            error = EINVAL;
        else
            CPU_SET(cpu, &wanted);
    }
    if (!error && !sched_setaffinity(0, sizeof wanted, &wanted))
        return;
    error = error ? error : errno;
    fprintf(stderr, "cannot run on processors");
    for (size_t i = 0; i < cpus.count; i++)
        fprintf(stderr, " %s", cpus.at[i]);
    fail(error, "");
}

int main(int count, char **arguments) {
    struct words argv = {0}, env = {0}, sources = {0}, groups = {0}, limits = {0}, cpus = {0};
    const char *bwrap = NULL, *uid = NULL;
    int workspace = -1;
    size_t length;

    if (count != 2)
        fail(EINVAL, "usage: launch FD");
    int fd = atoi(arguments[1]);
    char *order = whole(fd, &length);
    close(fd);
    for (char *word = order, *value; word < order + length; word = value + strlen(value) + 1) {
        if (!(value = strchr(word, '=')))
            fail(EPROTO, "cannot read the order");
        *value++ = 0;
        if (!strcmp(word, "bwrap"))
            bwrap = value;
        else if (!strcmp(word, "argv"))
            add(&argv, value);
        else if (!strcmp(word, "env"))
            add(&env, value);
        else if (!strcmp(word, "group"))
            add(&groups, value);
        else if (!strcmp(word, "limit"))
            add(&limits, value);
        else if (!strcmp(word, "source") || !strcmp(word, "folder") || !strcmp(word, "member") || !strcmp(word, "text"))
            add(&sources, word);
        else if (!strcmp(word, "cpu"))
            add(&cpus, value);
        else if (!strcmp(word, "uid"))
            uid = value;
        else if (!strcmp(word, "workspace"))
            workspace = atoi(value);
        else
            fail(EPROTO, "cannot read the order");
    }
    if (!bwrap || !argv.count || !env.count)
        fail(EPROTO, "cannot read the order");
    if (chdir("/"))
        fail(errno, "cannot enter /");
    umask(022);
    int program = open(bwrap, O_RDONLY | O_CLOEXEC);
    if (program < 0)
        fail(errno, "cannot start %s", bwrap);
    for (size_t i = 0; i < groups.count; i++)
        write_file(groups.at[i], "0", "cannot enter the control group");
    write_file("/proc/self/oom_score_adj", "1000", "cannot write");
    for (size_t i = 0; i < limits.count; i++)
        set_limit(limits.at[i]);
    if (cpus.count)
        pin(cpus);
    if (uid) {
        uid_t user = (uid_t)strtoul(uid, NULL, 10);
        stage(sources, workspace, user);
        if (setgroups(0, NULL) || setresgid(user, user, user) || setresuid(user, user, user))
            fail(errno, "arena runs as root but may not become user %s", uid);
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        fail(errno, "prctl(PR_SET_NO_NEW_PRIVS)");
    fexecve(program, argv.at, env.at);
    fail(errno, "cannot start %s", bwrap);
}
