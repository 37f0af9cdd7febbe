#!/usr/bin/env bash
# What Debian can try of the packages for other systems, in a clean root: makepkg with PKGBUILD, and what that packed;
# the install method of Homebrew's formula, without Homebrew (formula.rb); the form of launchd's file.
#
#     sudo deploy/packages/trials/elsewhere.sh
#
# Takes the sdist of `make dist` in dist/. WHEELS=FOLDER has a wheel of llama.cpp, which is compiled twice otherwise.
source "$(dirname "$0")/clean_root.sh"
root elsewhere
say "makepkg, Ruby and plistutil"
apt build-essential cmake ninja-build python3-venv makepkg pacman-package-manager libarchive-tools zstd fakeroot file ruby libplist-utils
rm -rf "$root/tmp/wheels" "$root/srv/checkout" "$root/srv/arch"
mkdir -p "$root/tmp/wheels" "$root/srv/checkout/dist" "$root/srv/arch"
[ -z "${WHEELS:-}" ] || cp "$WHEELS"/*.whl "$root/tmp/wheels"
git -C "$checkout" archive HEAD | tar -x -C "$root/srv/checkout"
cp "$checkout"/dist/specpair_core-*.tar.gz "$root/srv/checkout/dist/"

say "plistutil"
inside plistutil -i /srv/checkout/deploy/packages/specpair.drafter.plist -f xml | head -3

say "makepkg"
cp "$checkout/deploy/packages/PKGBUILD" "$checkout"/dist/specpair_core-*.tar.gz "$root/srv/arch"
inside useradd --create-home packager 2>/dev/null || true # makepkg runs for no root
inside chown -R packager /srv/arch
as=(runuser -u packager -- env HOME=/home/packager PIP_FIND_LINKS=/tmp/wheels PKGEXT=.pkg.tar.zst)
time inside sh -c 'cd /srv/arch && exec "$@"' sh "${as[@]}" makepkg --nodeps --force
inside sh -c 'cd /srv/arch && bsdtar -xOf specpair-*.pkg.tar.zst .PKGINFO | grep -E "^(pkgname|pkgver|size|license|depend)"'
inside sh -c 'rm -rf /opt/specpair && bsdtar -xf /srv/arch/specpair-*.pkg.tar.zst -C / opt usr/bin usr/share'
inside sh -c '! grep -rlI /srv/arch /opt/specpair' && echo "nothing names the folder where it was built"
inside drafter solo --prompt "import os" --max-tokens 8
inside rm -rf /opt/specpair /usr/bin/drafter /usr/bin/verifier /usr/bin/specpair

say "the formula's install, service and test"
inside env PIP_FIND_LINKS=/tmp/wheels ruby /srv/checkout/deploy/packages/trials/formula.rb /tmp/prefix | grep -v '^\$.*site-packages'
inside /tmp/prefix/bin/drafter solo --prompt "import os" --max-tokens 8
inside rm -rf /tmp/prefix
echo "elsewhere: neither Arch Linux, nor Homebrew, nor launchd ran here"
