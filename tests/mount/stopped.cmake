rampfs_script_test(NAME stopped COMMAND tests/mount/stopped.sh TIMEOUT 300)
