/*
 * Runs the simulator over a range of seeds, in processes of their own.
 *
 *	raft_sim [--seeds FROM-TO] [--jobs N]	a range; exit status 1 when one failed. N is the
 *						number of processors unless said
 *	raft_sim --seeds FROM-TO --stop		up to the first that fails; no trace
 *	raft_sim --seed N [--trace]		one; with --trace every event on stderr
 *
 * A worker takes every N-th seed. A seed that fails ends the process; the parent notes the seed,
 * starts another worker behind it, and at the end repeats the first failed ones for their traces.
 * Every 50th seed is run twice and must give the same digest.
 */
#include "sim.h"

#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define JOBS_MAX    64
#define FAILED_MAX  1000
#define STUCK_S	    120 /* seconds of processor time that one seed may take */
#define TRACE_LINES 60
#define TRACED_MAX  2
#define TWICE_EVERY 50

struct job {
	pid_t pid;
	uint64_t seed; /* under way */
	uint64_t seeds;
	struct sim_counts counts;
};

static struct job *jobs; /* shared with the workers */
static struct sim_world world;

/* Counted in processor time: a machine may be suspended, and a worker may be stopped. */
static void end_if_stuck(void)
{
	const struct itimerval limit = {.it_value = {.tv_sec = STUCK_S}};

	setitimer(ITIMER_PROF, &limit, NULL);
}

static void counts_add(struct sim_counts *sum, const struct sim_counts *c)
{
	const uint64_t *from = (const uint64_t *)c;
	uint64_t *to = (uint64_t *)sum;

	for (size_t i = 0; i < sizeof(*sum) / sizeof(*to); i++)
		to[i] += from[i];
}

static void run_seed(uint64_t seed, FILE *trace, struct sim_counts *counts)
{
	sim_run(&world, seed, trace);
	counts_add(counts, &world.counts);
	sim_free(&world);
}

static void run_twice(uint64_t seed, struct sim_counts *counts)
{
	uint64_t digest;

	run_seed(seed, NULL, counts);
	digest = world.digest;
	run_seed(seed, NULL, counts);
	if (digest != world.digest)
		sim_fail(&world, "the same seed gave another run");
}

static _Noreturn void worker(struct job *job, uint64_t first, uint64_t last, uint64_t step)
{
	for (uint64_t seed = first; seed <= last; seed += step) {
		job->seed = seed;
		end_if_stuck();
		if (seed % TWICE_EVERY == 0)
			run_twice(seed, &job->counts);
		else
			run_seed(seed, NULL, &job->counts);
		job->seeds++;
	}
	sim_templates_free();
	exit(0);
}

static void job_start(struct job *job, uint64_t first, uint64_t last, uint64_t step)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0) {
		perror("fork");
		exit(2);
	}
	if (pid == 0)
		worker(job, first, last, step);
	job->pid = pid; /* written by the parent alone: the job is shared */
}

/* Prints the last lines of a failed seed's trace, by running it again. */
static void show_trace(uint64_t seed)
{
	static char lines[TRACE_LINES][400];
	FILE *trace = tmpfile();
	uint64_t n = 0;
	pid_t pid;

	fflush(stdout);
	pid = trace ? fork() : -1;
	if (pid < 0)
		return;
	if (pid == 0) {
		struct sim_counts counts = {0};

		end_if_stuck();
		if (!freopen("/dev/null", "w", stdout))
			_exit(2);
		setvbuf(trace, NULL, _IOLBF, 0);
		run_seed(seed, trace, &counts);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	rewind(trace);
	while (fgets(lines[n % TRACE_LINES], sizeof(lines[0]), trace))
		n++;
	printf("---- seed %llu, the last of %llu lines of its trace\n", (unsigned long long)seed,
	       (unsigned long long)n);
	for (uint64_t i = n > TRACE_LINES ? n - TRACE_LINES : 0; i < n; i++)
		fputs(lines[i % TRACE_LINES], stdout);
	fclose(trace);
}

static uint64_t run_range(const char *self, uint64_t from, uint64_t to, uint64_t n_jobs, bool stop)
{
	uint64_t failed[FAILED_MAX], n_failed = 0, running = 0;

	for (uint64_t i = 0; i < n_jobs && from + i <= to; i++, running++)
		job_start(&jobs[i], from + i, to, n_jobs);
	while (running) {
		int status;
		pid_t pid = wait(&status);
		struct job *job = jobs;

		while (job < jobs + n_jobs && job->pid != pid)
			job++;
		if (pid < 0 || job == jobs + n_jobs)
			abort(); /* there are no other children */
		running--;
		if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
			continue;
		if (WIFSIGNALED(status))
			printf("seed %llu failed: signal %d (%s)\n", (unsigned long long)job->seed,
			       WTERMSIG(status), strsignal(WTERMSIG(status)));
		printf("  repeat: %s --seed %llu --trace\n", self, (unsigned long long)job->seed);
		if (n_failed < FAILED_MAX)
			failed[n_failed] = job->seed;
		n_failed++;
		job->seeds++;
		if (job->seed + n_jobs <= to && n_failed < FAILED_MAX && !stop) {
			job_start(job, job->seed + n_jobs, to, n_jobs);
			running++;
		}
	}
	for (uint64_t i = 0; i < n_failed && i < TRACED_MAX && !stop; i++)
		show_trace(failed[i]);
	return n_failed;
}

static int report(uint64_t n_jobs, uint64_t failed)
{
	struct sim_counts c = {0};
	uint64_t seeds = 0;

	for (uint64_t i = 0; i < n_jobs; i++) {
		counts_add(&c, &jobs[i].counts);
		seeds += jobs[i].seeds;
	}
	printf("%llu seeds, %llu failed: %llu events, %llu messages (%llu lost), %llu turns, "
	       "%llu crashes (%llu of power), %llu disk faults, %llu elections, %llu transfers, "
	       "%llu member changes, %llu wiped, %llu snapshot pieces, %llu commands "
	       "(%llu retried), %llu reads\n",
	       (unsigned long long)seeds, (unsigned long long)failed, (unsigned long long)c.events,
	       (unsigned long long)c.messages, (unsigned long long)c.lost,
	       (unsigned long long)c.turns, (unsigned long long)c.crashes,
	       (unsigned long long)c.power, (unsigned long long)c.disk_faults,
	       (unsigned long long)c.elections, (unsigned long long)c.transfers,
	       (unsigned long long)c.members, (unsigned long long)c.wipes,
	       (unsigned long long)c.snapshots, (unsigned long long)c.commands,
	       (unsigned long long)c.retries, (unsigned long long)c.reads);
	return failed ? 1 : 0;
}

int main(int argc, char **argv)
{
	unsigned long long from = 1, to = 100,
			   n_jobs = (unsigned long long)sysconf(_SC_NPROCESSORS_ONLN);
	bool trace = false, stop = false;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--trace"))
			trace = true;
		else if (!strcmp(argv[i], "--stop"))
			stop = true;
		else if (!strcmp(argv[i], "--seed") && i + 1 < argc)
			from = to = strtoull(argv[++i], NULL, 10);
		else if (!strcmp(argv[i], "--seeds") && i + 1 < argc &&
			 sscanf(argv[i + 1], "%llu-%llu", &from, &to) == 2)
			i++;
		else if (!strcmp(argv[i], "--jobs") && i + 1 < argc)
			n_jobs = strtoull(argv[++i], NULL, 10);
		else
			to = 0;
	}
	if (to < from || n_jobs < 1 || n_jobs > JOBS_MAX) {
		fprintf(stderr,
			"usage: %s [--seeds FROM-TO] [--jobs N] [--stop] | --seed N [--trace]\n",
			argv[0]);
		return 2;
	}
	jobs = mmap(NULL, JOBS_MAX * sizeof(*jobs), PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (jobs == MAP_FAILED || sim_vfs_register())
		return 2;
	/* One world after the other: keep its memory. */
	mallopt(M_MMAP_THRESHOLD, 1 << 30);
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
	if (from == to) {
		run_seed(from, trace ? stderr : NULL, &jobs[0].counts);
		jobs[0].seeds = 1;
		printf("digest %016llx\n", (unsigned long long)world.digest);
		sim_templates_free();
		return report(1, 0);
	}
	return report(n_jobs, run_range(argv[0], from, to, n_jobs, stop));
}
