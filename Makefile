# Each target is one line of help; the work is in scripts/.
.DEFAULT_GOAL := help
.PHONY: help deps build install uninstall deb rpm image packages darwin dmg demo lab test unit e2e soak fuzz conformance bench lint generate docs clean
.NOTPARALLEL:

help: ## list the targets
	@grep -hE '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9]+):.*## /\1\t/' | expand -t 12

deps: ## install the Debian packages that building, running and the tests need (as root; else say which are missing)
	@scripts/deps.sh

build: ## build everything into bin/; what did not change is left alone
	@scripts/deps.sh build
	@scripts/build.sh

install: ## put what was built where it belongs, as root: programs, systemd unit, manual pages, completions; PREFIX=/usr/local DESTDIR=
	@scripts/install.sh install

uninstall: ## take it away again; the cluster's data and the configuration stay
	@scripts/install.sh uninstall

ARCHS = amd64 arm64

deb: ## packages for Debian and Ubuntu into build/packages, the same bytes from the same commit; ARCHS=amd64 for one of both
	@scripts/deps.sh build
	@for arch in $(ARCHS); do scripts/package.sh --build deb $$arch || exit; done

rpm: ## packages for Fedora and openSUSE, likewise
	@scripts/deps.sh build
	@for arch in $(ARCHS); do scripts/package.sh --build rpm $$arch || exit; done

image: ## the container image for server clusters, and the Helm chart, into build/ (docs/server.md); ARCHS=amd64 for one of both
	@scripts/image.sh $(ARCHS)

packages: build ## install, upgrade, remove and purge the .deb in a Debian booted with systemd, and what lintian and rpm say (as root; 4 minutes)
	@scripts/deps.sh packages
	@scripts/test.sh packages

darwin: ## build kith, kithd and kith-tray for macOS into bin/darwin-*/ (experimental: never ran on a Mac)
	@scripts/darwin.sh

dmg: darwin ## make the disk image for Macs, build/Kith.dmg, on Linux or a Mac (docs/macos.md; experimental too)
	@scripts/dmg.sh

demo: build ## show the main job on one machine: two laptops find each other, peer and share an application
	@scripts/demo.sh

lab: build ## two laptops to play with (bin/kith-lab down takes them away)
	@bin/kith-lab up --image build/images/echo.tar --image build/images/load.tar

test: unit e2e ## all tests: units with the race detector, then the lab

unit: deps ## unit tests with the race detector
	@scripts/test.sh unit

e2e: deps build ## tests in the lab, with real clusters (as root)
	@scripts/test.sh lab

soak: deps build ## the lab's tests and the long ones: faults at random, cuts, floods, databases, an upgrade from an earlier package
	@scripts/test.sh soak
	@scripts/deps.sh packages
	@scripts/test.sh packages-soak -run TestAnUpgradeFromThePackageBefore

conformance: build ## upstream's conformance tests with their pods at a peer, and at home (2 hours; as root); SAMPLE=1: twenty (3 minutes); MCS=1: those of Multi-Cluster Services
	@scripts/conformance.sh $(if $(MCS),mcs,$(if $(SAMPLE),sample,all))

fuzz: ## fuzz every parser of bytes from the network: FUZZ_TIME each (10s), or FUZZ_INPUTS=10000000
	@scripts/fuzz.sh

bench: build ## measure: table, build/bench.json, plots in build/bench.html (an hour; as root); QUICK=1: what people ask for first
	@scripts/bench.sh

lint: ## golangci-lint, generated files in step
	@scripts/lint.sh

generate: ## write the custom resources' YAML and deep copies from the Go types
	@scripts/generate.sh

docs: ## write the manual pages and docs/cli.md from the commands themselves
	@scripts/docs.sh

clean: ## remove what was built
	rm -rf bin build
