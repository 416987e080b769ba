"""The virtual machine's disks: Debian 12 with its cloud kernel, as an image of a cloud leaves it."""

from __future__ import annotations

from pathlib import Path

from lab.artifacts import Artifact, Shell
from lab.debian import KEYRING, mirror

THIS = Path(__file__)
SUITE = "bookworm"
USER = "admin"  # may become root by sudo, as on any cloud's image
ROOT_MIB = 12 * 1024  # sparse
PACKAGES = [
    "linux-image-cloud-amd64",
    "initramfs-tools",
    "systemd-sysv",
    "dbus",
    "udev",
    "openssh-server",
    "sudo",
    "python3",
    "python3-apt",
    "iproute2",
    "procps",
    "kmod",
    "mount",
    "ca-certificates",
]

PATIENT = "x-systemd.device-timeout=15min"  # emulated on a machine in use, a disk takes minutes to appear
TEXTS = {
    "etc/hostname": "vm1\n",
    "etc/hosts": "127.0.0.1 localhost\n127.0.1.1 vm1\n",
    "etc/fstab": "LABEL=root / ext4 defaults 0 1\n"
    f"LABEL=BOOT /boot vfat {PATIENT} 0 2\nLABEL=swap none swap sw,{PATIENT} 0 0\n",
    "etc/systemd/system.conf.d/slow.conf": "[Manager]\nDefaultTimeoutStartSec=15min\n",
    "etc/systemd/network/lan.network": "[Match]\nName=en*\n[Network]\nDHCP=ipv4\n",
    # Debian packs all modules there are, and well: that takes minutes where the processor is emulated.
    "etc/initramfs-tools/conf.d/slow": "MODULES=dep\nCOMPRESS=gzip\nCOMPRESSLEVEL=1\n",
    "etc/sudoers.d/admin": f"{USER} ALL=(ALL) NOPASSWD: ALL\n",
}


def image() -> Artifact:
    """`boot.img`, `root.img`, `swap.img`: its disks; `key`: what `admin` logs in with; `known_hosts`: its own key."""

    def build(out: Path, run: Shell) -> None:
        tree = out / "tree"
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", out / "key")
        run(
            *("mmdebstrap", "--quiet", "--variant=apt", f"--include={','.join(PACKAGES)}"),
            *(f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in ("doc", "man", "locale")),
            *(SUITE, tree, f"deb [signed-by={KEYRING}] {mirror()} {SUITE} main"),
        )
        for path, text in TEXTS.items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(text)
        run("chroot", tree, "useradd", "--create-home", "--shell", "/bin/bash", USER)
        run("chroot", tree, "systemctl", "enable", "systemd-networkd.service")
        authorized = tree / "home" / USER / ".ssh" / "authorized_keys"
        run("install", "-D", "--mode=0600", out / "key.pub", authorized)
        run("chroot", tree, "chown", "-R", f"{USER}:", f"/home/{USER}/.ssh")
        host_key = (tree / "etc" / "ssh" / "ssh_host_ed25519_key.pub").read_text().split()
        (out / "known_hosts").write_text(f"vm1 {' '.join(host_key[:2])}\n")
        _boot_disk(out / "boot.img", tree / "boot", run)
        run("truncate", f"--size={ROOT_MIB}M", out / "root.img")
        run("mke2fs", "-q", "-t", "ext4", "-L", "root", "-d", tree, out / "root.img")
        run("truncate", "--size=256M", out / "swap.img")
        run("mkswap", "--label", "swap", out / "swap.img")
        run("rm", "-r", tree)

    return Artifact("vm-debian-12", build, sources=(THIS,), expected=150)


def _boot_disk(disk: Path, folder: Path, run: Shell) -> None:
    """The disk that /boot is, with a boot loader: after a reboot the kernel gets the initramfs that the machine wrote.

    The folder is empty then, as one is that something is mounted on.
    """
    (kernel,) = folder.glob("vmlinuz-*")
    version = kernel.name.removeprefix("vmlinuz-")
    (folder / "syslinux.cfg").write_text(
        f"DEFAULT debian\nLABEL debian\nKERNEL /{kernel.name}\nINITRD /initrd.img-{version}\n"
        "APPEND root=LABEL=root ro console=ttyS0\n"
    )
    run("mkfs.vfat", "-n", "BOOT", "-C", disk, str(256 * 1024))
    for file in sorted(folder.iterdir()):
        run("mcopy", "-i", disk, file, f"::/{file.name}")
        file.unlink()
    run("syslinux", "--install", disk)
