/* The first process of every pod: holds its namespaces, reaps what others leave, ends when told to. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal) { (void)signal; _exit(0); }

static void reap(int signal)
{
    (void)signal;
    while (waitpid(-1, 0, WNOHANG) > 0)
        ;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "-v")) /* kubeadm's trial before an upgrade: says its version and ends */
        return 0;
    signal(SIGINT, end);
    signal(SIGTERM, end);
    signal(SIGCHLD, reap);
    for (;;)
        pause();
}
