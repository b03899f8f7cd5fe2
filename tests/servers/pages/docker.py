#!/usr/bin/env python3
"""What pages need of Docker, where no container can be started: `docker load`, `run`, `exec` and `compose up`. A container is a
directory with the layers of its image, in which its program runs as its user; it has the network of the machine of the page. An
image that is built from a base image is not: its program runs where its Dockerfile is."""

import gzip
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import time
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


def yaml(file):
    """What a file says, as Ruby reads it."""
    words = ["ruby", "-ryaml", "-rjson", "-e", "puts JSON.dump(YAML.load(ARGF.read))", file]
    return json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def compose_up(file):
    """Starts the services in the order of the file, each when those that it names are healthy."""
    services, home = yaml(file)["services"], Path(file).parent.resolve()
    volumes, healthy = {}, set()
    for name, service in services.items():
        if "image" in service:
            compose_image(name, service, home, volumes)
            healthy.add(name)
        else:
            waits = {of for of, how in service["depends_on"].items() if how == {"condition": "service_healthy"}}
            assert waits and waits <= healthy, f"{name} starts before {waits}"
            compose_build(service, home, volumes)
    os.wait()  # until one of them ends


def compose_image(name, service, home, volumes):
    """Starts a container of a loaded image, and waits until it is healthy."""
    tag, options = service["image"], ["--name", name]
    for volume in service["volumes"]:
        source, destination = volume.split(":")[:2]
        if source.startswith("./"):
            options += ["--volume", f"{home / source}:{destination}"]
        else:
            volumes[source] = HERE / tag / "root" / destination.lstrip("/")
    subprocess.Popen(["docker", "run", *options, tag])
    test = service["healthcheck"]["test"]
    assert test[0] == "CMD", test
    for _ in range(600):
        if subprocess.run(["docker", "exec", name, *test[1:]], stderr=subprocess.DEVNULL).returncode == 0:
            return
        time.sleep(0.1)
    sys.exit(f"{name} is not healthy")


def compose_build(service, home, volumes):
    """Starts the program of a Dockerfile, where that is."""
    directory = home / service["build"]
    lines = (directory / "Dockerfile").read_text().splitlines()
    (command,) = [json.loads(line.removeprefix("CMD ")) for line in lines if line.startswith("CMD ")]
    env = dict(service["environment"])
    for volume in service["volumes"]:
        source, destination = volume.split(":")[:2]
        env = {name: value.replace(destination, str(volumes[source])) for name, value in env.items()}
    subprocess.Popen(command, cwd=directory, env={**os.environ, **env})


match sys.argv[1:]:
    case ["load", "--input", archive]:
        load(archive)
    case ["run", *words]:
        run(words)
    case ["compose", "--file", file, "up"]:
        compose_up(file)
    case ["exec", name, *command]:
        enter(*json.loads((HERE / name).read_text()), command)
    case words:
        sys.exit(f"this docker has no command {words}")
