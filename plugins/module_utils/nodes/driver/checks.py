# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Checks why a server cannot get a driver, or does not use the installed one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from ...diagnosis.check import CheckResult, Evidence, FindingTypes, check
from ...hops import Hop
from ..findings import seen_on
from ..survey.gpu_facts import EITHER
from .branch_ends import branch_end
from .decisions import Driver
from .packages import CUDA_REPO, DEBIAN

_DRIVER = FindingTypes(Hop.DRIVER)

UNIDENTIFIED = _DRIVER.error(
    "DRIVER_GPU_UNIDENTIFIED",
    "the device id decides which kernel modules drive a GPU. A GPU that has fallen off the bus does not report it",
    "on the node: `lspci -nn -d 10de:`; power-cycle the server if the GPU has fallen off the bus. If you know the GPU, "
    "set nvidia_driver_flavour",
    before="refuse",
)


@check("the PCI id of each GPU can be read", UNIDENTIFIED)
def each_gpu_is_identified(driver: Driver) -> Iterator[CheckResult]:
    lost = ", ".join(gpu.address for gpu in driver.facts.unidentified)
    if lost and driver.options.flavour == "auto":
        yield seen_on(driver.host, UNIDENTIFIED, f"does not report the device id of {lost}")


FLAVOUR_MIXED = _DRIVER.error(
    "DRIVER_FLAVOUR_MIXED",
    "the open kernel modules start with Turing, and Blackwell needs them",
    "remove one kind of card, or list its PCI addresses in kubegpu_ignored_gpus",
    before="refuse",
)
FLAVOUR_WRONG = _DRIVER.error(
    "DRIVER_FLAVOUR_WRONG",
    "nvidia_driver_flavour selects kernel modules that do not support these GPUs",
    "set nvidia_driver_flavour: auto",
    before="refuse",
)


@check("the kernel modules support the GPUs", FLAVOUR_MIXED, FLAVOUR_WRONG)
def modules_drive_the_gpus(driver: Driver) -> Iterator[CheckResult]:
    allowed, generations = driver.facts.flavour, " and ".join(driver.facts.generations)
    if driver.facts.unidentified or allowed in (EITHER, driver.flavour):
        return
    if allowed is None:
        yield seen_on(driver.host, FLAVOUR_MIXED, f"has {generations} GPUs, and no single driver supports them")
    else:
        seen = f"has {generations} GPUs, which need the {allowed} kernel modules, not the {driver.flavour} ones"
        yield seen_on(driver.host, FLAVOUR_WRONG, seen)


SOURCE_OF_OTHER_SYSTEM = _DRIVER.error(
    "DRIVER_SOURCE_OF_OTHER_SYSTEM",
    "ubuntu_prebuilt has modules that Canonical built and signed for Ubuntu, and debian has Debian's own packages",
    "set nvidia_driver_source: cuda_repo",
    before="refuse",
)
SOURCE_LACKS_FABRIC = _DRIVER.error(
    "DRIVER_SOURCE_LACKS_FABRIC",
    "Debian's archive has no fabric manager, and Ubuntu's no NVLink subnet manager",
    "set nvidia_driver_source: cuda_repo",
    before="refuse",
)


@check("the source has what the server needs", SOURCE_OF_OTHER_SYSTEM, SOURCE_LACKS_FABRIC)
def source_serves_the_server(driver: Driver) -> Iterator[CheckResult]:
    source, host = driver.options.source, driver.host
    home = {"ubuntu_prebuilt": "Ubuntu", "debian": "Debian"}.get(source)
    if home and host.distribution != home:
        seen = f"runs {host.distribution}, and nvidia_driver_source: {source} is for {home} alone"
        yield seen_on(driver.host, SOURCE_OF_OTHER_SYSTEM, seen)
    elif driver.is_prebuilt and driver.facts.needs_nvlsm:
        yield seen_on(driver.host, SOURCE_LACKS_FABRIC, "needs the NVLink subnet manager, which Ubuntu does not have")
    elif source == DEBIAN and driver.facts.needs_fabric_manager:
        yield seen_on(driver.host, SOURCE_LACKS_FABRIC, "needs a fabric manager, which Debian does not have")


BRANCH_UNFIT = _DRIVER.error(
    "DRIVER_BRANCH_UNFIT",
    "a driver branch supports only some generations of GPUs",
    "set nvidia_driver_version to a release of a branch that supports them; `apt-cache madison {package}` on the node "
    "lists them. If it is a small card that no workload uses, list its PCI address in kubegpu_ignored_gpus",
    before="refuse",
)
ARCHIVE_BRANCH_UNFIT = _DRIVER.error(
    "DRIVER_ARCHIVE_BRANCH_UNFIT",
    "Debian has no other branch",
    "set nvidia_driver_source: cuda_repo",
    before="refuse",
)
REPOSITORY_TOO_NEW = _DRIVER.error(
    "DRIVER_REPOSITORY_TOO_NEW",
    "NVIDIA's repository for {system} begins with branch {branch}",
    "set nvidia_driver_source: {source}, which has packages of an older branch, or install Ubuntu 24.04 or Debian 12",
    before="refuse",
)
BRANCH_MISSING = _DRIVER.error(
    "DRIVER_BRANCH_MISSING",
    "NVIDIA's repository for the system begins with a later branch",
    "leave nvidia_driver_version empty for {default}, or set it to a release of a later branch",
    before="refuse",
)


@check("the branch supports the GPUs", BRANCH_UNFIT, ARCHIVE_BRANCH_UNFIT, REPOSITORY_TOO_NEW)
def branch_drives_the_gpus(driver: Driver) -> Iterator[CheckResult]:
    first, last = driver.first_branch, driver.last_branch
    is_elsewhere = driver.options.source == DEBIAN and driver.host.is_ubuntu  # its branch is unknown
    if first <= driver.branch <= last or is_elsewhere:
        return
    generations = " and ".join(driver.facts.generations)
    limit = f"their first branch is {first}" if driver.branch < first else f"their last branch is {last}"
    seen = f"has {generations} GPUs, which branch {driver.branch} does not support: {limit}"
    if driver.options.source == CUDA_REPO and last < driver.system.first_branch:
        source = "ubuntu_prebuilt" if driver.host.is_ubuntu else "debian"
        words = {"system": driver.host.system, "branch": str(driver.system.first_branch), "source": source}
        yield seen_on(driver.host, REPOSITORY_TOO_NEW, seen, **words)
    elif driver.options.source == DEBIAN:
        yield seen_on(driver.host, ARCHIVE_BRANCH_UNFIT, seen)
    else:
        yield seen_on(driver.host, BRANCH_UNFIT, seen, package=next(iter(driver.packages), "nvidia-driver"))


@check("NVIDIA's repository has the branch", BRANCH_MISSING)
def repository_has_the_branch(driver: Driver) -> Iterator[CheckResult]:
    first = driver.system.first_branch
    if driver.options.source == CUDA_REPO and driver.branch < first:
        seen = f"runs {driver.host.system}, whose repository has no branch {driver.branch}: it begins with {first}"
        yield seen_on(driver.host, BRANCH_MISSING, seen, default=driver.default_version)


NOT_PACKAGED = _DRIVER.error(
    "DRIVER_NOT_PACKAGED",
    "two drivers would overwrite each other",
    "on the node: `nvidia-uninstall` if NVIDIA's .run file installed it; reboot if its packages were removed. Leave "
    "this role out if the GPU operator's driver container provides the driver",
    before="refuse",
)


@check("the driver was installed by packages", NOT_PACKAGED)
def driver_is_of_packages(driver: Driver) -> Iterator[CheckResult]:
    if driver.facts.origin == "other":
        yield seen_on(
            driver.host, NOT_PACKAGED, f"has driver {driver.facts.loaded or '(not loaded)'} that no package installed"
        )


NEWER_INSTALLED = _DRIVER.error(
    "DRIVER_NEWER_INSTALLED",
    "the role installs an older release only if you ask for it",
    'set nvidia_driver_version: "{installed}-*" to keep it, or nvidia_driver_version: "{version}" to install the older '
    "release",
    before="refuse",
)


@check("no newer driver is installed", NEWER_INSTALLED)
def driver_goes_down_on_demand(driver: Driver) -> Iterator[CheckResult]:
    if driver.goes_down and not driver.options.version:
        installed = driver.facts.installed or ""
        seen = f"has driver {installed}, newer than {driver.version} of the collection's version file"
        yield seen_on(driver.host, NEWER_INSTALLED, seen, installed=installed, version=driver.version)


USED_BY_PODS = _DRIVER.error(
    "DRIVER_USED_BY_PODS",
    "pods may use the loaded driver, and it is replaced only on a drained node",
    "`ansible-playbook kubegpu.autoscale.upgrade_driver`, which drains one node after the other; or set "
    "nvidia_driver_version, nvidia_driver_flavour and nvidia_driver_source to what is installed",
    before="refuse",
)


@check("no driver is replaced under pods", USED_BY_PODS)
def pods_keep_their_driver(driver: Driver) -> Iterator[CheckResult]:
    if driver.host.clusters and driver.replaces_loaded and not driver.may_reboot:
        present = driver.facts.installed or driver.facts.loaded
        clusters = ", ".join(driver.host.clusters)
        seen = f"is a node ({clusters}), and driver {driver.version} would replace {present} under its pods"
        yield seen_on(driver.host, USED_BY_PODS, seen)


PACKAGES_HELD = _DRIVER.error(
    "DRIVER_PACKAGES_HELD",
    "packages on hold are not upgraded, so only a part of the driver would change. The role pins the whole set itself",
    "on the node: `apt-mark unhold {held}`",
    before="refuse",
)


@check("no package that must be upgraded is on hold", PACKAGES_HELD)
def packages_can_move(driver: Driver) -> Iterator[CheckResult]:
    if driver.held:
        installed = driver.facts.installed or "another version"
        seen = f"has {', '.join(driver.held)} on hold at {installed}, but driver {driver.version} should be installed"
        yield seen_on(driver.host, PACKAGES_HELD, seen, held=" ".join(driver.held))


COMPONENTS_MISSING = _DRIVER.error(
    "DRIVER_COMPONENTS_MISSING",
    "the driver's packages, or packages that they depend on, are in these components",
    "on the node: add {missing} to the line `Components: main` of /etc/apt/sources.list.d/{file}, or behind `main` in "
    "/etc/apt/sources.list, and run `apt-get update`",
    before="refuse",
)


@check("apt uses the components of the distribution that the driver depends on", COMPONENTS_MISSING)
def components_are_enabled(driver: Driver) -> Iterator[CheckResult]:
    distribution = driver.host.distribution
    if driver.missing_components and f"{distribution}/main" in driver.survey.components:
        seen = f"uses {distribution} without {', '.join(driver.missing_components)}"
        words = {"missing": " ".join(driver.missing_components), "file": f"{distribution.lower()}.sources"}
        yield seen_on(driver.host, COMPONENTS_MISSING, seen, **words)


FABRIC_MANAGER_LAGS = _DRIVER.error(
    "DRIVER_FABRIC_MANAGER_LAGS",
    "each release of Ubuntu's fabric manager depends on the same release of the driver",
    "on the node: `apt-get update`, then `apt-cache policy {packages}`; run this again when both have the same "
    "release, or set nvidia_driver_source: cuda_repo",
    before="refuse",
)


@check("apt can install the fabric manager with the driver", FABRIC_MANAGER_LAGS)
def fabric_manager_fits(driver: Driver) -> Iterator[CheckResult]:
    answer = driver.survey.solution
    if answer and answer.rc != 0 and "unmet dependencies" in answer.words:
        seen = f"cannot install driver {driver.version} with its fabric manager from Ubuntu's archive"
        packages = " ".join([*driver.fabric_packages, *driver.packages[:1]])
        yield seen_on(driver.host, FABRIC_MANAGER_LAGS, seen, packages=packages)


KEY_NOT_ENROLLED = _DRIVER.error(
    "DRIVER_KEY_NOT_ENROLLED",
    "with Secure Boot the kernel loads signed modules only, and the key that DKMS signs with is not enrolled",
    'on the node: `apt-get install dkms mokutil openssl && openssl req -new -x509 -nodes -days 36500 -subj "/CN=DKMS '
    'module signing key" -newkey rsa:2048 -keyout {key} -outform DER -out {certificate} && mokutil --import '
    "{certificate}`; then reboot, and enroll the key at the console",
    evidence=(
        # Ubuntu has no key before the first module of DKMS; Debian 12's dkms has no `generate_mok`.
        Evidence(
            "Ubuntu",
            "with Secure Boot the kernel loads signed modules only, and the key that DKMS signs with is not enrolled",
            "set nvidia_driver_source: ubuntu_prebuilt for modules that Canonical signed; or on the node: `apt-get "
            "install dkms mokutil openssl shim-signed && update-secureboot-policy --new-key && mokutil --import "
            "{certificate}`; then reboot, and enroll the key at the console",
        ),
    ),
    before="refuse",
)


@check("the key that DKMS signs with is enrolled", KEY_NOT_ENROLLED)
def key_is_enrolled(driver: Driver) -> Iterator[CheckResult]:
    answer = driver.survey.key_test
    if answer and "is already enrolled" not in answer.words:
        certificate = driver.mok_certificate
        key = certificate.rpartition(".")[0] + ".key"
        seen = f"runs {driver.host.system} with Secure Boot, and mokutil answers: {answer.words}"
        yield seen_on(driver.host, KEY_NOT_ENROLLED, seen, certificate=certificate, key=key)


NOT_BUILT = _DRIVER.error(
    "DRIVER_NOT_BUILT",
    "the kernel module does not build for this kernel",
    "use a driver made for this kernel, by nvidia_driver_version, nvidia_driver_flavour or nvidia_driver_source, or "
    "boot an older kernel. Then run this again",
)
NOT_INSTALLED = _DRIVER.error(
    "DRIVER_NOT_INSTALLED",
    "apt did not install the packages",
    "on the node: `apt-cache policy {packages}` shows what its repositories have. If the headers of the running kernel "
    "are gone from the archive, upgrade and boot a newer kernel first (`apt-get install linux-image-{kernel}`). Then "
    "run this again",
)


@check("the packages were installed", NOT_BUILT, NOT_INSTALLED)
def packages_were_installed(driver: Driver) -> Iterator[CheckResult]:
    failure = driver.survey.failure
    if failure is None:
        return
    lacks = f"did not get driver {driver.version}"
    if failure.build_error:
        yield seen_on(driver.host, NOT_BUILT, f"{lacks}: {failure.build_error} ({failure.path})")
    else:
        words = {"packages": " ".join(driver.apt.packages), "kernel": driver.kernel}
        yield seen_on(driver.host, NOT_INSTALLED, f"{lacks}: {failure.message}", **words)


MIXED_RELEASES = _DRIVER.error(
    "DRIVER_MIXED_RELEASES",
    "all packages of a driver must have the same release",
    "on the node: `apt-cache policy {packages}`",
)


@check("all driver packages have the wanted release", MIXED_RELEASES)
def parts_are_of_one_release(driver: Driver) -> Iterator[CheckResult]:
    if driver.is_wanted and driver.foreign and not driver.survey.failure:
        parts = ", ".join(f"{package.name} {package.version}" for package in driver.foreign)
        packages = " ".join(package.name for package in driver.foreign)
        seen = f"has driver packages of another release than {driver.version}: {parts}"
        yield seen_on(driver.host, MIXED_RELEASES, seen, packages=packages)


REBOOT_WITHOUT_EFFECT = _DRIVER.error(
    "DRIVER_REBOOT_WITHOUT_EFFECT",
    "an old module in the initramfs is loaded before the new one",
    "on the node: `lsinitramfs /boot/initrd.img-$(uname -r) | grep -E 'nvidia|nouveau|nova'`; `update-initramfs -u` "
    "removes it, or `dracut --force --regenerate-all` on a system that uses dracut",
)
REBOOT_PENDING = _DRIVER.warning(
    "DRIVER_REBOOT_PENDING",
    "the GPUs can be used after a reboot",
    "Reboot it, or set nvidia_driver_reboot_ok, and run this again",
)
NODE_REBOOT_PENDING = _DRIVER.warning(
    "DRIVER_NODE_REBOOT_PENDING",
    "the GPUs can be used after a reboot, and pods run on the node",
    "Run the playbook kubegpu.autoscale.upgrade_driver, which drains and reboots one node after the other. Or drain "
    "it, reboot it and run this again",
)
LOCAL_REBOOT_PENDING = _DRIVER.warning(
    "DRIVER_LOCAL_REBOOT_PENDING",
    "the GPUs can be used after a reboot, and a playbook does not reboot the machine that it runs on",
    "Reboot it, after draining it if it is a node of a cluster, and run this again",
)


@check("no reboot is due", REBOOT_WITHOUT_EFFECT, REBOOT_PENDING, NODE_REBOOT_PENDING, LOCAL_REBOOT_PENDING)
def no_reboot_is_due(driver: Driver) -> Iterator[CheckResult]:
    reason = driver.facts.reboot_reason
    if not reason or not driver.is_wanted:
        return
    if driver.survey.rebooted:
        yield seen_on(driver.host, REBOOT_WITHOUT_EFFECT, f"has rebooted, and still {reason}")
    elif driver.host.is_local:
        yield seen_on(driver.host, LOCAL_REBOOT_PENDING, f"has to reboot: {reason}")
    else:
        pending = NODE_REBOOT_PENDING if driver.host.clusters else REBOOT_PENDING
        yield seen_on(driver.host, pending, f"has to reboot: {reason}")


GPUS_NOT_SHOWN = _DRIVER.error(
    "DRIVER_GPUS_NOT_SHOWN",
    "the driver does not serve all GPUs",
    "on the node: `nvidia-smi`, `dkms status`, `cat /proc/driver/nvidia/version`, `journalctl -k --grep 'NVRM|nvidia'`",
)
EXISTING_UNUSABLE = _DRIVER.error(
    "DRIVER_EXISTING_UNUSABLE",
    "nvidia_driver_state: existing uses a driver that shows every GPU with libraries of the loaded release",
    "on the node: `nvidia-smi`, `cat /proc/driver/nvidia/version`, `ldconfig -p | grep libnvidia-ml`. "
    "nvidia_driver_state: present installs a driver if none is installed",
)


@check("nvidia-smi shows what PCI shows", GPUS_NOT_SHOWN, EXISTING_UNUSABLE)
def all_gpus_are_shown(driver: Driver) -> Iterator[CheckResult]:
    answer, facts = driver.survey.shown, driver.facts
    if answer is None:
        return
    shows = f"shows {len(driver.shown)}" if answer.rc == 0 else f"fails: {answer.words}"
    releases = f"driver {facts.installed or 'none'} is installed, {facts.loaded or 'none'} is loaded"
    seen = f"has {len(facts.gpus)} GPUs by PCI, and nvidia-smi {shows}; {releases}"
    notes = " ".join(f". {note}" for note in (facts.problem, facts.reboot_reason) if note)
    if answer.rc != 0 or len(driver.shown) != len(facts.gpus) or not driver.is_in_use:
        yield seen_on(driver.host, EXISTING_UNUSABLE if driver.is_existing else GPUS_NOT_SHOWN, seen + notes)


NOT_PERSISTENT = _DRIVER.error(
    "DRIVER_NOT_PERSISTENT",
    "with persistence mode off, the driver is loaded again for each program that starts on an idle GPU",
    "on the node: `systemctl cat nvidia-persistenced`; it has to run without --no-persistence-mode",
)
EXISTING_NOT_PERSISTENT = _DRIVER.warning(
    "DRIVER_EXISTING_NOT_PERSISTENT",
    "the driver is loaded again for each program that starts on an idle GPU, which takes 1 or 2 s. The role does "
    "not change a driver that it did not install",
    "on the node: `systemctl enable --now nvidia-persistenced`",
)


@check("the driver stays loaded", NOT_PERSISTENT, EXISTING_NOT_PERSISTENT)
def driver_stays_loaded(driver: Driver) -> Iterator[CheckResult]:
    if any("Disabled" in line for line in driver.shown):
        found = EXISTING_NOT_PERSISTENT if driver.is_existing else NOT_PERSISTENT
        yield seen_on(driver.host, found, "has persistence mode off")


WITHOUT_UVM = _DRIVER.error(
    "DRIVER_WITHOUT_UVM",
    "/dev/nvidia-uvm is missing: nvidia-smi works, and no CUDA program of a container starts (cuInit fails with 999)",
    "on the node: `systemctl status kubegpu-nvidia-uvm`, `modprobe nvidia-uvm`, `nvidia-modprobe -u -c=0`",
)
EXISTING_WITHOUT_UVM = _DRIVER.warning(
    "DRIVER_EXISTING_WITHOUT_UVM",
    "/dev/nvidia-uvm is missing: nvidia-smi works, and no CUDA program of a container starts (cuInit fails with 999). "
    "The role does not change a driver that it did not install",
    "on the node, now and at each boot: `nvidia-modprobe -u -c=0`",
)


@check("nvidia-uvm is loaded", WITHOUT_UVM, EXISTING_WITHOUT_UVM)
def uvm_is_loaded(driver: Driver) -> Iterator[CheckResult]:
    if driver.survey.shown is not None and driver.facts.loaded and not driver.facts.has_uvm:
        found = EXISTING_WITHOUT_UVM if driver.is_existing else WITHOUT_UVM
        yield seen_on(driver.host, found, f"has driver {driver.facts.loaded} loaded and no /dev/nvidia-uvm")


FABRIC_NOT_COMPLETED = _DRIVER.error(
    "DRIVER_FABRIC_NOT_COMPLETED",
    "the fabric manager runs and has not joined the GPUs, so every CUDA program fails with error 802",
    "on the node: `nvidia-smi -q | grep -A4 Fabric`, `journalctl -u nvidia-fabricmanager`, "
    "`journalctl -k --grep 'NVRM|Xid'`",
)


@check("the NVLink fabric has completed", FABRIC_NOT_COMPLETED)
def fabric_has_completed(driver: Driver) -> Iterator[CheckResult]:
    if driver.unfinished_fabric:
        states = ", ".join(driver.unfinished_fabric)
        yield seen_on(driver.host, FABRIC_NOT_COMPLETED, f"reports Fabric State {states}, not Completed")


GPU_MISSING = _DRIVER.error(
    "DRIVER_GPU_MISSING",
    "a GPU has fallen off the bus, or nvidia_driver_expected_gpus is too high",
    "on the node: `lspci -d 10de:`, `journalctl -k --grep 'NVRM|Xid'`; power-cycle the server. If the GPU was removed, "
    "set nvidia_driver_expected_gpus to the number of GPUs in the host ({found})",
    before="refuse",
)


@check("no GPU is missing", GPU_MISSING)
def no_gpu_is_missing(driver: Driver) -> Iterator[CheckResult]:
    expected, found = driver.options.expected_gpus, len(driver.facts.gpus)
    if expected is not None and found < expected:
        seen = f"has {found} GPUs by PCI, and nvidia_driver_expected_gpus is {expected}"
        yield seen_on(driver.host, GPU_MISSING, seen, found=str(found))


MISSING = _DRIVER.error(
    "DRIVER_MISSING",
    "without a driver nothing on the server can use its GPUs",
    "run the nvidia_driver role with nvidia_driver_state: present",
    is_consequence=True,
    explained_by=(Hop.DRIVER,),
)


@check("a driver is installed", MISSING)
def driver_is_there(driver: Driver) -> Iterator[CheckResult]:
    facts = driver.facts
    if (driver.is_wanted or driver.is_existing) and facts.origin is None:
        generations = " and ".join(facts.generations)
        yield seen_on(driver.host, MISSING, f"has {len(facts.gpus)} GPUs ({generations}) and no NVIDIA driver")


NEXT_KERNEL_WITHOUT_MODULE = _DRIVER.warning(
    "DRIVER_NEXT_KERNEL_WITHOUT_MODULE",
    "the driver works until the next boot, and the node has no GPU after it",
    "on the node: `apt-get install linux-headers-{kernel}`, then `dkms autoinstall -k {kernel}`; modules built by "
    "Ubuntu come with linux-modules-nvidia-*-{kernel}. `ansible-playbook kubegpu.autoscale.maintain` checks for them "
    "before it reboots",
)


@check("the kernel of the next boot has the driver's module", NEXT_KERNEL_WITHOUT_MODULE)
def next_kernel_has_the_module(driver: Driver) -> Iterator[CheckResult]:
    facts = driver.facts
    if facts.next_boot_problem:
        seen = f"will have no GPU after a reboot: {facts.next_boot_problem}"
        yield seen_on(driver.host, NEXT_KERNEL_WITHOUT_MODULE, seen, kernel=facts.pending_kernel)


BRANCH_ENDED = _DRIVER.warning(
    "DRIVER_BRANCH_ENDED",
    "NVIDIA no longer publishes security fixes for the branch",
    "set nvidia_driver_version to a release of a supported branch (docs/versions.md), then run `ansible-playbook "
    "kubegpu.autoscale.upgrade_driver`",
)


@check("the driver branch is supported", BRANCH_ENDED)
def branch_is_supported(driver: Driver) -> Iterator[CheckResult]:
    release = driver.facts.loaded or driver.facts.installed or ""
    end = branch_end(release)
    if end and end < driver.host.now:
        month = f"{datetime.fromtimestamp(end - 1, UTC):%B %Y}"
        yield seen_on(driver.host, BRANCH_ENDED, f"uses driver {release}, whose branch was supported until {month}")


# Run before any change, and afterwards.
BEFORE = (
    each_gpu_is_identified,
    no_gpu_is_missing,
    modules_drive_the_gpus,
    source_serves_the_server,
    branch_drives_the_gpus,
    repository_has_the_branch,
    driver_is_of_packages,
    driver_goes_down_on_demand,
    pods_keep_their_driver,
    packages_can_move,
    components_are_enabled,
    fabric_manager_fits,
    key_is_enrolled,
)
AFTER = (
    packages_were_installed,
    parts_are_of_one_release,
    no_reboot_is_due,
    all_gpus_are_shown,
    driver_stays_loaded,
    uvm_is_loaded,
    fabric_has_completed,
    next_kernel_has_the_module,
    branch_is_supported,
)
# For the doctor: EXAMINED if a driver is wanted, NOW in any case. The hop node reports what gpu_facts finds.
EXAMINED = tuple(asked for asked in BEFORE if asked is not no_gpu_is_missing)
NOW = (driver_is_there, all_gpus_are_shown, next_kernel_has_the_module, branch_is_supported)
