"""What runs inside the cluster's namespaces: the first process there, which starts and looks after the others.

Not to be run by hand: `cluster.py` starts it, and joins its network with the host's.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

_CNI = "/usr/lib/cni"
_TUNABLES = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}
"""What kubelet wants to set. They belong to the whole host, so it is shown files with these values."""


class Node:
    """The programs of the cluster, in one folder, with addresses that the number chooses."""

    def __init__(self, folder: Path, programs: Path, number: int) -> None:
        self.folder = folder
        self.programs = programs
        self.address = f"10.88.{number}.2"
        self.pods = f"10.89.{number}.0/24"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.archives: list[Path] = []
        """The images that were loaded."""
        self.certificates = folder / "pki"
        self.kubeconfig = folder / "kubeconfig"
        self.socket = folder / "containerd.sock"
        self.second_socket = folder / "second" / "containerd.sock"

    # Making it

    def prepare(self) -> None:
        """Network, control groups, certificates and files; nothing runs yet."""
        sh(f"ip addr add {self.address}/30 dev up0")
        sh("ip link set up0 up")
        sh("ip link set lo up")
        sh(f"ip route add default via {self.address.rsplit('.', 1)[0]}.1")
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        self._hide_tunables()
        self._hide_networks()
        for controller in Path("/sys/fs/cgroup").iterdir():
            if controller.is_symlink() or controller.name == "unified" or not controller.is_dir():
                continue
            # The second node's lies apart: a kubelet ends what it does not know in its own.
            for group in (controller / self.folder.name, controller / self.folder.name / "second"):
                group.mkdir()
                for name in ("cpuset.cpus", "cpuset.mems"):
                    if (controller / name).exists():
                        (group / name).write_text((controller / name).read_text())
        self._make_certificates()
        self._write_files()

    def _hide_networks(self) -> None:
        """What plugins of networks, and containerd, note in places of the host, wherever else their notes lie."""
        for place in (Path("/var/lib/cni"), Path("/run/netns")):
            own = self.folder / "networks" / place.name
            for folder in (own, place):
                folder.mkdir(parents=True, exist_ok=True)
            sh(f"mount --bind {own} {place}")

    def _hide_tunables(self) -> None:
        for name, value in _TUNABLES.items():
            file = self.folder / name.replace("/", "_")
            file.write_text(f"{value}\n")
            sh(f"mount --bind {file} /proc/sys/{name}")

    def _make_certificates(self) -> None:
        pki = self.certificates
        pki.mkdir()
        openssl("req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 30 -subj /CN=aenv-test", pki)
        openssl("genrsa -out sa.key 2048", pki)
        names = f"IP:127.0.0.1,IP:{self.address},IP:10.96.0.1,DNS:node1,DNS:kubernetes.default.svc"
        self.certificate("server", "/CN=node1", f"subjectAltName={names}")
        self.certificate("admin", "/O=system:masters/CN=admin")
        self.certificate("expired", "/O=system:masters/CN=late", days=0)
        for name in ("admin", "expired"):
            path = self.kubeconfig if name == "admin" else self.folder / "kubeconfig-expired"
            path.write_text(json.dumps(self._config(name)))

    def certificate(self, name: str, subject: str, extension: str = "", days: int = 30) -> None:
        pki = self.certificates
        (pki / f"{name}.ext").write_text(extension)
        openssl(f"req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr -subj {subject}", pki)
        openssl(
            f"x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out {name}.crt -days {days} "
            f"-extfile {name}.ext",
            pki,
        )

    def _config(self, user: str) -> dict[str, object]:
        pki = self.certificates
        server = {"server": f"https://{self.address}:6443", "certificate-authority": str(pki / "ca.crt")}
        keys = {"client-certificate": str(pki / f"{user}.crt"), "client-key": str(pki / f"{user}.key")}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": server}],
            "users": [{"name": user, "user": keys}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user, "namespace": "default"}}],
            "current-context": "test",
        }

    def _write_files(self) -> None:
        cni = self.folder / "cni"
        cni.mkdir()
        ipam = {"type": "host-local", "ranges": [[{"subnet": self.pods}]], "routes": [{"dst": "0.0.0.0/0"}]}
        ipam["dataDir"] = str(self.folder / "ipam")
        bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False, "hairpinMode": True}
        plugins = [{**bridge, "ipam": ipam}, {"type": "portmap", "capabilities": {"portMappings": True}}]
        network = {"cniVersion": "0.4.0", "name": "pods", "plugins": plugins}
        (cni / "10-pods.conflist").write_text(json.dumps(network))
        (self.folder / "second").mkdir()
        for place in (self.folder, self.folder / "second"):
            (place / "containerd.toml").write_text(_CONTAINERD.format(folder=place, cni=cni, bin=_CNI))
        kubelet = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.folder.name}",
            "makeIPTablesUtilChains": False,
            "failSwapOn": False,
            "oomScoreAdj": 0,
            "authentication": {
                "anonymous": {"enabled": False},
                "x509": {"clientCAFile": f"{self.certificates}/ca.crt"},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "clusterDomain": "cluster.local",
            "nodeStatusUpdateFrequency": "2s",
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
            "tlsCertFile": f"{self.certificates}/server.crt",
            "tlsPrivateKeyFile": f"{self.certificates}/server.key",
            "maxPods": 200,
            "registryPullQPS": 0,
            "eventRecordQPS": 0,
            "serializeImagePulls": False,
        }
        (self.folder / "kubelet.json").write_text(json.dumps(kubelet))
        apart = {"cgroupRoot": f"/{self.folder.name}/second", "port": 10350, "healthzPort": 10349}
        (self.folder / "second" / "kubelet.json").write_text(json.dumps({**kubelet, **apart}))

    # Running it

    def command(self, name: str) -> list[str]:
        pki, folder, config = self.certificates, self.folder, f"--kubeconfig={self.kubeconfig}"
        programs = self.programs
        match name:
            case "etcd":
                return ["etcd", f"--data-dir={folder}/etcd", "--unsafe-no-fsync", "--log-level=error"]
            case "containerd":
                return ["containerd", f"--config={folder}/containerd.toml"]
            case "containerd2":
                return ["containerd", f"--config={folder}/second/containerd.toml"]
            case "apiserver":
                return [
                    f"{programs}/kube-apiserver",
                    "--etcd-servers=http://127.0.0.1:2379",
                    "--bind-address=0.0.0.0",
                    f"--advertise-address={self.address}",
                    "--secure-port=6443",
                    "--authorization-mode=Node,RBAC",
                    "--allow-privileged=true",
                    "--service-cluster-ip-range=10.96.0.0/16",
                    f"--client-ca-file={pki}/ca.crt",
                    f"--tls-cert-file={pki}/server.crt",
                    f"--tls-private-key-file={pki}/server.key",
                    f"--service-account-key-file={pki}/sa.key",
                    f"--service-account-signing-key-file={pki}/sa.key",
                    "--service-account-issuer=https://kubernetes.default.svc",
                    f"--kubelet-client-certificate={pki}/admin.crt",
                    f"--kubelet-client-key={pki}/admin.key",
                    "--kubelet-preferred-address-types=InternalIP,Hostname",
                    "--default-not-ready-toleration-seconds=3",
                    "--default-unreachable-toleration-seconds=3",
                    "--enable-admission-plugins=NodeRestriction",
                ]
            case "controller-manager":
                return [
                    f"{programs}/kube-controller-manager",
                    config,
                    f"--service-account-private-key-file={pki}/sa.key",
                    f"--root-ca-file={pki}/ca.crt",
                    "--leader-elect=false",
                    "--node-monitor-period=1s",
                    "--node-monitor-grace-period=20s",
                    "--controllers=*,-nodeipam,-cloud-node-lifecycle,-route",
                ]
            case "scheduler":
                return [f"{programs}/kube-scheduler", config, "--leader-elect=false"]
            case "kubelet":
                return self._kubelet("node1", folder, self.socket)
            case "kubelet2":
                return self._kubelet("node2", folder / "second", self.second_socket)
            case "proxy":
                return [
                    f"{programs}/kube-proxy",
                    config,
                    "--proxy-mode=iptables",
                    f"--cluster-cidr={self.pods}",
                    "--hostname-override=node1",
                    "--oom-score-adj=0",
                    "--conntrack-max-per-core=0",
                    "--conntrack-tcp-timeout-established=0s",
                    "--conntrack-tcp-timeout-close-wait=0s",
                    "--iptables-min-sync-period=0s",
                ]
        raise ValueError(f"no program {name!r}")

    def _kubelet(self, node: str, folder: Path, socket: Path) -> list[str]:
        return [
            f"{self.programs}/kubelet",
            f"--kubeconfig={self.kubeconfig}",
            f"--config={folder}/kubelet.json",
            f"--root-dir={folder}/kubelet",
            "--container-runtime=remote",
            f"--container-runtime-endpoint=unix://{socket}",
            "--pod-infra-container-image=aenv.test/pause:1",
            f"--hostname-override={node}",
            f"--cert-dir={folder}/kubelet-pki",
        ]

    def start_second(self) -> None:
        """A second node: a kubelet and a containerd of its own, in the same network."""
        self.start("containerd2")
        self.wait("the second containerd", lambda: self.ctr("version", socket=self.second_socket))
        for archive in self.archives:
            self.ctr("-n", "k8s.io", "image", "import", str(archive), socket=self.second_socket)
        self.start("kubelet2")
        self.wait("the second node", lambda: self._is_node_ready("node2"))

    def start(self, name: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                self.command(name), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder
            )

    def stop(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def start_all(self) -> None:
        self.start("etcd")
        self.start("containerd")
        self.start("apiserver")
        self.wait("the apiserver", self.is_healthy)
        for name in ("controller-manager", "scheduler", "proxy"):
            self.start(name)
        self.wait("containerd", lambda: self.ctr("version"))
        self._load_pause()
        self.start("kubelet")
        self.wait("the node", self._is_node_ready)

    def _load_pause(self) -> None:
        root = self.folder / "pause"
        root.mkdir()
        (root / "pause").write_bytes((self.programs / "pause").read_bytes())
        (root / "pause").chmod(0o755)
        archive = self.folder / "pause.tar"
        subprocess.run(
            [sys.executable, Path(__file__).with_name("image.py"), root, "aenv.test/pause:1", archive, "/pause"],
            check=True,
        )
        self.load(archive)

    def load(self, archive: Path) -> None:
        """Import an image, from then on known under the names that the archive gives it."""
        if not self.ctr("-n", "k8s.io", "image", "import", str(archive)):
            raise RuntimeError(f"cannot import {archive}")
        kept = self.folder / f"{len(self.archives)}.tar"  # for the second node
        shutil.copyfile(archive, kept)
        self.archives.append(kept)

    def ctr(self, *arguments: str, socket: Path | None = None) -> bool:
        with (self.folder / "ctr.log").open("ab") as log:
            command = ["ctr", "-a", str(socket or self.socket), *arguments]
            return subprocess.run(command, stdout=log, stderr=log).returncode == 0

    def request(self, path: str) -> bytes:
        context = ssl.create_default_context(cafile=str(self.certificates / "ca.crt"))
        context.load_cert_chain(self.certificates / "admin.crt", self.certificates / "admin.key")
        with urllib.request.urlopen(f"https://{self.address}:6443{path}", context=context, timeout=5) as reply:
            return bytes(reply.read())

    def is_healthy(self) -> bool:
        return self.request("/readyz") == b"ok" and bool(self.request("/api/v1/namespaces/default"))

    def _is_node_ready(self, name: str = "node1") -> bool:
        node = json.loads(self.request(f"/api/v1/nodes/{name}"))
        conditions = {each["type"]: each["status"] for each in node["status"].get("conditions", ())}
        tainted = any(taint["key"] == "node.kubernetes.io/not-ready" for taint in node["spec"].get("taints", ()))
        # Pods need the default service account of their namespace, which a controller makes.
        account = self.request("/api/v1/namespaces/default/serviceaccounts/default")
        return conditions.get("Ready") == "True" and not tainted and b"secrets" in account

    def wait(self, what: str, is_so: object, seconds: float = 120.0) -> None:
        """The programs tell no other way when they are ready than by answering."""
        end = time.monotonic() + seconds
        while True:
            for name, process in self.processes.items():
                if process.poll() is not None:
                    raise RuntimeError(f"{name} has ended; {self.folder}/{name}.log says why:\n{self.tail(name)}")
            try:
                if is_so():  # type: ignore[operator]
                    return
            except (OSError, KeyError, ValueError):
                pass
            if time.monotonic() > end:
                raise RuntimeError(f"{what} is not ready after {seconds:g} s")
            time.sleep(0.05)

    def tail(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")[-1500:]

    def obey(self, line: str) -> str:
        """Do what a line says, and answer with a line."""
        verb, _, what = line.strip().partition(" ")
        try:
            match verb:
                case "stop":
                    self.stop(what)
                case "start" if what == "node2":
                    self.start_second()
                case "start":
                    self.start(what)
                    if what == "apiserver":
                        self.wait("the apiserver", self.is_healthy)
                    if what == "kubelet":
                        self.wait("the node", self._is_node_ready)
                case "load":
                    self.load(Path(what))
                case _:
                    return f"error: no command {verb!r}"
        except (RuntimeError, ValueError, KeyError) as error:
            return f"error: {error}".replace("\n", " ")
        return "ok"


_CONTAINERD = """
version = 2
root = "{folder}/containerd"
state = "{folder}/containerd-state"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.btrfs"]
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "aenv.test/pause:1"
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{bin}"
    conf_dir = "{cni}"
"""


def sh(command: str) -> None:
    subprocess.run(command.split(), check=True)


def openssl(arguments: str, folder: Path) -> None:
    subprocess.run(["openssl", *arguments.split()], cwd=folder, check=True, capture_output=True)


def reap(node: Node) -> None:
    """End what containers left to us, the first process here; our own are waited for elsewhere."""
    known = {process.pid for process in node.processes.values()}
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None or found.si_pid in known:
            return
        os.waitpid(found.si_pid, 0)


def main() -> None:
    folder, programs, number = sys.argv[1:]
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the end comes from outside, as SIGKILL
    print("up", flush=True)
    if sys.stdin.readline() != "joined\n":
        return
    node = Node(Path(folder), Path(programs), int(number))
    os.environ["PATH"] = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    try:
        node.prepare()
        node.start_all()
    except Exception as error:
        print(f"the cluster cannot start: {error}", file=sys.stderr, flush=True)
        return
    said = {"folder": folder, "kubeconfig": str(node.kubeconfig), "address": node.address, "pods": node.pods}
    print(json.dumps(said), flush=True)
    while True:
        ready, _, _ = select.select([sys.stdin], [], [], 1.0)
        reap(node)
        if ready:
            line = sys.stdin.readline()
            if not line:
                return
            print(node.obey(line), flush=True)


if __name__ == "__main__":
    main()
