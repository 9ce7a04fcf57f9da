rampfs_test(NAME meta SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_meta.c NEEDS meta LABELS quick TIMEOUT 300)
