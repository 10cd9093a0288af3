#!/usr/bin/env python3
"""Prints what a statically linked program is made of, as CycloneDX JSON.

Crates come from `cargo metadata`, reached from the packages named by normal and build dependencies,
with the checksums of Cargo.lock. Rust's standard library and musl, which comes with it, are linked in
as well, so they are listed with their versions. Output depends on these alone.

    scripts/make-sbom.py TARGET PACKAGE...
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tomllib

target, packages = sys.argv[1], sys.argv[2:]
cargo = os.environ.get("CARGO", "cargo")


def run(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


metadata = json.loads(
    run(cargo, "metadata", "--locked", "--format-version=1", f"--filter-platform={target}")
)
with open("Cargo.lock", "rb") as lock:
    checksums = {
        (package["name"], package["version"]): package.get("checksum")
        for package in tomllib.load(lock)["package"]
    }
of_id = {package["id"]: package for package in metadata["packages"]}
needs = {
    node["id"]: [
        dependency["pkg"]
        for dependency in node["deps"]
        if any(kind["kind"] != "dev" for kind in dependency["dep_kinds"])
    ]
    for node in metadata["resolve"]["nodes"]
}


def reached(ids):
    found, waiting = set(), list(ids)
    while waiting:
        found.add(one := waiting.pop())
        waiting += [other for other in needs[one] if other not in found]
    return found


def reference(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package):
    described = {
        "type": "library",
        "bom-ref": reference(package),
        "name": package["name"],
        "version": package["version"],
        "purl": reference(package),
    }
    if package["license"]:
        expression = package["license"].replace("/", " OR ")
        described["licenses"] = [{"expression": expression}]
    if checksum := checksums[package["name"], package["version"]]:
        described["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return described


roots = [package["id"] for package in metadata["packages"] if package["name"] in packages]
roots = [one for one in roots if one in metadata["workspace_members"]]
found = sorted((of_id[one] for one in reached(roots)), key=reference)
rust = run("rustc", "--version").split()[1]
rust_libraries = pathlib.Path(run("rustc", "--print=target-libdir", f"--target={target}").strip())
c_library = (rust_libraries / "self-contained" / "libc.a").read_bytes()
# `__libc_version`, which gdb reads too.
(musl,) = re.findall(rb"[\0-\x1f](\d\.\d+\.\d+)\0", c_library)
linked = [
    {"type": "library", "bom-ref": "rust-std", "name": "rust-std", "version": rust},
    {
        "type": "library",
        "bom-ref": "c-library",
        "name": "musl",
        "version": musl.decode(),
        "licenses": [{"expression": "MIT"}],
    },
]
version = of_id[roots[0]]["version"]
whole = {"type": "application", "bom-ref": "okeanos", "name": "okeanos", "version": version}
edges = [{"ref": "okeanos", "dependsOn": sorted(reference(of_id[one]) for one in roots)}]
edges += [
    {
        "ref": reference(package),
        "dependsOn": sorted({reference(of_id[one]) for one in needs[package["id"]]}),
    }
    for package in found
]
json.dump(
    {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": whole},
        "components": [component(package) for package in found] + linked,
        "dependencies": edges,
    },
    sys.stdout,
    indent=1,
)
print()
