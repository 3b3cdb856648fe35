# What `cmake --install` puts where: the program, the public headers, one static library for the planner and one for the
# runtime, and the package that find_package(ndmesh) reads.

include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
include(NdmeshPublicHeaders)

set(ndmesh_package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/ndmesh)

# ndmesh_installed_library(NAME LAYERS folder... LIBRARIES target...): the folders' libraries as one, exported as ndmesh::NAME.
# Layers stay an inner matter: their options and order reach no consumer.
function(ndmesh_installed_library name)
  cmake_parse_arguments(LIBRARY "" "" "LAYERS;LIBRARIES" ${ARGN})
  set(target ndmesh_installed_${name})
  add_library(${target} STATIC)
  foreach(layer ${LIBRARY_LAYERS})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:ndmesh_${layer}>)
  endforeach()
  target_link_libraries(${target} INTERFACE ${LIBRARY_LIBRARIES})
  target_include_directories(${target} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(${target} INTERFACE cxx_std_20)
  if(NDMESH_SANITIZE)
    target_link_options(${target} INTERFACE -fsanitize=${NDMESH_SANITIZE})
  endif()
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX EXPORT_NAME ${name})
  install(TARGETS ${target} EXPORT ndmesh_${name} DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT ndmesh_${name} FILE ndmesh_${name}.cmake NAMESPACE ndmesh:: DESTINATION ${ndmesh_package_folder})
endfunction()

# ndmesh_install_headers(HEADER...): headers of src/ndmesh and all that they include, found at install time.
function(ndmesh_install_headers)
  install(CODE "set(headers \"${ARGN}\")
set(source ${PROJECT_SOURCE_DIR}/src/ndmesh)
set(target \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}/ndmesh\")")
  install(SCRIPT ${PROJECT_SOURCE_DIR}/cmake/install_headers.cmake)
endfunction()

ndmesh_installed_library(planner LAYERS ${NDMESH_PLANNER_LAYERS}
                         LIBRARIES fmt::fmt yaml-cpp PkgConfig::XXHASH PkgConfig::HWLOC Threads::Threads)
set_target_properties(ndmesh_installed_planner PROPERTIES OUTPUT_NAME ndmesh_planner)
ndmesh_install_headers(${NDMESH_PLANNER_HEADERS})
set(ndmesh_built_torch "")
if(NDMESH_RUNTIME)
  ndmesh_installed_library(ndmesh LAYERS ${NDMESH_RUNTIME_LAYERS} LIBRARIES ndmesh_installed_planner ndmesh::libtorch)
  set_target_properties(ndmesh_installed_ndmesh PROPERTIES OUTPUT_NAME ndmesh)
  ndmesh_install_headers(${NDMESH_RUNTIME_HEADERS})
  ndmesh_torch_version(${NDMESH_TORCH} ndmesh_built_torch)
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/NdmeshLibtorch.cmake DESTINATION ${ndmesh_package_folder})
endif()

# The program finds libtorch where the build found it: named here, as INSTALL_RPATH_USE_LINK_PATH leaves out folders of the source
# tree, and .venv is one.
if(NDMESH_RUNTIME)
  set_target_properties(ndmesh PROPERTIES INSTALL_RPATH ${NDMESH_TORCH}/lib)
endif()
install(TARGETS ndmesh DESTINATION ${CMAKE_INSTALL_BINDIR})

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/ndmeshConfig.cmake.in ${PROJECT_BINARY_DIR}/ndmeshConfig.cmake
                              INSTALL_DESTINATION ${ndmesh_package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ndmeshConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ndmeshConfig.cmake ${PROJECT_BINARY_DIR}/ndmeshConfigVersion.cmake
        DESTINATION ${ndmesh_package_folder})
