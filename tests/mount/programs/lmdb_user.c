/*
 * An LMDB user with MDB_FIXEDMAP and MDB_WRITEMAP: it depends on pointers into the map.
 *
 *	lmdb_user put FILE FROM TO	writes keys FROM..TO-1, a thousand a transaction
 *	lmdb_user check FILE TO		every key 0..TO-1 is there with its value, and no other
 *	lmdb_user where FILE		prints the address of the map
 */
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAP_BYTES ((size_t)256 << 20)

static void must(int rc, const char *what)
{
	if (rc == 0)
		return;
	fprintf(stderr, "lmdb_user: %s: %s\n", what, mdb_strerror(rc));
	exit(1);
}

static MDB_env *open_env(const char *path)
{
	MDB_env *env;

	must(mdb_env_create(&env), "create");
	must(mdb_env_set_mapsize(env, MAP_BYTES), "mapsize");
	must(mdb_env_open(env, path, MDB_NOSUBDIR | MDB_FIXEDMAP | MDB_WRITEMAP, 0600), "open");
	return env;
}

static size_t make(unsigned long n, char key[32], char value[256])
{
	int len = snprintf(key, 32, "key%012lu", n);

	for (unsigned i = 0; i < 200; i++)
		value[i] = (char)('a' + (n * 31 + i * 7) % 26);
	return (size_t)len;
}

static void put(MDB_env *env, unsigned long from, unsigned long to)
{
	char key[32], value[256];
	MDB_txn *txn;
	MDB_dbi dbi;

	while (from < to) {
		must(mdb_txn_begin(env, NULL, 0, &txn), "begin");
		must(mdb_dbi_open(txn, NULL, 0, &dbi), "dbi");
		for (unsigned i = 0; i < 1000 && from < to; i++, from++) {
			MDB_val k = {make(from, key, value), key}, v = {200, value};

			must(mdb_put(txn, dbi, &k, &v, 0), "put");
		}
		must(mdb_txn_commit(txn), "commit");
	}
}

static void check(MDB_env *env, unsigned long to)
{
	char key[32], value[256];
	MDB_txn *txn;
	MDB_dbi dbi;
	MDB_stat st;

	must(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn), "begin");
	must(mdb_dbi_open(txn, NULL, 0, &dbi), "dbi");
	must(mdb_stat(txn, dbi, &st), "stat");
	if (st.ms_entries != to) {
		fprintf(stderr, "lmdb_user: %zu entries, not %lu\n", st.ms_entries, to);
		exit(1);
	}
	for (unsigned long n = 0; n < to; n++) {
		MDB_val k = {make(n, key, value), key}, v;

		must(mdb_get(txn, dbi, &k, &v), key);
		if (v.mv_size != 200 || memcmp(v.mv_data, value, 200) != 0) {
			fprintf(stderr, "lmdb_user: %s has another value\n", key);
			exit(1);
		}
	}
	mdb_txn_abort(txn);
}

int main(int argc, char **argv)
{
	MDB_envinfo info;
	MDB_env *env;

	if (argc < 3)
		return 2;
	env = open_env(argv[2]);
	if (strcmp(argv[1], "put") == 0 && argc == 5)
		put(env, strtoul(argv[3], NULL, 10), strtoul(argv[4], NULL, 10));
	else if (strcmp(argv[1], "check") == 0 && argc == 4)
		check(env, strtoul(argv[3], NULL, 10));
	else if (strcmp(argv[1], "where") == 0 && argc == 3) {
		must(mdb_env_info(env, &info), "info");
		printf("%p\n", info.me_mapaddr);
	} else
		return 2;
	mdb_env_close(env);
	return 0;
}
