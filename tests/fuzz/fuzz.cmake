# Fuzzers: libFuzzer with ASan and UBSan, so with clang, whichever compiler the rest takes. Objects
# are compiled once for all of them. tests/fuzz/run.sh NAME [SECONDS] runs one; ctest runs each for
# 15 s; the findings of earlier runs of this build are a corpus beside tests/fuzz/corpus/NAME.
# They are the same in every build, so only one build has them: the one with AddressSanitizer.
string(COMPARE EQUAL "${RAMPFS_SANITIZE}" address fuzzed)
option(RAMPFS_FUZZ "build the fuzzers" ${fuzzed})
if(NOT RAMPFS_FUZZ)
  return()
endif()
find_program(FUZZ_CLANG clang REQUIRED)
set(fuzz_dir ${CMAKE_BINARY_DIR}/tests/fuzz)
set(fuzz_flags -std=gnu11 -O1 -g -fno-omit-frame-pointer -Wall -Wextra -D_GNU_SOURCE
  -DRAMPFS_VERSION="${PROJECT_VERSION}" -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)
foreach(folder tests/fuzz libramp rampfs mkfs.rampfs)
  list(APPEND fuzz_flags -I${CMAKE_SOURCE_DIR}/${folder})
endforeach()
list(APPEND fuzz_flags -I${CMAKE_SOURCE_DIR})
if(RAMPFS_WERROR)
  list(APPEND fuzz_flags -Werror)
endif()
foreach(lib FUSE3 LIBUV SQLITE3 INIH LIBCRYPTO LIBCJSON)
  list(APPEND fuzz_flags ${${lib}_CFLAGS})
  list(APPEND fuzz_libs ${${lib}_LDFLAGS})
endforeach()

# fuzz_object(out source): the object of one source, compiled once.
function(fuzz_object out source)
  string(REPLACE "/" "_" name ${source})
  set(object ${fuzz_dir}/${name}.o)
  set(${out} ${object} PARENT_SCOPE)
  get_property(made GLOBAL PROPERTY fuzz_made)
  if(object IN_LIST made)
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY fuzz_made ${object})
  add_custom_command(OUTPUT ${object}
    COMMAND ${CMAKE_C_COMPILER_LAUNCHER} ${FUZZ_CLANG} ${fuzz_flags} -MD -MF ${object}.d -c ${CMAKE_SOURCE_DIR}/${source} -o ${object}
    DEPENDS ${CMAKE_SOURCE_DIR}/${source} DEPFILE ${object}.d VERBATIM)
endfunction()

# rampfs_fuzz(NAME source...): tests/fuzz/fuzz_NAME.c over those sources.
function(rampfs_fuzz name)
  foreach(source tests/fuzz/fuzz_${name}.c tests/fuzz/fuzz.c libramp/base/err.c libramp/base/wire.c
      libramp/base/ids.c ${ARGN})
    fuzz_object(object ${source})
    list(APPEND objects ${object})
  endforeach()
  add_custom_command(OUTPUT ${fuzz_dir}/fuzz_${name}
    COMMAND ${FUZZ_CLANG} -fsanitize=fuzzer,address,undefined ${objects} ${fuzz_libs} -pthread -o ${fuzz_dir}/fuzz_${name}
    DEPENDS ${objects} VERBATIM)
  set_property(GLOBAL APPEND PROPERTY fuzz_programs ${fuzz_dir}/fuzz_${name})
  rampfs_computing_test(NAME fuzz_${name} CHAIN fuzz COMMAND ${CMAKE_SOURCE_DIR}/tests/fuzz/run.sh ${name} 15
    LABELS fuzz TIMEOUT 120)
endfunction()

file(MAKE_DIRECTORY ${fuzz_dir})
set(t rampfs/transport)
set(m rampfs/memory)
rampfs_fuzz(proto ${t}/proto.c ${t}/verbs/message.c)
rampfs_fuzz(session libramp/base/session.c)
file(GLOB raft RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/meta/raft*.c)
file(GLOB journal RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/meta/journal*.c)
file(GLOB replica RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/meta/replica*.c ${CMAKE_SOURCE_DIR}/meta/fsm*.c)
rampfs_fuzz(raft ${raft})
rampfs_fuzz(command meta/command.c)
rampfs_fuzz(config libramp/base/config.c libramp/base/size.c)
set(memory ${m}/page_set.c ${m}/stores.c ${m}/seg_core.c ${m}/about.c ${m}/seg_file.c ${m}/seg_times.c ${m}/seg.c ${m}/open_cache.c ${m}/record.c ${m}/pages.c
  ${m}/gate.c ${m}/layout.c ${m}/mapping.c ${m}/find_data.c ${m}/populated.c ${m}/reserve.c ${m}/spare.c
  libramp/base/kernel.c)
rampfs_fuzz(state ${memory})
rampfs_fuzz(dump ${journal} meta/command.c ${raft})
rampfs_fuzz(journal ${replica} ${journal} meta/command.c ${raft})
rampfs_fuzz(handover rampfs/mount/handover.c)
rampfs_fuzz(xattr rampfs/mount/ops_xattr.c rampfs/mount/ops_alloc.c rampfs/mount/facts.c libramp/base/transfer_mode.c
  libramp/base/visible.c libramp/base/rate.c libramp/base/size.c ${memory})
rampfs_fuzz(hello ${t}/hello.c ${t}/hello_io.c ${t}/stream.c libramp/base/hmac.c)
rampfs_fuzz(join ${t}/peers/join.c ${t}/hello.c ${t}/hello_io.c ${t}/stream.c mkfs.rampfs/plan.c
  libramp/base/statedir.c libramp/base/config.c libramp/base/size.c libramp/base/hmac.c)
rampfs_fuzz(broker libramp/base/loop.c libramp/base/fair_queue.c libramp/base/kernel.c)
rampfs_fuzz(status libramp/base/visible.c libramp/base/output.c)
rampfs_fuzz(serve libramp/base/kernel.c libramp/base/cpu_weight.c libramp/base/rate.c libramp/base/size.c ${t}/tcp/tcp_serve.c ${t}/tcp/serve_conn.c
  ${t}/tcp/export.c ${t}/key.c)
rampfs_fuzz(replies ${t}/tcp/tcp_read.c ${t}/stream.c)
rampfs_fuzz(control ${t}/peers/channel.c ${t}/stream.c ${t}/proto.c libramp/base/hmac.c libramp/base/kernel.c libramp/base/loop.c libramp/base/fair_queue.c)
file(GLOB heap RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/libramp/heap/*.c)
rampfs_fuzz(heap ${heap})
get_property(fuzz_programs GLOBAL PROPERTY fuzz_programs)
add_custom_target(fuzzers ALL DEPENDS ${fuzz_programs})
