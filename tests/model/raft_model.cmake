# Consensus: the simulator and the explorer on the real core, and the mistakes that they must catch.
set(model ${CMAKE_CURRENT_SOURCE_DIR}/model)

# raft_model(NAME [PLAIN] SOURCES ... NEEDS ...): a program of this folder. PLAIN: never sanitized, for the
# long runs of programs whose quick runs have a sanitizer.
function(raft_model name)
  cmake_parse_arguments(M "PLAIN" "" "SOURCES;NEEDS" ${ARGN})
  list(TRANSFORM M_SOURCES PREPEND ${model}/)
  add_executable(${name} ${M_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_include_directories(${name} PRIVATE ${model})
  target_compile_options(${name} PRIVATE -O2)
  target_link_libraries(${name} PRIVATE ${M_NEEDS} rampfs_flags)
  if(NOT M_PLAIN)
    target_link_libraries(${name} PRIVATE rampfs_sanitize)
  endif()
endfunction()

set(sim sim_main.c sim_world.c sim_node.c sim_faults.c sim_client.c sim_wild.c sim_check.c sim_vfs.c)
raft_model(raft_sim_checked SOURCES ${sim} NEEDS meta)
rampfs_computing_test(NAME raft_sim_quick CHAIN model COMMAND $<TARGET_FILE:raft_sim_checked> --seeds 1-40
  LABELS quick TIMEOUT 1200)
raft_model(raft_sim PLAIN SOURCES ${sim} NEEDS PkgConfig::SQLITE3)
# The files of meta/ that have no thread.
file(GLOB core CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/meta/raft*.c)
file(GLOB rest CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/meta/command.c ${CMAKE_SOURCE_DIR}/meta/fsm*.c
  ${CMAKE_SOURCE_DIR}/meta/journal*.c ${CMAKE_SOURCE_DIR}/meta/replica*.c)
target_sources(raft_sim PRIVATE ${core} ${rest})
foreach(source err ids log visible wire)
  target_sources(raft_sim PRIVATE ${CMAKE_SOURCE_DIR}/libramp/base/${source}.c)
endforeach()
target_include_directories(raft_sim PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/libramp)
rampfs_computing_test(NAME raft_sim CHAIN model COMMAND $<TARGET_FILE:raft_sim> --seeds 1-1000 TIMEOUT 3600)

# The explorer has the core compiled in, with messages of at most two entries.
raft_model(raft_explore_checked SOURCES explore.c explore_node.c puppet.c NEEDS base)
raft_model(raft_explore PLAIN SOURCES explore.c explore_node.c puppet.c)
foreach(name raft_explore_checked raft_explore)
  target_sources(${name} PRIVATE ${core})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/libramp)
  target_compile_definitions(${name} PRIVATE RAFT_APPEND_MAX=2)
endforeach()
target_sources(raft_explore PRIVATE ${CMAKE_SOURCE_DIR}/libramp/base/wire.c)
rampfs_computing_test(NAME raft_explore_quick CHAIN model COMMAND $<TARGET_FILE:raft_explore_checked> --quick
  LABELS quick TIMEOUT 1200)
rampfs_computing_test(NAME raft_explore CHAIN model COMMAND $<TARGET_FILE:raft_explore> TIMEOUT 3600)

# Scripted cases: schedules that random ones seldom meet.
rampfs_test(NAME raft_scripted
  SOURCES ${model}/scripted.c ${model}/scripted_log.c ${model}/scripted_votes.c ${model}/scripted_leader.c
          ${model}/stage.c ${model}/puppet.c
  NEEDS meta LABELS quick TIMEOUT 120)

rampfs_test(NAME journal_disk SOURCES ${model}/journal_disk.c ${model}/sim_vfs.c NEEDS meta PkgConfig::SQLITE3
  LABELS quick)

# Each mistake that design.md, "Metadata", names, made in a copy of meta/, must be caught.
set(few old-term-committed-by-counting unchecked-suffix-acknowledged old-vote-in-a-new-term
  late-snapshot-installed vote-sent-before-durable term-before-the-first-entry-lost)
rampfs_computing_test(NAME raft_mutants_quick CHAIN model COMMAND ${model}/mutants.sh --quick ${few}
  LABELS quick TIMEOUT 1200)
rampfs_computing_test(NAME raft_mutants CHAIN model COMMAND ${model}/mutants.sh TIMEOUT 3600)
