rampfs_test(NAME base SOURCES unit/test_base.c NEEDS base base_config LABELS quick)
rampfs_script_test(NAME mkfs NO_MOUNTS COMMAND tests/unit/mkfs.sh LABELS quick)
rampfs_script_test(NAME tools NO_MOUNTS COMMAND tests/unit/tools.sh LABELS quick TIMEOUT 120)
