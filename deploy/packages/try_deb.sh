#!/usr/bin/env bash
# Installs a package of deploy/packages/deb.py in a clean root, writes a text there, and purges it.
#
#     sudo deploy/packages/try_deb.sh dist/specpair_VERSION_ARCHITECTURE.deb [ROOT] [MODEL]
#
# ROOT: a folder for the root; one that debootstrap has made before is used again (default: build/debroot).
# MODEL: a GGUF file of an instruct model, with which `drafter chat` talks, too; it drafts for itself.
# Needs debootstrap, curl and the right to chroot. The verifier listens on the loopback address of this machine, port 8143.
set -euo pipefail
package=$(realpath "$1") root=$(realpath -m "${2:-build/debroot}") model=${3:-}
url=http://127.0.0.1:8143
[ -x "$root/usr/bin/dpkg" ] || debootstrap --variant=minbase \
    --include=python3,man-db,bash-completion,libgomp1,libstdc++6 "$(. /etc/os-release; echo "$VERSION_CODENAME")" "$root"
mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
mountpoint -q "$root/dev" || mount --bind /dev "$root/dev"
verifier=
ended() {
    [ -z "$verifier" ] || stop
    umount "$root/proc" "$root/dev"
}
trap ended EXIT
clean=(env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LANG=C.UTF-8 TERM=dumb chroot "$root")
inside() { "${clean[@]}" "$@"; }
# What dpkg and the caches of the manual pages note of any package is no part of this one.
files() { (cd "$root" && find . -xdev \( -path ./proc -o -path ./dev -o -path ./tmp -o -path ./var/lib/dpkg -o -path ./var/cache/man \
    -o -path ./var/log \) -prune -o -print | sort); }
serve() {
    "${clean[@]}" verifier --port 8143 "$@" >"$root/tmp/verifier.log" 2>&1 & # no function: its process is to be ended
    verifier=$!
    curl --silent --fail --retry 60 --retry-delay 1 --retry-all-errors --output /dev/null "$url/ready"
}
stop() { kill "$verifier"; wait "$verifier" || true; verifier=; }

inside dpkg --purge specpair >/dev/null 2>&1 || true
files >"$root/tmp/before"
cp "$package" "$root/tmp/specpair.deb"
inside dpkg -i /tmp/specpair.deb
for name in drafter verifier specpair; do
    inside "$name" --version
    inside man -w "$name"
    inside bash -c "source /usr/share/bash-completion/completions/$name && complete -p $name"
done
(cd "$root" && grep -c . etc/specpair/*.env)
serve
inside drafter --verifier "$url" --prompt "def main():" --max-tokens 24
inside specpair doctor --verifier "$url"
stop
if [ -n "$model" ]; then
    cp "$model" "$root/tmp/model.gguf"
    serve --model /tmp/model.gguf --context 1024
    inside bash -c "echo 'Say hello in one short sentence.' | drafter chat --verifier $url --draft-model /tmp/model.gguf --max-tokens 32"
    stop
fi
inside dpkg --purge specpair
files >"$root/tmp/after"
if ! diff "$root/tmp/before" "$root/tmp/after"; then
    echo "try_deb: purging leaves files" >&2
    exit 1
fi
echo "try_deb: installed, run and purged; nothing is left"
