#!/usr/bin/env python3
"""What pages need of Docker, where no container can be started: `docker load`, `run` and `exec`. A container is a directory with
the layers of its image, in which its program runs as its user; it has the network of the machine of the page."""

import gzip
import hashlib
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

HERE = Path(os.environ["PWD"]).resolve() / "../docker"


def load(archive):
    """As `docker load`, which reads manifest.json. A blob that is not what its name says is refused."""
    with tarfile.open(archive) as files:
        read = lambda name: files.extractfile(name).read()

        def blob(path):
            data = read(path)
            digest = path.removeprefix("blobs/sha256/")
            if hashlib.sha256(data).hexdigest() != digest:
                sys.exit(f"{path} has another digest")
            return data

        # The list of the Open Container Initiative says the same.
        (index,) = json.loads(read("index.json"))["manifests"]
        listed = json.loads(blob(index["digest"].replace(":", "/").replace("sha256", "blobs/sha256", 1)))
        (image,) = json.loads(read("manifest.json"))
        paths = [part["digest"].replace("sha256:", "blobs/sha256/") for part in [listed["config"], *listed["layers"]]]
        if paths != [image["Config"], *image["Layers"]]:
            sys.exit("index.json and manifest.json differ")
        (tag,) = image["RepoTags"]
        home = HERE / tag
        root = home / "root"
        root.mkdir(parents=True)
        config = json.loads(blob(image["Config"]))
        for path, digest in zip(image["Layers"], config["rootfs"]["diff_ids"], strict=True):
            layer = gzip.decompress(blob(path))
            if f"sha256:{hashlib.sha256(layer).hexdigest()}" != digest:
                sys.exit(f"{path} has another digest when it is unpacked")
            subprocess.run(["tar", "-x", "--numeric-owner", "--same-owner", "-p", "-C", root], input=layer, check=True)
    (home / "config.json").write_text(json.dumps(config["config"]))
    bring_libraries(root, root / config["config"]["Entrypoint"][0].lstrip("/"))
    print(f"Loaded image: {tag}")


def bring_libraries(root, program):
    """The program that tests have built is not linked statically."""
    said = subprocess.run(["ldd", program], capture_output=True, text=True)
    for word in said.stdout.split() if said.returncode == 0 else []:
        if word.startswith("/"):
            path = root / word.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(Path(word).read_bytes())
            path.chmod(0o755)


def enter(tag, env, command):
    """Becomes a program of a container."""
    root, config = HERE / tag / "root", json.loads((HERE / tag / "config.json").read_text())
    user, group = map(int, config["User"].split(":"))
    env = dict(pair.split("=", 1) for pair in [*config["Env"], *env])
    command = command or [*config["Entrypoint"], *config["Cmd"]]
    os.chroot(root)
    os.chdir(config["WorkingDir"])
    os.setgroups([])
    os.setgid(group)
    os.setuid(user)
    os.execvpe(command[0], command, env)


def run(words):
    env, name = [], "container"
    while words[0].startswith("--"):
        option = words.pop(0)
        match option:
            case "--rm":
                continue
            case "--name":
                name = words.pop(0)
            case "--env":
                env.append(words.pop(0))
            case "--volume":
                mount(words.pop(0), words)
            case _:
                sys.exit(f"this docker has no option {option}")
    tag = words.pop(0)
    (HERE / name).write_text(json.dumps([tag, env]))
    entrypoint = json.loads((HERE / tag / "config.json").read_text())["Entrypoint"]
    enter(tag, env, words and [*entrypoint, *words])


def mount(volume, words):
    """Binds a file of the machine. A volume with a name is the directory in the image, which stays."""
    source, destination = volume.split(":")[:2]
    if "/" not in source:
        return
    (tag,) = [word for word in words if (HERE / word / "root").is_dir()]
    destination = HERE / tag / "root" / destination.lstrip("/")
    subprocess.run(["mount", "--bind", source, destination], check=True)


match sys.argv[1:]:
    case ["load", "--input", archive]:
        load(archive)
    case ["run", *words]:
        run(words)
    case ["exec", name, *command]:
        enter(*json.loads((HERE / name).read_text()), command)
    case words:
        sys.exit(f"this docker has no command {words}")
