set(at ${CMAKE_CURRENT_LIST_DIR})
foreach(part meta meta_members meta_again)
  rampfs_test(NAME ${part} SOURCES ${at}/test_${part}.c ${at}/meta_net.c NEEDS meta LABELS quick threads TIMEOUT 300)
endforeach()
foreach(part meta_fsm meta_arena meta_moves meta_callers)
  rampfs_test(NAME ${part} SOURCES ${at}/test_${part}.c ${at}/meta_rules.c NEEDS meta LABELS quick)
endforeach()
rampfs_test(NAME meta_journal SOURCES ${at}/test_meta_journal.c NEEDS meta LABELS quick)
# SQLite's allocations fail one by one.
rampfs_test(NAME meta_read SOURCES ${at}/test_meta_read.c ${at}/meta_net.c NEEDS meta PkgConfig::SQLITE3 LABELS quick)
# A journal is changed as a newer program would leave it.
rampfs_test(NAME meta_level SOURCES ${at}/test_meta_level.c ${at}/meta_net.c NEEDS meta PkgConfig::SQLITE3
  LABELS quick threads)
rampfs_script_test(NAME recover NO_MOUNTS COMMAND tests/unit/recover.sh LABELS quick TIMEOUT 120)
rampfs_test(NAME recovery SOURCES ${at}/test_recovery.c ${at}/meta_rules.c ${CMAKE_SOURCE_DIR}/rampfs/tools/certificate.c
  NEEDS meta base_config base_crypto LABELS quick)
