#!/usr/bin/env bash
# Installs a package of deploy/packages/deb.py in a root whose process 1 is systemd, and has systemd run the units.
#
#     sudo deploy/packages/trials/units.sh [PACKAGE]
#
# PACKAGE: usually the one in dist/. The units listen on the loopback address of this machine, ports 8144 to 8146.
source "$(dirname "$0")/clean_root.sh"
package=${1:-$(echo "$checkout"/dist/specpair_*.deb)}
verifier_url=http://127.0.0.1:8144 drafter_url=http://127.0.0.1:8145 router_url=http://127.0.0.1:8146

root units
say "systemd, and the package"
apt systemd systemd-sysv dbus procps
inside dpkg --purge specpair >/dev/null 2>&1 || true
cp "$package" "$root/srv/package.deb" # systemd empties /tmp
apt /srv/package.deb
say "systemd-analyze verify, and security"
inside systemd-analyze verify /lib/systemd/system/specpair-{verifier,drafter,router}.service && echo "no complaints"
leave "$root"

say "boot"
# A control group of its own, of which systemd sees nothing above.
group=$(awk '$3 == "cgroup2" {print $2; exit}' /proc/mounts)/specpair-units
mkdir -p "$group"
sh -c "echo \$\$ >$group/cgroup.procs; exec unshare --pid --mount --uts --ipc --cgroup --fork --propagation private \
    --kill-child sh $checkout/deploy/packages/trials/boot.sh $root" >"$root/tmp/boot.log" 2>&1 &
booted=$!
trap 'kill -KILL $booted 2>/dev/null || true; ended' EXIT
until process=$(pgrep --parent $booted systemd); do kill -0 $booted && sleep 0.2; done
in_it() { nsenter --target "$process" --mount --pid --uts --ipc --cgroup env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 "$@"; }
until in_it systemctl is-system-running --wait; do kill -0 $booted && sleep 0.2; done
ready() { curl --silent --fail --retry 120 --retry-delay 1 --retry-all-errors --output /dev/null "$1"; }
result() { in_it systemctl show --value --property "$2" "specpair-$1"; }

say "verifier, router and drafter, by systemctl enable --now"
printf '%s\n' VERIFIER_PORT=8144 VERIFIER_API_KEY=key-of-the-verifier VERIFIER_ROUTER=$router_url VERIFIER_ROUTER_KEY=key-to-register \
    VERIFIER_ADVERTISE=$verifier_url >>"$root/etc/specpair/verifier.env"
printf '%s\n' ROUTER_PORT=8146 ROUTER_API_KEY=key-of-the-verifier ROUTER_REGISTER_KEY=key-to-register >>"$root/etc/specpair/router.env"
printf '%s\n' DRAFTER_PORT=8145 DRAFTER_VERIFIER=$router_url DRAFTER_API_KEY=key-of-the-verifier >>"$root/etc/specpair/drafter.env"
in_it systemctl enable --now specpair-router specpair-verifier specpair-drafter 2>&1 | sed 's/^Created symlink.*→ //'
ready $verifier_url/ready
ready $drafter_url/health
curl --silent $drafter_url/v1/completions -H 'Content-Type: application/json' -d '{"prompt": "def main(", "max_tokens": 6}'
echo
in_it systemctl is-active specpair-verifier specpair-router specpair-drafter
for name in verifier router drafter; do
    main=$(result $name MainPID)
    echo "$name: $(in_it ps -o user=,args= -p "$main")"
    in_it grep -E "^(NoNewPrivs|Seccomp|CapEff):" "/proc/$main/status" | tr '\n\t' '  '
    echo
    in_it ls -A "/var/cache/specpair-$name"
done

say "systemctl stop: what it drains ends well"
in_it systemctl stop specpair-drafter specpair-verifier specpair-router
for name in verifier router drafter; do echo "$name: $(result $name Result), status $(result $name ExecMainStatus)"; done

say "mistakes in /etc/specpair"
mistake() { # NAME LINE
    cp "$root/etc/specpair/$1.env" "$root/tmp/$1.env"
    echo "$2" >>"$root/etc/specpair/$1.env"
    in_it systemctl start "specpair-$1" 2>/dev/null || true # it says that it is ready, or fails
    until [ "$(result "$1" ActiveState)" = failed ]; do sleep 0.2; done
    echo "$2: $(result "$1" Result), status $(result "$1" ExecMainStatus), starts anew: $(result "$1" NRestarts)"
    in_it journalctl --unit "specpair-$1" --no-pager --output cat | grep -F "${2%%=*}" | tail -1
    in_it systemctl reset-failed "specpair-$1"
    cp "$root/tmp/$1.env" "$root/etc/specpair/$1.env"
}
mistake verifier VERIFIER_MODLE=/srv/model.gguf
mistake verifier VERIFIER_MODEL=/srv/none.gguf
mistake verifier VERIFIER_SLOTS=many
mistake router ROUTER_PROT=80
mistake drafter DRAFTER_VERIFIR=http://127.0.0.1:8000

say "an upgrade restarts what runs; apt purge stops it"
in_it systemctl start specpair-verifier
ready $verifier_url/ready
before=$(result verifier MainPID)
in_it apt-get -qq install --reinstall /srv/package.deb >/dev/null
while [ "$before" = "$(result verifier MainPID)" ]; do sleep 0.2; done && echo "restarted"
ready $verifier_url/ready
in_it apt-get -qq purge specpair | tail -1
echo "units left: $(in_it systemctl list-unit-files --no-legend 'specpair*' | wc -l)"
in_it sh -c '! pgrep --list-full --full "/opt/[s]pecpair"' && echo "no process of it is left"
(cd "$root" && find . -xdev -path ./proc -prune -o -path './tmp/*' -prune -o -path './var/lib/dpkg/*' -prune -o -path './var/log/*' -prune \
    -o -path './var/cache/apt/*' -prune -o -iname '*specpair*' -print)
kill -s RTMIN+4 "$process" # systemd powers off
wait $booted || true
find "$group" -depth -type d -exec rmdir {} + # those that systemd made in it, and itself
echo "units: run by systemd"
