#!/usr/bin/env python3
"""Writes the packages that `scripts/package` does not build with a tool of their own: a wheel for pip, packages for npm and
Composer, an image for containers, and the list of crates in the program (an SBOM).

    package_formats.py --program FILE --version 0.1.0 --arch x86_64 --image DIRECTORY --level 9 OUT

The same input gives the same files: times are SOURCE_DATE_EPOCH, names are sorted.
"""

import argparse
import base64
import gzip
import hashlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
import time
import tomllib
import uuid
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])
SUMMARY = "Delayed tasks, scheduled with SETEX: the program lapsed"
LICENCE = "MIT OR Apache-2.0"
LICENCES = ["LICENSE-MIT", "LICENSE-APACHE"]
# What the three calls of an architecture are.
ARCHES = {"x86_64": ("x64", "amd64"), "aarch64": ("arm64", "arm64")}


def zipped(path, files, level):
    """A zip file of (name, mode, bytes)."""
    date = time.gmtime(max(EPOCH, 315532800))[:6]  # zip has no time before 1980
    with zipfile.ZipFile(path, "w") as archive:
        for name, mode, data in files:
            info = zipfile.ZipInfo(name, date)
            info.external_attr = (0o100000 | mode) << 16
            info.create_system = 3  # Unix: others ignore the mode
            archive.writestr(info, data, zipfile.ZIP_DEFLATED, level)


def entry(name, mode, owner=0, data=None):
    """An entry of a tar file, which is a directory without data."""
    info = tarfile.TarInfo(name)
    info.mode, info.uid, info.gid, info.mtime = mode, owner, owner, EPOCH
    info.type = tarfile.DIRTYPE if data is None else tarfile.REGTYPE
    info.size = len(data or b"")
    return info, data


def tarred(entries):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for info, data in entries:
            archive.addfile(info, None if data is None else io.BytesIO(data))
    return out.getvalue()


def gzipped(data, level):
    return gzip.compress(data, level, mtime=0)


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def licences(prefix):
    return [(prefix + name, 0o644, (ROOT / name).read_bytes()) for name in LICENCES]


def as_json(value):
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def wheel(out, program, version, arch, level):
    """https://packaging.python.org/en/latest/specifications/binary-distribution-format/"""
    # A static program needs no libc: it runs on glibc and on musl.
    platforms = [f"manylinux_2_17_{arch}", f"manylinux2014_{arch}", f"musllinux_1_1_{arch}"]
    info = f"lapsed-{version}.dist-info/"
    metadata = f"Metadata-Version: 2.4\nName: lapsed\nVersion: {version}\nSummary: {SUMMARY}\n"
    metadata += f"License-Expression: {LICENCE}\n"
    metadata += "".join(f"License-File: {name}\n" for name in LICENCES)
    tags = "".join(f"Tag: py3-none-{platform}\n" for platform in platforms)
    files = [
        (f"lapsed-{version}.data/scripts/lapsed", 0o755, program),
        *licences(info + "licenses/"),
        (info + "METADATA", 0o644, metadata.encode()),
        (info + "WHEEL", 0o644, f"Wheel-Version: 1.0\nGenerator: lapsed\nRoot-Is-Purelib: false\n{tags}".encode()),
    ]
    record = ""
    for name, _, data in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    record += f"{info}RECORD,,\n"
    files.append((info + "RECORD", 0o644, record.encode()))
    zipped(out / f"lapsed-{version}-py3-none-{'.'.join(platforms)}.whl", files, level)


def npm(out, program, version, arch, level):
    """One package with the program itself: no script runs when it is installed, and no process of Node.js stands between a
    terminal and the daemon. npm refuses it on machines that are not `os` and `cpu`."""
    cpu = ARCHES[arch][0]
    description = {
        "name": "lapsed",
        "version": version,
        "description": SUMMARY,
        "license": LICENCE,
        "os": ["linux"],
        "cpu": [cpu],
        "bin": {"lapsed": "bin/lapsed"},
        "files": ["bin", *LICENCES],
    }
    files = [("package.json", 0o644, as_json(description)), ("bin/lapsed", 0o755, program), *licences("")]
    data = tarred(entry("package/" + name, mode, data=data) for name, mode, data in files)
    (out / f"lapsed-{version}-linux-{cpu}.tgz").write_bytes(gzipped(data, level))


def composer(out, program, version, arch, level):
    description = {
        "name": "lapsed/lapsed",
        "version": version,
        "description": SUMMARY,
        "license": ["MIT", "Apache-2.0"],
        "bin": ["bin/lapsed"],
    }
    files = [("composer.json", 0o644, as_json(description)), ("bin/lapsed", 0o755, program), *licences("")]
    zipped(out / f"lapsed-{version}-{arch}-composer.zip", files, level)


def instructions(dockerfile):
    """The instructions after the last FROM, which is `scratch`: words and values."""
    text = re.sub(r"^#.*\n", "", dockerfile.read_text(), flags=re.M)
    stage = text.rsplit("FROM scratch\n", 1)[1]
    return [tuple(line.split(None, 1)) for line in stage.splitlines() if line.strip()]


def nanoseconds(text):
    amount, unit = re.fullmatch(r"(\d+)(s|m)", text).groups()
    return int(amount) * {"s": 1, "m": 60}[unit] * 1_000_000_000


def healthcheck(value):
    options, command = value.split("CMD ", 1)
    named = dict(word.removeprefix("--").split("=") for word in options.split())
    return {
        "Test": ["CMD", *json.loads(command)],
        "Interval": nanoseconds(named["interval"]),
        "Timeout": nanoseconds(named["timeout"]),
        "StartPeriod": nanoseconds(named["start-period"]),
        "Retries": int(named["retries"]),
    }


def copied(value, image, made):
    """The entries of a COPY from the directory of the stage before, and the directories above them."""
    *options, source, destination = shlex.split(value)
    source = image / Path(source).relative_to("/image")
    owners = [int(o.split("=")[1].split(":")[0]) for o in options if o.startswith("--chown=")]
    destination = Path(destination.lstrip("/"))
    for parent in list(destination.parents)[-2::-1]:
        if parent not in made:
            made.add(parent)
            yield entry(str(parent), 0o755)
    made.add(destination)
    data = None if source.is_dir() else source.read_bytes()
    yield entry(str(destination), source.stat().st_mode & 0o7777, sum(owners), data)


def image(out, staged, version, arch, level):
    """An archive for `docker load` and `podman load`: a layout of the Open Container Initiative with the list that Docker
    reads. https://github.com/opencontainers/image-spec/blob/main/image-layout.md"""
    entries, made = [], set()
    config = {"Env": ["PATH=/usr/bin"]}
    for word, value in instructions(ROOT / "Dockerfile"):
        match word:
            case "COPY":
                entries.extend(copied(value, staged, made))
            case "USER":
                config["User"] = value
            case "WORKDIR":
                config["WorkingDir"] = value
            case "VOLUME":
                config["Volumes"] = {path: {} for path in json.loads(value)}
            case "EXPOSE":
                config["ExposedPorts"] = {f"{port}/tcp": {} for port in value.split()}
            case "STOPSIGNAL":
                config["StopSignal"] = value
            case "HEALTHCHECK":
                config["Healthcheck"] = healthcheck(value)
            case "ENTRYPOINT":
                config["Entrypoint"] = json.loads(value)
            case "CMD":
                config["Cmd"] = json.loads(value)
            case _:
                sys.exit(f"package: cannot do `{word}` of Dockerfile without Docker")
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(EPOCH))
    layer = tarred(entries)
    packed = gzipped(layer, level)
    blobs = {}

    def blob(kind, data):
        blobs[sha256(data)] = data
        return {"mediaType": kind, "digest": f"sha256:{sha256(data)}", "size": len(data)}

    kinds = "application/vnd.oci.image."
    settings = {
        "created": created,
        "architecture": ARCHES[arch][1],
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(layer)}"]},
        "history": [{"created": created, "created_by": "scripts/package"}],
    }
    layers = [blob(kinds + "layer.v1.tar+gzip", packed)]
    settings = blob(kinds + "config.v1+json", as_json(settings))
    manifest = {"schemaVersion": 2, "mediaType": kinds + "manifest.v1+json", "config": settings, "layers": layers}
    manifest = blob(kinds + "manifest.v1+json", as_json(manifest))
    manifest["annotations"] = {
        "io.containerd.image.name": f"docker.io/library/lapsed:{version}",
        "org.opencontainers.image.ref.name": version,
    }
    path = lambda described: "blobs/sha256/" + described["digest"].removeprefix("sha256:")
    docker = [{"Config": path(settings), "RepoTags": [f"lapsed:{version}"], "Layers": [path(layer) for layer in layers]}]
    files = {f"blobs/sha256/{digest}": data for digest, data in blobs.items()}
    files["index.json"] = as_json({"schemaVersion": 2, "manifests": [manifest]})
    files["manifest.json"] = as_json(docker)
    files["oci-layout"] = as_json({"imageLayoutVersion": "1.0.0"})
    directories = [entry("blobs", 0o755), entry("blobs/sha256", 0o755)]
    archive = tarred(directories + [entry(name, 0o644, data=files[name]) for name in sorted(files)])
    (out / f"lapsed-{version}-{arch}-image.tar").write_bytes(archive)


def sbom(out, version, arch):
    """The crates that are compiled into the program, with their licences and the checksums of Cargo.lock.
    https://cyclonedx.org/docs/1.5/json/"""
    command = ["cargo", "tree", "--locked", "--package", "lapsed-cli", "--target", f"{arch}-unknown-linux-musl"]
    command += ["--edges", "normal", "--prefix", "depth", "--format", "|{p}|{l}"]
    tree = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    checksums = {(p["name"], p["version"]): p.get("checksum") for p in lock["package"]}
    components, needs, path = {}, {}, []
    for line in tree.splitlines():
        depth, package, licence = line.split("|")
        name, of = package.split()[:2]
        of = of.removeprefix("v")
        url = f"pkg:cargo/{name}@{of}"
        component = {"type": "library", "bom-ref": url, "name": name, "version": of, "purl": url}
        licence = licence.removesuffix("(*)").strip().replace("/", " OR ")
        if licence:
            component["licenses"] = [{"expression": licence}]
        if checksum := checksums[name, of]:
            component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        components.setdefault(url, component)
        needs.setdefault(url, set())
        path[int(depth) :] = [url]
        if len(path) > 1:
            needs[path[-2]].add(url)
    program = f"pkg:cargo/lapsed-cli@{version}"
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(EPOCH))
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, created + tree)}",
        "version": 1,
        "metadata": {"timestamp": created, "component": components.pop(program) | {"type": "application"}},
        "components": [components[url] for url in sorted(components)],
        "dependencies": [{"ref": url, "dependsOn": sorted(needs[url])} for url in sorted(needs)],
    }
    (out / f"lapsed-{version}-{arch}.cdx.json").write_bytes(as_json(document))


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--program", type=Path, required=True)
    options.add_argument("--version", required=True)
    options.add_argument("--arch", choices=ARCHES, required=True)
    options.add_argument("--image", type=Path, required=True, help="the directory /image of Dockerfile")
    options.add_argument("--level", type=int, default=9, help="of compression")
    options.add_argument("out", type=Path)
    options = options.parse_args()
    if not re.fullmatch(r"\d+\.\d+\.\d+", options.version):
        # pip, npm and Composer write other versions in three ways.
        sys.exit(f"package: expected a version of three numbers, found `{options.version}`")
    program = options.program.read_bytes()
    for write in wheel, npm, composer:
        write(options.out, program, options.version, options.arch, options.level)
    image(options.out, options.image, options.version, options.arch, options.level)
    sbom(options.out, options.version, options.arch)


main()
