/* The bridges of process 1, and what both files need. */

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline void fail(int error, const char *what) {
    dprintf(2, "init: %s: %s\n", what, strerror(error));
    exit(1);
}

int bridge_add(const char *word);  /* from PORT=DESCRIPTOR; returns the descriptor */
void bridge_listen(void);          /* listen on all ports that were added */
int bridge_epoll(void);            /* readable when `bridge_serve_ready` has work; -1 without bridges */
void bridge_serve_ready(void);     /* move the bytes that can be moved, without waiting */
