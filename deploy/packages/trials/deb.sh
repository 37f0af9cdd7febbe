#!/usr/bin/env bash
# Builds the package for Debian in a clean root, installs it in another one, runs it there, and purges it.
#
#     sudo deploy/packages/trials/deb.sh [MODEL]
#
# MODEL: a GGUF file of an instruct model, with which `drafter chat` talks, too; it drafts for itself.
# PACKAGE=FILE takes a package that was built before; ENGINE=WHEEL builds one with a wheel of llama.cpp from an earlier build.
source "$(dirname "$0")/clean_root.sh"
model=${1:-} package=${PACKAGE:-}

if [ -z "$package" ]; then
    root build
    say "what a build needs"
    apt python3-pip build-essential
    say "build"
    rm -rf "$root/tmp/checkout"
    mkdir "$root/tmp/checkout"
    git -C "$checkout" archive HEAD | tar -x -C "$root/tmp/checkout"
    [ -z "${ENGINE:-}" ] || cp "$ENGINE" "$root/tmp/"
    time inside sh -c "cd /tmp/checkout && python3 -m deploy.packages.deb ${ENGINE:+--engine /tmp/$(basename "$ENGINE")}"
    mkdir -p "$checkout/dist"
    package=$(echo "$root"/tmp/checkout/dist/specpair_*.deb)
    cp "$package" "$checkout/dist/"
fi
if command -v lintian >/dev/null; then
    say "lintian"
    lintian --allow-root "$package" && echo "no findings"
fi

root deb
cp "$package" "$root/tmp/specpair.deb"
# What dpkg, apt and the caches of manual pages note of any package is no part of this one.
files() {
    (cd "$root" && find . -xdev \( -path ./proc -o -path ./dev -o -path ./tmp -o -path ./root -o -path ./var/lib -o -path ./var/cache/man \
        -o -path ./var/cache/apt -o -path ./var/log \) -prune -o -print | sort)
}
say "apt install ./specpair.deb, in a root without Python"
inside dpkg --purge specpair >/dev/null 2>&1 || true
inside apt-get -qq update
inside apt-get -qq install --no-install-recommends /tmp/specpair.deb 2>&1 | tail -3
inside drafter --version
inside apt-get -qq purge specpair | tail -1
apt python3-pip man-db bash-completion # what comes with the next installation, and stays
files >"$root/tmp/before"
if grep -i specpair "$root/tmp/before"; then
    echo "deb: purging leaves these files" >&2
    exit 1
fi

say "apt install ./specpair.deb, with what it recommends"
inside apt-get -qq install /tmp/specpair.deb | tail -3
try_commands "$model"
say "an upgrade keeps settings"
echo "VERIFIER_SLOTS=2" >>"$root/etc/specpair/verifier.env"
inside apt-get -qq install --reinstall /tmp/specpair.deb | tail -1
grep VERIFIER_SLOTS "$root/etc/specpair/verifier.env"
try_extra
say "apt purge specpair"
inside apt-get -qq purge specpair | tail -1
files >"$root/tmp/after"
if ! diff "$root/tmp/before" "$root/tmp/after"; then
    echo "deb: purging leaves files, or takes some of others" >&2
    exit 1
fi
echo "deb: installed, run and purged; nothing is left"
