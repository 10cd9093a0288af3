# The entry points of the repository. `make demo` and `make test` need root (they mount file systems in a
# mount namespace of their own) and install from Debian what they miss.

SHELL := /bin/bash
# PATH's, as rustup's; else the system's.
ifndef CARGO
CARGO := $(shell cargo --version >/dev/null 2>&1 && echo cargo || echo /usr/bin/cargo)
endif
export CARGO
PREFIX ?= /usr/local
OKEANOS := target/release/okeanos
LAB := target/release/okeanos-lab
# The same as they are shipped and measured, in one piece: a synchronous write takes 7 of 100
# instructions fewer (docs/PERFORMANCE.md).
SHIPPED := target/dist/okeanos
SHIPPED_LAB := target/dist/okeanos-lab

.PHONY: all build shipped deps deps-ceph deps-bench demo demo-ceph bench-shared check test test-crates test-mounts test-ceph test-volumes test-shared lint soak proof test-classic faults test-apps test-kernels test-kernels-blocks test-kernels-memory test-memory test-posix test-e2fsprogs test-xfstests soak-posix soak-system-calls posix-tools bench bench-peers flame record-traces figures figures-kernel recipes man install install-files install-lab-files uninstall deb dist image test-packages test-compiler test-reproducible tour site toolchain clean help

all: build

help:
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

deps: ## install the Debian packages that are missing
	@scripts/install-packages.sh e2fsprogs fuse3 attr acl libcap2-bin mount procps util-linux zstd strace python3 groff python3-prometheus-client libnbd-bin qemu-utils fio
deps-ceph: deps ## the same for a cluster of Ceph on this machine (scripts/ceph-cluster.sh)
	@scripts/install-packages.sh ceph-mon ceph-mds ceph-osd ceph-common ceph-fuse libcephfs2
deps-bench: deps
	@scripts/install-packages.sh xfsprogs btrfs-progs

build: toolchain ## both programs, optimised: target/release/okeanos and okeanos-lab
	$(CARGO) build --release --package cli --package lab

shipped: toolchain ## both as they are shipped and measured: target/dist/okeanos and okeanos-lab; takes twice as long
	$(CARGO) build --profile dist --package cli --package lab

# Says what is missing before cargo says it at length.
RUST := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
toolchain:
	@found=$$($(CARGO) --version 2>/dev/null | cut -d' ' -f2); \
	if [ "$$(printf '%s\n' $(RUST) "$${found:-0}" | sort -V | head -1)" != $(RUST) ]; then \
	    echo "Rust $(RUST) or later is needed; here is $${found:-none}. Debian 13 has it in cargo, Debian 12 in cargo-web:" >&2; \
	    echo "    apt-get install build-essential cargo        # Debian 12: cargo-web" >&2; \
	    echo "Elsewhere: rustup (https://rustup.rs)." >&2; \
	    exit 1; \
	fi

demo: deps build ## every mode: 100 writers, a crash, recovery, proof; one table
	$(LAB) bench demo

demo-ceph: deps-ceph build ## a shared file system on this machine: its clients, 16 synchronous writers, a crash; one table
	scripts/compare-shared.sh $(OKEANOS)

lint: ## format, clippy, what guards the architecture, features
	$(CARGO) xtask tidy
	$(CARGO) test --quiet --manifest-path xtask/Cargo.toml --target-dir target/xtask
	scripts/check-features.sh
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

# The layers whose tests need neither root nor mounts, and that nearly every change touches.
LOWER_LAYERS := units format device runtime disks journal commit engine

check: lint ## before a commit: lints and the lower layers; no root, no network, about two minutes
	$(CARGO) test --quiet $(addprefix --package ,$(LOWER_LAYERS))

# The suites of others, built once; unoptimised, because they wait for the file system anyway.
TOOLS := target/tools
POSIX_OPERATIONS ?= 5000

# What plays daily life, crashes and recovery, in a few minutes, once more without io_uring.
WITHOUT_RING := without_ring:: people:: hosts:: daemon_life:: blocks:: nbd:: coherence:: robustness::a_mount_point robustness::an_unplugged robustness::a_failed

# A part of `make test`: runs the command, and says how long it took.
timed = echo '$(1)'; TIMEFORMAT='took %0R s, %0U + %0S s of processors: $(1)'; time $(1)

# Tests that mount, use devices or wait for real time.
MOUNTING := cli lab fuse_session runtime

test: deps deps-ceph lint posix-tools ## everything that proves the code right
	@$(call timed,$(CARGO) test --workspace --no-run)
	@scripts/install-packages.sh sqlite3 git tar zstd rsync
	$(MAKE) --jobs=3 test-crates test-volumes test-shared

# The parts of `make test` that run side by side. What mounts or uses a cluster of Ceph mostly waits;
# the others, which count, take the processors that it leaves.
test-crates:
	@$(call timed,nice $(CARGO) test --workspace --exclude ceph $(MOUNTING:%=--exclude %))

test-mounts:
	@$(call timed,$(CARGO) test $(MOUNTING:%=--package %))
	@$(call timed,OKEANOS_IO=classic $(CARGO) test --package cli --test all -- $(WITHOUT_RING))

test-ceph:
	@$(call timed,$(CARGO) test --package ceph)

# A script stops daemons for a while, and a test calls sync(2), which would wait for them: scripts
# begin when the tests that mount have ended. Each has a mount namespace of its own: another process
# would keep a copy of each mount that it finds, which outlives the unmount.
test-volumes: test-mounts
	@$(call timed,scripts/tour.sh target/debug/okeanos) >target/TOUR.md
	diff -u docs/TOUR.md target/TOUR.md
	@$(call timed,scripts/test-posix.sh target/debug/okeanos $(TOOLS) $(POSIX_OPERATIONS))
	@$(call timed,scripts/test-host.sh target/debug/okeanos)
	@$(call timed,scripts/test-host-sharing.sh target/debug/okeanos)
	@$(call timed,WORKS="database repository clone" scripts/test-apps.sh target/debug/okeanos ordered wasteless)
	@$(call timed,scripts/test-databases.sh target/debug/okeanos sqlite wasteless)
	@$(call timed,ROUNDS=1 scripts/test-blocks.sh target/debug/okeanos ext4)

test-shared: test-mounts test-ceph
	@$(call timed,scripts/test-host-sharing.sh target/debug/okeanos ceph)
	@$(call timed,scripts/test-host-user.sh target/debug/okeanos)
	@$(call timed,ROUNDS=1 STORE=memstore scripts/test-host-ceph.sh target/debug/okeanos)
	@$(call timed,ROUNDS=4 scripts/test-host-ceph.sh target/debug/okeanos)

# Hours of exploring. What was explored is kept with the sources, and adds up: a run goes on with the
# next seed, after a stop and on another machine.
HOURS ?= 1
PROOF := docs/proof
# What `soak-posix` begins with: another seed each hour.
SOAK_SEED ?= $(shell date +%Y%m%d%H)

# What tests of other crates explore is recorded beside the state files: each run plays other seeds,
# and the small worlds of hosts, which have none, are played once.
EXPLORED := $(abspath $(PROOF)/tests)
BLOCK_CASES ?= 2000

soak: deps build ## the crash explorers for twice HOURS hours (resumable; docs/PROOF.md adds them up), then a real crash under load
	mkdir -p $(PROOF)
	$(LAB) sim --enumerated 3 --state $(PROOF)/enumerated --shrink
	$(LAB) sim --ace 1 --state $(PROOF)/ace-1 --shrink
	$(LAB) sim --ace 2 --hours $(HOURS) --state $(PROOF)/ace-2 --shrink
	$(LAB) sim --lying lru --barrier coerce --state $(PROOF)/coerced --rounds 50 --shrink
	OKEANOS_EXPLORED=$(EXPLORED) CASES=$(BLOCK_CASES) $(CARGO) test --package blocks --test all explorer::
	OKEANOS_EXPLORED=$(EXPLORED) $(CARGO) test --package host --test all -- explorer::
	grep -qs '"suite":"hosts, small' $(EXPLORED) || OKEANOS_EXPLORED=$(EXPLORED) $(CARGO) test --package host --test all -- small_world::
	$(LAB) sim --hours $(HOURS) --state $(PROOF)/random --shrink
	$(MAKE) proof
	$(LAB) bench demo --crash-after 20s --seconds 20s

proof: build ## docs/PROOF.md anew, from what is kept in docs/proof
	$(LAB) sim --proof $(wildcard $(PROOF)/*) --page docs/PROOF.md

soak: test-classic
test-classic: deps ## the whole suite of the daemon without io_uring, over threads and AIO
	OKEANOS_IO=classic $(CARGO) test --package cli

faults: deps ## switch on one deliberate fault at a time: does a test or the explorer find each? writes docs/FAULTS.md
	scripts/hunt-faults.sh

test-apps: deps deps-ceph build ## real programs on a volume of each mode; a host in front of Ceph, killed eight times
	ROUNDS=8 scripts/test-host-ceph.sh $(OKEANOS)
	@scripts/install-packages.sh sqlite3 git tar zstd rsync procps postgresql etcd-server etcd-client
	OKEANOS_IO=classic scripts/test-host.sh $(OKEANOS)
	scripts/test-apps.sh $(OKEANOS)
	scripts/test-apps-host.sh $(OKEANOS)
	scripts/test-databases.sh $(OKEANOS) sqlite
	scripts/test-databases.sh $(OKEANOS) postgres
	scripts/test-databases.sh $(OKEANOS) etcd
	@scripts/install-packages.sh fio xfsprogs btrfs-progs
	ROUNDS=8 scripts/test-blocks.sh $(OKEANOS)
	@scripts/install-packages.sh binutils systemd
	scripts/test-deb.sh $(OKEANOS)
	$(MAKE) test-memory test-kernels test-kernels-blocks test-kernels-memory
	@scripts/install-packages.sh chromium fonts-dejavu-core
	scripts/figure-screens.sh $(LAB) target/screens
	OKEANOS_PROGRAM=$(abspath $(OKEANOS)) OKEANOS_FILES=1000000 PATIENCE=3600 $(CARGO) test --package cli --test all robustness::a_large_directory

KERNEL_TOOLS := qemu-system-x86 busybox-static kmod nbd-client
test-kernels: deps ## volumes on the kernels of Debian 12 and 13 (6.1, 6.12), in emulated machines; ten minutes
	@scripts/install-packages.sh $(KERNEL_TOOLS)
	CARGO=$(CARGO) scripts/test-kernels.sh target/kernels volumes
test-kernels-blocks: deps ## the same with block volumes, as loop, ublk and NBD devices; fifteen minutes
	@scripts/install-packages.sh $(KERNEL_TOOLS)
	CARGO=$(CARGO) scripts/test-kernels.sh target/kernels blocks

test-kernels-memory: deps ## volumes and hosts on the newer of these kernels, where no memory is overcommitted
	@scripts/install-packages.sh $(KERNEL_TOOLS)
	CARGO=$(CARGO) scripts/test-kernels.sh target/kernels memory 6.12=trixie

test-memory: deps ## the suites without the heap's address space, then with a forbidden page behind allocations
	@scripts/install-packages.sh gcc libc6-dev
	CARGO=$(CARGO) scripts/test-memory.sh target/memory

posix-tools: $(TOOLS)/pjdfstest-0.2.2 $(TOOLS)/fsx-0.3.2
$(TOOLS)/%:
	@scripts/install-packages.sh libacl1-dev acl
	$(CARGO) install --quiet --debug --locked --root $(TOOLS) --target-dir $(TOOLS)/build $(subst -,@,$*)
	@touch $@

test-posix: deps deps-ceph posix-tools build ## the POSIX suites of others, on mounted volumes and on a host in front of a shared store
	scripts/test-posix.sh $(OKEANOS) $(TOOLS) $(POSIX_OPERATIONS)
	scripts/test-posix-host.sh $(OKEANOS) $(TOOLS) $(POSIX_OPERATIONS)

test-e2fsprogs: deps build ## the damaged volumes of e2fsprogs' own tests: check, recover, inspect; fetched from Debian's source
	scripts/test-e2fsprogs.sh $(OKEANOS)

soak: soak-posix
soak-posix: deps posix-tools build ## the same and our own, with a million operations a volume
	scripts/test-posix.sh $(OKEANOS) $(TOOLS) 1000000
	SEED=$(SOAK_SEED) OPERATIONS=1000000 PATIENCE=86400 $(CARGO) test --package cli --test all -- exerciser:: stress::

soak: soak-system-calls
soak-system-calls: deps ## scripts of DEPTH system calls beside the kernel, on a volume and on hosts, and one call fewer in other modes
	OKEANOS_EXPLORED=$(EXPLORED) DEPTH=$(DEPTH) PATIENCE=86400 $(CARGO) test --package cli --test all -- differential::
DEPTH ?= 3

# XFSTESTS: a checkout of the suite, or another address.
test-xfstests: deps build ## the kernel's suite for file systems on loop devices, against scripts/xfstests.txt; needs the network once
	@scripts/install-packages.sh git acl attr autoconf automake libtool-bin pkg-config gcc make bc fio gawk psmisc uuid-runtime xfsprogs uuid-dev xfslibs-dev libacl1-dev libaio-dev libcap-dev libssl-dev
	XFSTESTS="$(XFSTESTS)" scripts/test-xfstests.sh $(OKEANOS)

bench: deps shipped ## Okeanos beside the kernel's ext4 on the same kind of loop device
	$(SHIPPED_LAB) bench compare

# Medians of RUNS runs; an hour or so for three. README.md, docs/RECIPES.md and
# docs/PERFORMANCE.md hold such tables (`make recipes`).
RUNS ?= 3
bench-peers: deps-bench shipped ## the same, beside more of the kernel's file systems, with real programs, mixed load, and growth; one page
	@scripts/install-packages.sh $$($(SHIPPED_LAB) bench programs --packages)
	RUNS=$(RUNS) scripts/bench-peers.sh $(SHIPPED_LAB) target/bench-peers.md

flame: ## where the daemon's processor time goes beside 100 synchronous writers, as a flame graph in text
	@scripts/install-packages.sh linux-perf
	RUSTFLAGS="-C force-frame-pointers=yes" $(CARGO) build --profile dev-release --target-dir target/flame -p cli -p lab
	scripts/flame.sh target/flame/dev-release/okeanos

recipes: deps-bench shipped ## measure docs/RECIPES.md and the tables of README, docs/PERFORMANCE.md and docs/modes/blocks.md anew, on a quiet machine; an hour
	@scripts/install-packages.sh $$($(SHIPPED_LAB) bench programs --packages)
	scripts/measure.sh $(SHIPPED_LAB) docs/RECIPES.md README.md docs/PERFORMANCE.md docs/modes/blocks.md

bench-shared: deps-ceph shipped ## the works of Arion's figures on a real cluster of three OSDs, in target/figures/shared-*.json
	@scripts/install-packages.sh fio
	mkdir -p target/figures
	for work in streams varmail createfiles zipf risk; do \
	    scripts/compare-shared.sh $(SHIPPED) --work $$work --osds 3 --store bluestore --seconds 20 --runs $(RUNS) --no-crash \
	        --json target/figures/shared-$$work.json || exit; \
	done

# Not part of any test: what comes out differs each time, and is in the repository
# (crates/workloads/traces).
record-traces: ## record the traces of docs/TRACES.md anew, in target/traces; half an hour
	@scripts/install-packages.sh strace zstd mariadb-server postgresql sysbench gcc make libssl-dev zlib1g-dev
	scripts/record-traces.sh target/traces
	scripts/record-build.sh target/traces

figures: deps build ## the papers' figures in virtual time, in target/figures; goes on where it was interrupted
	$(LAB) reproduce all --out target/figures

figures-kernel: deps-bench shipped ## the kernel's file systems beside Okeanos on emulated disks in real time, in target/figures
	$(SHIPPED_LAB) reproduce kernel-7a kernel-8a kernel-10a --out target/figures

man: build ## man pages, in target/man
	$(OKEANOS) man target/man
	$(LAB) man target/man

# Where the system's own program goes, and where units are looked for.
UNITS ?= $(PREFIX)/lib/systemd/system
SERVICES := okeanos@ okeanos-host@ okeanos-blocks@
# Types that mount(8) has a helper for.
KINDS := okeanos fuse.okeanos fuseblk.okeanos okeanos-host fuse.okeanos-host
# Where zsh looks by itself: here, and for packages in vendor-completions.
ZSH ?= $(PREFIX)/share/zsh/site-functions
SHARE = $(DESTDIR)$(PREFIX)/share

# What install-files and install-lab-files put there; make install has the shipped ones.
PROGRAM ?= $(SHIPPED)
LAB_PROGRAM ?= $(SHIPPED_LAB)

install: shipped install-files install-lab-files ## both programs, man pages, completions, units, and the helper of mount(8), below PREFIX and /sbin

# Of what is built already.
install-files:
	rm -rf target/man && $(PROGRAM) man target/man
	install -d $(SHARE)/man/man1 $(SHARE)/man/man8 $(DESTDIR)/sbin $(DESTDIR)$(UNITS)
	install -m 644 target/man/*.1 $(SHARE)/man/man1
	install -m 644 target/man/*.8 $(SHARE)/man/man8
	$(call install-program,$(PROGRAM),okeanos)
	for unit in $(SERVICES); do \
	    sed 's|/usr/bin/okeanos|$(PREFIX)/bin/okeanos|' systemd/$$unit.service >$(DESTDIR)$(UNITS)/$$unit.service; done
	for kind in $(KINDS); do ln -sf $(PREFIX)/bin/okeanos $(DESTDIR)/sbin/mount.$$kind; done

install-lab-files:
	rm -rf target/man-lab && $(LAB_PROGRAM) man target/man-lab
	install -d $(SHARE)/man/man1
	install -m 644 target/man-lab/*.1 $(SHARE)/man/man1
	$(call install-program,$(LAB_PROGRAM),okeanos-lab)

# A program and its completions.
define install-program
	install -D -m 755 --strip $(1) $(DESTDIR)$(PREFIX)/bin/$(2)
	install -d $(SHARE)/bash-completion/completions $(DESTDIR)$(ZSH) $(SHARE)/fish/vendor_completions.d
	$(1) completions bash >$(SHARE)/bash-completion/completions/$(2)
	$(1) completions zsh >$(DESTDIR)$(ZSH)/_$(2)
	$(1) completions fish >$(SHARE)/fish/vendor_completions.d/$(2).fish
endef

uninstall: ## what install put there
	rm -f $(KINDS:%=$(DESTDIR)/sbin/mount.%)
	rm -f $(SHARE)/man/man1/okeanos.1 $(SHARE)/man/man[18]/okeanos-* $(SHARE)/man/man8/mount.fuse.okeanos.8
	for program in okeanos okeanos-lab; do \
	    rm -f $(DESTDIR)$(PREFIX)/bin/$$program $(SHARE)/bash-completion/completions/$$program \
	        $(DESTDIR)$(ZSH)/_$$program $(SHARE)/fish/vendor_completions.d/$$program.fish; done
	rm -f $(SERVICES:%=$(DESTDIR)$(UNITS)/%.service)

deb: shipped ## Debian packages, in target/deb: okeanos, and okeanos-lab
	scripts/make-deb.sh $(SHIPPED) target/deb

# Where what is given to people lies: a package for each architecture, a tarball, an image.
STATIC := target/static
dist: toolchain ## both programs without shared libraries: a reproducible tarball with SBOM and checksums, in target/static
	scripts/make-static.sh $(STATIC)

image: dist ## an OCI image of the static program, as a tar, in target/image (docs/CONTAINERS.md)
	@scripts/install-packages.sh buildah
	scripts/make-image.sh $(STATIC)/okeanos-*-static.tar.gz target/image

test-packages: deps deb image ## packages, tarball and image in clean roots of Debian 12 and 13; needs the network
	@scripts/install-packages.sh mmdebstrap skopeo umoci runc golang-github-containers-common
	scripts/test-packages.sh --packages target/deb --static $(STATIC)/okeanos-*-static.tar.gz
	scripts/test-image.sh target/image/okeanos-*.oci.tar

test-compiler: ## builds in a clean root of Debian 13, with its own compiler; needs the network
	@scripts/install-packages.sh mmdebstrap
	scripts/test-compiler.sh

test-reproducible: toolchain ## builds the static tarball twice, at two places: the same bytes
	scripts/test-reproducible.sh

tour: build ## the first minutes and the daily life, played; docs/TOUR.md is what comes out
	scripts/tour.sh $(OKEANOS) >target/TOUR.md
	cp target/TOUR.md docs/TOUR.md

MDBOOK := 0.5.4
$(TOOLS)/mdbook-$(MDBOOK):
	$(CARGO) install --quiet --locked --no-default-features --features search --root $(TOOLS) --target-dir $(TOOLS)/build mdbook@$(MDBOOK)
	@touch $@

site: $(TOOLS)/mdbook-$(MDBOOK) ## the pages as a site, in target/site, with their links checked
	scripts/make-site.sh $(TOOLS)/bin/mdbook

clean: ## what was built
	$(CARGO) clean
