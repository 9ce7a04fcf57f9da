rampfs_script_test(NAME attack COMMAND tests/mount/attack.sh TIMEOUT 600)
