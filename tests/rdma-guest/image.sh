#!/usr/bin/env bash
# Makes the guest of the RDMA tests: Debian's stock kernel as an ELF file, and an initramfs with busybox,
# the modules for Soft-RoCE and 9p, and the init of this folder. Kept in the folder DIR until its sources
# change.
#
# usage: image.sh DIR
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=${1:?usage: image.sh DIR}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)

# The cloud kernel has neither rdma_rxe nor 9p.
package=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image-/ { print $2; exit }')
[ -n "$package" ] || { echo "image.sh: no package linux-image-amd64: run apt-get update" >&2; exit 1; }
version=${package#linux-image-}
version=${version%-unsigned}
stamp="$version $(sha256sum "$here/image.sh" "$here/init" | sha256sum)"
[ "$(cat "$dir/stamp" 2>/dev/null)" = "$stamp" ] && exit 0

rm -rf "$dir/kernel" "$dir/root" "$dir/stamp"
mkdir -p "$dir/kernel" "$dir/root"/{bin,modules,proc,sys,dev,host,upper,all}
# apt's own user may not write here; it then fetches as root and says so.
(cd "$dir" && apt-get download -qq "$package" 2>/dev/null)
deb=("$dir/$package"_*.deb)
dpkg-deb --fsys-tarfile "${deb[0]}" | tar -x -C "$dir/kernel" "./boot/vmlinuz-$version" "./lib/modules/$version"
rm -f "${deb[@]}"

# A kernel in ELF boots by PVH in half the time. The payload of the image is XZ; behind it lies more,
# which xz complains about after it has written all.
vmlinuz=$dir/kernel/boot/vmlinuz-$version
offset=$(LC_ALL=C grep -abo -m1 -P '\xFD7zXZ\x00' "$vmlinuz" | head -n1 | cut -d: -f1)
tail -c "+$((offset + 1))" "$vmlinuz" | xz -dc --single-stream >"$dir/vmlinux" 2>/dev/null || :
[ "$(head -c 4 "$dir/vmlinux" | tail -c 3)" = ELF ] || { echo "image.sh: no kernel in $vmlinuz" >&2; exit 1; }

depmod -b "$dir/kernel" "$version"
wanted=(virtio_pci virtio_net 9p 9pnet_virtio overlay crc32_generic rdma_rxe rdma_ucm veth dummy)
for module in "${wanted[@]}"; do
  modprobe -d "$dir/kernel" -S "$version" --show-depends "$module"
done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' >"$dir/modules"
: >"$dir/root/modules/list"
while read -r path; do
  cp "$path" "$dir/root/modules/"
  strip --strip-debug "$dir/root/modules/$(basename "$path")" 2>/dev/null || :
  basename "$path" >>"$dir/root/modules/list"
done <"$dir/modules"

cp "$(command -v busybox)" "$dir/root/bin/busybox"
for name in sh mount insmod chroot poweroff mkdir cat echo sync; do
  ln -sf busybox "$dir/root/bin/$name"
done
install -m 755 "$here/init" "$dir/root/init"
(cd "$dir/root" && find . | cpio -o -H newc --quiet | gzip -1) >"$dir/initrd"
rm -rf "$dir/kernel" "$dir/root" "$dir/modules"
echo "$stamp" >"$dir/stamp"
