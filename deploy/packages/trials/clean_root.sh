# Sourced by the trials beside it: a root in which nothing is but what the trial puts there. Needs debootstrap, and the
# right to chroot. The root has this machine's resolver and certificates, for apt, pip and uv.
set -euo pipefail
checkout=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../..")
roots=${ROOTS:-/var/tmp/specpair} # not in the checkout, of which builds read all folders
certificates=/etc/ssl/certs/ca-certificates.crt
url=http://127.0.0.1:8143 # of the verifier, in this machine's network: a root has none of its own
home=~root # of who tries it, in the root
clean=(env -i "PATH=$home/.local/bin:/usr/sbin:/usr/bin:/sbin:/bin" "HOME=$home" LANG=C.UTF-8 TERM=dumb DEBIAN_FRONTEND=noninteractive
    PIP_CERT=$certificates SSL_CERT_FILE=$certificates PIP_DISABLE_PIP_VERSION_CHECK=1)

exec > >(sed --unbuffered "s#$home/#~/#g") # what is printed is kept, and where a home is says nothing
given=("$@")
echo "# ${WHEELS:+WHEELS=… }${ENGINE:+ENGINE=… }${PACKAGE:+PACKAGE=… }deploy/packages/trials/$(basename "$0") ${given[*]##*/}"
echo "# $(date -I), $(lscpu | sed -n 's/^Model name: *//p'), $(nproc) cores, $(. /etc/os-release; echo "$PRETTY_NAME")"

say() { printf '\n== %s\n' "$*"; }
# root NAME: makes that folder in $roots if it is not there yet, and sets $root.
root() {
    root=$roots/$1
    if [ ! -x "$root/usr/bin/dpkg" ]; then
        say "debootstrap: $1"
        mkdir -p "$root"
        debootstrap --variant=minbase --include=ca-certificates "$(. /etc/os-release; echo "$VERSION_CODENAME")" "$root" \
            >"$roots/$1.log"
    fi
    echo 'APT::Get::Assume-Yes "true";' >"$root/etc/apt/apt.conf.d/yes"
    cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
    cp -L "$certificates" "$root$certificates"
    mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
    mountpoint -q "$root/dev" || mount --bind /dev "$root/dev"
    mountpoint -q "$root/dev/pts" || mount --bind /dev/pts "$root/dev/pts"
    mounted+=("$root")
}
# leave ROOT: what is mounted there goes.
leave() { if mountpoint -q "$1/proc"; then umount "$1/proc" "$1/dev/pts" "$1/dev"; fi; }
# In the root, in its folder /tmp/empty.
inside() { "${clean[@]}" chroot "$root" sh -c 'mkdir -p /tmp/empty && cd /tmp/empty && exec "$@"' sh "$@"; }
# In the background, which a function would run in a shell of its own: the process is to be ended by its id.
serve() {
    "${clean[@]}" chroot "$root" sh -c 'cd /tmp/empty && exec "$@"' sh "$@" >"$root/tmp/verifier.log" 2>&1 &
    verifier=$!
    curl --silent --fail --retry 120 --retry-delay 1 --retry-all-errors --output /dev/null "$url/ready"
}
stop() { kill "$verifier"; wait "$verifier" || true; verifier=; }
apt() { inside apt-get -qq update && inside apt-get -qq -y install --no-install-recommends "$@" >/dev/null 2>&1; }
ended() {
    [ -z "$verifier" ] || stop
    for each in "${mounted[@]}"; do leave "$each"; done
}
verifier='' mounted=()
trap ended EXIT

# What a user does first, from an empty folder, with the models that ship; with MODEL, a chat.
try_commands() {
    say "the empty folder: $(inside sh -c 'pwd; ls -A')"
    for name in drafter verifier specpair; do
        inside "$name" --version
        inside man -w "$name"
        inside bash -c "source <($name completion bash) && complete -p $name"
    done
    say "drafter solo"
    inside drafter solo --prompt "import os" --max-tokens 8
    say "verifier, and drafter beside it"
    serve verifier --port 8143
    inside drafter --verifier "$url" --prompt "def main():" --max-tokens 24
    say "specpair doctor"
    inside specpair doctor --verifier "$url"
    say "drafter chat, with the models that ship"
    inside sh -c "echo Hello | drafter chat --verifier $url" || echo "(status $?)"
    stop
    if [ -n "$1" ]; then
        say "drafter chat, with $(basename "$1")"
        cp "$1" "$root/tmp/model.gguf"
        serve verifier --port 8143 --model /tmp/model.gguf --context 1024
        inside sh -c "echo 'Say hello in one short sentence.' |
            drafter chat --verifier $url --draft-model /tmp/model.gguf --max-tokens 32"
        stop
        rm "$root/tmp/model.gguf"
    fi
}
# Runs the command that doctor names for an engine whose packages are small. Roots have no sudo, and nobody who says yes.
try_extra() {
    local mend
    mend=$(inside specpair doctor --json | python3 -c '
import json, sys
print(next(each["mend"] for each in json.load(sys.stdin)["engines"] if each["name"] == "sglang"))')
    say "what doctor names for an engine: $mend"
    inside sh -c "sudo() { env \"\$@\"; }; $mend" </dev/null >"$root/tmp/mend.log" 2>&1 || { cat "$root/tmp/mend.log"; return 1; }
    inside specpair doctor | grep '^ sglang'
}
