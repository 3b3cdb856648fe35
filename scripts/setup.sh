# What quickstart, test and .ci/run share: packages, libtorch, build. Sourced by them, from the repository's root.
#
# Exit status, here as in ndmesh: 1 something failed while running; 2 the request cannot be met.

# The tools are the system's packages: a version manager's stand-ins earlier in PATH must not hide them.
export PATH="/usr/bin:/bin:$PATH"

TORCH_VERSION=2.13.0
TORCH_LOG=build/torch-install.log
BUILD_PACKAGES="g++ cmake ninja-build ccache pkg-config nlohmann-json3-dev libyaml-cpp-dev libcli11-dev libfmt-dev
  libspdlog-dev libxxhash-dev libhwloc-dev libgtest-dev libgmock-dev"
RUNTIME_PACKAGES="python3 python3-venv"             # for pip, which fetches libtorch
TEST_PACKAGES="python3 clang-format-14"
ALL_PACKAGES="clang-tidy-14 libbenchmark-dev"
FUZZ_PACKAGES="clang-14 libclang-rt-14-dev"
TEXT_PACKAGES="bible-kjv"

say() { printf '%s\n' "-- $*"; }
refuse() {
  printf '%s\n' "$@" >&2
  exit 2
}

missing_packages() {
  local package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || echo "$package"
  done
}

# need_packages PACKAGE...: installs those that are missing; exits 2 and names them when it cannot.
need_packages() {
  command -v dpkg-query >/dev/null ||
    refuse "This is no Debian or Ubuntu: install what corresponds to these packages, and build by docs/building.md:" "  $*"
  local missing as_root=""
  missing=$(missing_packages "$@" | tr '\n' ' ')
  [ -n "$missing" ] || return 0
  if [ "$(id -u)" != 0 ]; then
    sudo -n true 2>/dev/null || { [ -t 0 ] && command -v sudo >/dev/null; } ||
      refuse "These packages are missing, and only root may install them. Run as root, then try again:" \
        "  apt-get install $missing"
    as_root=sudo
  fi
  say "Installing with apt (about a minute): $missing"
  { $as_root apt-get -qq update &&
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install $missing >/dev/null; } ||
    refuse "apt could not install what is missing. Install it, then try again:" "  apt-get install $missing"
}

torch_version_of() { sed -n "s/^__version__ = '\(.*\)'/\1/p" "$1/version.py" 2>/dev/null; }

# torch_folder_in FOLDER: the wheel's folder `torch` when FOLDER is it, or a site-packages or virtual environment with it.
torch_folder_in() {
  local folder
  for folder in "$1" "$1/torch" "$1"/lib/python3*/site-packages/torch; do
    if [ -e "$folder/lib/libtorch_cpu.so" ] && [ -e "$folder/include/ATen/ATen.h" ]; then
      (cd "$folder" && pwd)
      return 0
    fi
  done
  return 1
}

# need_torch: sets NDMESH_TORCH to the folder `torch` of an installed wheel: the user's, or the one in .venv, installed now
# when it is not there.
need_torch() {
  local given=${NDMESH_TORCH:-} version
  if [ -n "$given" ]; then
    NDMESH_TORCH=$(torch_folder_in "$given") ||
      refuse "NDMESH_TORCH=$given holds no installed torch (lib/libtorch_cpu.so and include/ATen/ATen.h)." \
        "Give the folder 'torch' of an installed wheel, or the site-packages or virtual environment that holds it."
    version=$(torch_version_of "$NDMESH_TORCH")
    case $version in
      $TORCH_VERSION*) ;;
      *) say "NDMESH_TORCH holds torch ${version:-of an unknown version}; tested is $TORCH_VERSION (2.11 to 2.14 compile)" ;;
    esac
    return 0
  fi
  if NDMESH_TORCH=$(torch_folder_in .venv) && [[ $(torch_version_of "$NDMESH_TORCH") == $TORCH_VERSION* ]]; then
    return 0
  fi
  install_torch
  NDMESH_TORCH=$(torch_folder_in .venv) || refuse "pip installed torch into .venv, but it holds no lib/libtorch_cpu.so."
}

# try_torch REQUIREMENT OPTION...: the first python3 for whose version pip finds that build gets it, in .venv.
try_torch() {
  local requirement=$1 python
  shift
  for python in $(type -ap python3 python3.{14,13,12,11,10,9} | awk '!seen[$0]++'); do
    rm -rf .venv
    "$python" -m venv .venv >"$TORCH_LOG" 2>&1 || continue
    if .venv/bin/pip install --quiet --disable-pip-version-check "$@" "$requirement" >>"$TORCH_LOG" 2>&1; then
      return 0
    fi
    grep -q 'No matching distribution' "$TORCH_LOG" || break  # it exists, but could not be fetched: say why
  done
  rm -rf .venv
  return 1
}

install_torch() {
  mkdir -p build
  say "Installing libtorch (the torch $TORCH_VERSION wheel, CPU build) into .venv: about 200 MB to download unless pip"
  say "has it on disk, 800 MB unpacked; one to three minutes. To reuse an installed torch: NDMESH_TORCH=FOLDER $0"
  try_torch "torch==$TORCH_VERSION+cpu" --no-deps && return 0
  if ! grep -q 'No matching distribution' "$TORCH_LOG"; then
    tail -n 5 "$TORCH_LOG" >&2
    refuse "pip could not install torch $TORCH_VERSION+cpu."
  fi
  if [ "$(uname -m)" = x86_64 ]; then
    say "pip, as configured, offers no CPU build of torch $TORCH_VERSION. The default build is for CUDA: several GB to"
    say "download, 6 GB unpacked, many minutes. It works without a GPU. To avoid it, stop this (Ctrl-C), then point"
    say "pip at PyTorch's CPU index (pip config, or PIP_EXTRA_INDEX_URL) or give NDMESH_TORCH=FOLDER."
  fi
  try_torch "torch==$TORCH_VERSION" && return 0
  tail -n 5 "$TORCH_LOG" >&2
  refuse "pip, as configured, could not install torch $TORCH_VERSION for any python3 found here." \
    "Give an installed one: NDMESH_TORCH=FOLDER $0"
}

# Of ninja's "[7/99] ..." lines one for each quarter of the way.
quarters() {
  awk -F'[][/]' '/^\[[0-9]+\/[0-9]+\]/ { q = int(4 * $2 / $3); if ($3 > 8 && q > last && q < 4) { last = q
    printf "   %d of %d\n", $2, $3; fflush() } }'
}

# Compilers at a time: one a core, but no more than memory holds of those that read libtorch's headers.
build_jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/^MemAvailable/ { jobs = int($2 / 1400000); print jobs < 1 ? 1 : jobs }' /proc/meminfo)
  echo $((cores < memory ? cores : memory))
}

# build PRESET [CMAKE OPTION...] [-- TARGET...]: configures and builds; prints the log when it fails. Wants pipefail.
build() {
  local preset=$1 options=() targets=() start=$SECONDS
  shift
  while [ $# -gt 0 ] && [ "$1" != -- ]; do
    options+=("$1")
    shift
  done
  [ $# -gt 1 ] && targets=(--target "${@:2}")
  [[ $preset = planner-only || $preset = fuzz ]] || options+=("-DNDMESH_TORCH=$NDMESH_TORCH")
  mkdir -p "build/$preset"
  say "Building build/$preset: some minutes the first time, later only what changed"
  cmake --preset "$preset" "${options[@]}" >"build/$preset/configure.log" 2>&1 || {
    cat "build/$preset/configure.log" >&2
    return 1
  }
  if ! cmake --build --preset "$preset" -j "$(build_jobs)" "${targets[@]}" 2>&1 |
    tee "build/$preset/build.log" | quarters; then
    grep -v '^\[[0-9/]*\] ' "build/$preset/build.log" | tail -n 100 >&2
    printf '%s\n' "The build failed; all of its output is in build/$preset/build.log" >&2
    return 1
  fi
  say "Built in $((SECONDS - start)) s"
}
