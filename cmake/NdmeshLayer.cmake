# One static library per folder of src/ndmesh. A folder links only the folders above it in the list
# of src/ndmesh/CMakeLists.txt, so an include that points the wrong way does not build.

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(nlohmann_json REQUIRED)

add_library(ndmesh_options INTERFACE)
target_include_directories(ndmesh_options INTERFACE ${PROJECT_SOURCE_DIR}/src)
# Programs too: one precompiled header serves libraries and programs only if both are compiled alike.
target_compile_options(ndmesh_options INTERFACE -fPIC)
target_compile_options(ndmesh_options INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
                       $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)  # g++ 12 warns of every "literal" + string
# A newer compiler finds new things to warn of, and instrumented code makes g++ warn of what is not there: those are
# shown, but do not stop a build.
if(NOT NDMESH_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(ndmesh_options INTERFACE -Werror)
endif()
if(NDMESH_SANITIZE)
  # Undefined behaviour ends the program, so that a test fails on it.
  target_compile_options(ndmesh_options INTERFACE -fsanitize=${NDMESH_SANITIZE} -fno-sanitize-recover=all
                         -fno-omit-frame-pointer)
  target_link_options(ndmesh_options INTERFACE -fsanitize=${NDMESH_SANITIZE})
  if(NDMESH_SANITIZE MATCHES thread)
    target_compile_options(ndmesh_options INTERFACE -Wno-tsan)  # a fence inside a header of libtorch
  endif()
endif()

# ndmesh_layer(NAME [TORCH] [DEPENDS folder...] [LIBRARIES target...])
# builds src/ndmesh/NAME, with the folders in it, into the library ndmesh_NAME. With TORCH it may include libtorch. Adds NAME to
# NDMESH_RUNTIME_LAYERS or, without TORCH, to NDMESH_PLANNER_LAYERS.
function(ndmesh_layer name)
  cmake_parse_arguments(LAYER "TORCH" "" "DEPENDS;LIBRARIES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp)
  add_library(ndmesh_${name} STATIC ${sources})
  set_target_properties(ndmesh_${name} PROPERTIES LINKER_LANGUAGE CXX)
  list(TRANSFORM LAYER_DEPENDS PREPEND ndmesh_)
  target_link_libraries(ndmesh_${name} PUBLIC ndmesh_options ${LAYER_DEPENDS} ${LAYER_LIBRARIES} Threads::Threads)
  if(LAYER_TORCH)
    ndmesh_use_torch(ndmesh_${name})
    set(NDMESH_RUNTIME_LAYERS ${NDMESH_RUNTIME_LAYERS} ${name} PARENT_SCOPE)
  else()
    set(NDMESH_PLANNER_LAYERS ${NDMESH_PLANNER_LAYERS} ${name} PARENT_SCOPE)
  endif()
endfunction()
