rampfs_test(NAME base SOURCES unit/test_base.c NEEDS base base_config LABELS quick)
rampfs_test(NAME loop SOURCES unit/test_loop.c NEEDS base_loop LABELS quick)
rampfs_test(NAME spin SOURCES unit/test_spin.c NEEDS base LABELS quick)
rampfs_test(NAME pace SOURCES unit/test_pace.c NEEDS base LABELS quick)
# Beside the name `trace`, which is rampfs-migrate --trace on real mounts.
rampfs_test(NAME trace_steps SOURCES unit/test_trace.c NEEDS base Threads::Threads LABELS quick threads TIMEOUT 60)
rampfs_script_test(NAME mkfs NO_MOUNTS COMMAND tests/unit/mkfs.sh LABELS quick)
rampfs_script_test(NAME tools NO_MOUNTS COMMAND tests/unit/tools.sh LABELS quick TIMEOUT 120)
