#!/usr/bin/env bash
# Installs both wheels of `make dist` with pipx or uv in a clean root, as a user does, and runs the commands there from an
# empty folder.
#
#     sudo deploy/packages/trials/tool.sh pipx|uv [MODEL]
#
# MODEL: a GGUF file of an instruct model, with which `drafter chat` talks, too; it drafts for itself.
# WHEELS=FOLDER has further wheels, such as one of llama.cpp, which is compiled otherwise: some 10 minutes on 2 cores.
source "$(dirname "$0")/clean_root.sh"
tool=$1 model=${2:-}
root "$tool"
say "a compiler, and $tool"
apt build-essential pipx bash-completion man-db
rm -rf "$root/tmp/wheels"
mkdir "$root/tmp/wheels"
cp "$checkout"/dist/*.whl ${WHEELS:+"$WHEELS"/*.whl} "$root/tmp/wheels"
case $tool in
    pipx)
        inside pipx uninstall specpair >/dev/null 2>&1 || true
        say "pipx install specpair"
        time inside pipx install specpair --pip-args="--find-links /tmp/wheels"
        ;;
    uv)
        inside pipx install uv
        inside uv tool uninstall specpair >/dev/null 2>&1 || true
        say "uvx specpair --version"
        time inside uvx --find-links /tmp/wheels specpair --version
        say "uvx --from specpair drafter solo"
        inside uvx --find-links /tmp/wheels --from specpair drafter solo --prompt "import os" --max-tokens 8
        say "uv tool install specpair"
        inside uv tool install --find-links /tmp/wheels specpair
        ;;
    *)
        echo "tool.sh: '$tool' is neither pipx nor uv" >&2
        exit 2
        ;;
esac
for name in drafter verifier specpair; do inside "$name" man "$home/.local/share/man/man1"; done
try_commands "$model"
try_extra
echo "$tool: installed and run from an empty folder"
