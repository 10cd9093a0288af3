#!/bin/bash
# Runs the OCI image as docs/CONTAINERS.md says, under the default seccomp profile of podman and
# docker, with two capabilities and one device: a volume that others see, on SIGTERM unmounted whole.
#
#   scripts/test-image.sh OCI_TAR
#
# Needs root, skopeo, umoci, runc, and that profile (Debian: golang-github-containers-common).
set -euo pipefail

if [ "${INSIDE:-}" != yes ]; then
    INSIDE=yes exec unshare --mount --propagation private "$0" "$@"
fi
readonly PROFILE=/usr/share/containers/seccomp.json
image=$(realpath "$1")
place=$(mktemp -d)
bundle=$place/bundle
shared=$place/shared
name=okeanos-test-$$
finish() {
    runc delete --force "$name" >/dev/null 2>&1 || true
    umount --recursive --lazy "$shared" 2>/dev/null || true
    rm -rf "$place"
}
trap finish EXIT
fail() {
    echo "test-image: $1" >&2
    cat "$place/log" >&2
    exit 1
}

chmod 755 "$place"
mkdir "$place/oci" "$shared"
skopeo inspect "oci-archive:$image" >"$place/log" 2>&1 || fail "skopeo inspect"
tar --extract --directory "$place/oci" --file "$image"
tag=$(sed -n 's/.*"org.opencontainers.image.ref.name": *"\([^"]*\)".*/\1/p' "$place/oci/index.json")
umoci unpack --image "$place/oci:$tag" "$bundle" >"$place/log" 2>&1 || fail "umoci unpack"
mount --bind "$shared" "$shared" && mount --make-shared "$shared"
mkdir "$shared/a"
truncate -s 64M "$bundle/rootfs/image"
mke2fs -q -t ext4 "$bundle/rootfs/image"

# The runtime's settings: what podman's --cap-add, --device and -v make of them.
settings() { # WORDS OF OKEANOS...
    python3 - "$bundle/config.json" "$PROFILE" "$shared" "$@" <<'END'
import json
import sys

path, profile, shared, *words = sys.argv[1:]
with open(path) as file:
    config = json.load(file)
with open(profile) as file:
    profile = json.load(file)
capabilities = ["CAP_SYS_ADMIN", "CAP_SETPCAP"]
process, linux = config["process"], config["linux"]
process.update(args=["/usr/bin/okeanos", *words], terminal=False)
process["capabilities"] = {name: capabilities for name in ("bounding", "effective", "permitted")}
process.pop("rlimits", None)
config["mounts"] = [one for one in config["mounts"] if one["destination"] != "/mnt"]
config["mounts"].append(
    {"destination": "/mnt", "type": "bind", "source": shared, "options": ["rbind", "rshared"]}
)
linux["rootfsPropagation"] = "slave"
fuse = {"type": "c", "major": 10, "minor": 229}
linux["devices"] = [{"path": "/dev/fuse", "fileMode": 0o666, **fuse}]
linux["resources"] = {
    "devices": [{"allow": False, "access": "rwm"}, {"allow": True, "access": "rwm", **fuse}]
}


def applies(rule):
    includes, excludes = rule.get("includes") or {}, rule.get("excludes") or {}
    return (
        all(one in capabilities for one in includes.get("caps", []))
        and ("amd64" in includes["arches"] if includes.get("arches") else True)
        and not any(one in capabilities for one in excludes.get("caps", []))
        and "amd64" not in excludes.get("arches", [])
    )


rules = []
for rule in filter(applies, profile["syscalls"]):
    kept = {key: rule[key] for key in ("names", "action", "args", "errnoRet") if rule.get(key)}
    rules.append(kept)
linux["seccomp"] = {
    "defaultAction": profile["defaultAction"],
    "defaultErrnoRet": profile.get("defaultErrnoRet", 1),
    "architectures": ["SCMP_ARCH_X86_64"],
    "syscalls": rules,
}
with open(path, "w") as file:
    json.dump(config, file)
END
}
run() { # WORDS OF OKEANOS...: in the image
    settings "$@"
    runc run --bundle "$bundle" "$name-$RANDOM"
}

settings mount -f -o data=wasteless,noloop,allow_other /image /mnt/a
runc run --detach --bundle "$bundle" "$name" >"$place/log" 2>&1 </dev/null || fail "runc run"
for _ in $(seq 100); do
    mountpoint -q "$shared/a" && break
    sleep 0.1
done
mountpoint -q "$shared/a" || fail "others do not see the volume"
mkdir -m 1777 "$shared/a/public"
setpriv --reuid 65534 --regid 65534 --clear-groups sh -c "echo kept >$shared/a/public/file && sync $shared/a/public/file" ||
    fail "an ordinary user cannot write"
# Without io_uring, which the profile forbids.
runc exec "$name" /usr/bin/okeanos stats --json /mnt/a >"$place/log" 2>&1 || fail "okeanos stats"
grep -q '"by": "threads"' "$place/log" || fail "io_uring was had despite the profile"
runc kill "$name" TERM
for _ in $(seq 100); do
    runc state "$name" 2>/dev/null | grep -q '"status": "stopped"' && break
    sleep 0.1
done
! mountpoint -q "$shared/a" || fail "SIGTERM left the volume mounted"
run check /image >"$place/log" 2>&1 || fail "okeanos check"
e2fsck -fn "$bundle/rootfs/image" >"$place/log" 2>&1 || fail "e2fsck"
[ "$(debugfs -R 'cat /public/file' "$bundle/rootfs/image" 2>/dev/null)" = kept ] || fail "what was synced is gone"
echo "image: run, shared, stopped; $(stat -c %s "$image") bytes"
