#!/bin/sh
# Runs `splitkv bench --host node` from this folder on a machine that has a GPU driver and nothing else.
#   ./bench.sh [--suite gpu|decode|prefill|kernels|ranks|serve] [options]     ./bench.sh --help lists them
# What the machine has of the Vulkan loader and the C++ library is taken before what lies in lib/.
# VK_DRIVER_FILES names another driver's ICD file.
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd) || exit 1
PATH=${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}
export PATH

# The path of a shared library on this machine; fails where it has none.
find_library() {
  found=$( (ldconfig -p || /sbin/ldconfig -p) 2>/dev/null | sed -n "s|^[[:space:]]*$1 .* => ||p" | head -n 1)
  [ -n "$found" ] && { echo "$found"; return 0; }
  for folder in /usr/lib/x86_64-linux-gnu /usr/lib/aarch64-linux-gnu /lib64 /usr/lib64 /usr/lib /usr/local/lib /usr/local/nvidia/lib64; do
    [ -e "$folder/$1" ] && { echo "$folder/$1"; return 0; }
  done
  return 1
}

own=$(mktemp -d) || exit 1
trap 'rm -rf "$own"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
for library in "$here"/lib/*; do
  name=${library##*/}
  path=$(find_library "$name") && { [ "${path%/*}" = /usr/local/nvidia/lib64 ] || continue; }
  ln -s "$library" "$own/$name"
done
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$own"
[ -d /usr/local/nvidia/lib64 ] && LD_LIBRARY_PATH=$LD_LIBRARY_PATH:/usr/local/nvidia/lib64

# Containers often have NVIDIA's libraries, but no file that tells a Vulkan loader of them, or one that names libGLX_nvidia, which is no
# driver where some of X11 is missing. The EGL library needs none of it.
if [ -z "$VK_DRIVER_FILES$VK_ICD_FILENAMES" ]; then
  driver=$(find_library libEGL_nvidia.so.0 || find_library libGLX_nvidia.so.0) && {
    printf '{"file_format_version":"1.0.0","ICD":{"library_path":"%s","api_version":"1.3.0"}}\n' "$driver" > "$own/nvidia_icd.json"
    export VK_DRIVER_FILES="$own/nvidia_icd.json"
  }
fi

# Not exec: the shell stays to clear up.
"$here/bin/node" "$here/bin/splitkv.js" bench --host node "$@"
