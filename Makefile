# Heddle. `make demo` shows what it does, `make test` says whether it does it.

# danted, openvpn and sshd are there, which su leaves out.
export PATH := $(PATH):/usr/sbin:/sbin
# All builds and tests have the same flags, so that each package is compiled once. Nobody debugs what is built here. Go's tools collect
# garbage less often: both together spare a fifth of the time that compilers take, or more.
export GOFLAGS := $(GOFLAGS) -trimpath -gcflags=all=-dwarf=false '-toolexec=env GOGC=400 GOMEMLIMIT=1GiB'
# Without C, so that a binary starts on any Linux. The race detector needs it.
export CGO_ENABLED := 0
GO      ?= go
STRIP   := -ldflags "-s -w"
HEDDLE  := bin/heddle
# lint vets. On a busy machine a package may need more than the ten minutes that go test gives it by itself. Tests wait more than
# they compute, so twice as many packages are tested at once as there are processors.
# Nobody debugs test binaries that go test throws away, and what a debugger reads takes half of the time in which they are linked.
TEST    := $(GO) test -vet=off -ldflags=-w -timeout 1h -p $(shell expr 2 \* $$(getconf _NPROCESSORS_ONLN))
# What has goroutines, or runs whole commands, is tested under the race detector, and not without it again. Each program that is built so waits at its end for
# late reports, by itself a second; tests start hundreds of such programs. A pool by itself shares nothing.
THREADS := '^\s*(defer )?go |\.Go\(|\<sync\.[^P]|synctest|httptest\.New|t\.Parallel\(\)|testscript'
# What only computes is built without the race detector, with which it took two thirds of the time of all these tests; so is the database, which is C
# translated to Go. A package that uses sync.Map or atomic.Pointer cannot be among them: their code is linked once, for all packages.
COMPUTE := compress/... github.com/klauspost/compress/flate github.com/klauspost/compress/zlib hash/... image/... golang.org/x/net/html/... modernc.org/libc/... modernc.org/sqlite/lib heddle/disguise/carrier
RACING  := -race $(COMPUTE:%=-gcflags=%=-race=false)
RACE    := ./path/... ./split/... ./stripe/... ./overlay/... ./board/... ./observe ./cmd/... ./proxy/... ./internal/... ./disguise/... ./pseudonym/... ./lab

.PHONY: all build demo test lint fuzz bench man install eval eval-test clean

all: build

build:
	$(GO) build $(STRIP) -o $(HEDDLE) ./cmd/heddle

demo: build
	@dist/install-deps demo
	$(HEDDLE) demo

# What must hold before a change is kept: all of it, from lint to worlds. The other module and the evaluation are tested beside the
# packages that run under the race detector, which mostly wait. The worlds come last, so that nothing else keeps the machine busy, and
# the worlds whose test is named Alone after all others, one by one. All worlds start the one binary. A failure ends nothing, so that one
# run shows all failures.
test: export HEDDLE_TEST_BINARY := $(CURDIR)/$(HEDDLE)
test: export GORACE := atexit_sleep_ms=20
test:
	@dist/install-deps test
	@$(MAKE) --no-print-directory --output-sync=target eval & beside=$$!; $(MAKE) --no-print-directory build lint && wait $$beside
	@threads=$$(grep -lE $(THREADS) $$(git ls-files '*.go') | xargs -n1 dirname | sort -u | sed 's|^|heddle/|'); \
	raced=$$($(GO) list $(RACE) | grep -v /internal/lint | grep -xF "$$threads"); rest=$$($(GO) list ./... | grep -v /internal/lint | grep -vxF "$$raced"); \
	alone=$$(grep -rl --include=*_test.go '^func Test.*Alone(' ./e2e ./experiments | xargs -n1 dirname | sort -u); \
	echo "$(TEST) -race, then the rest, then those that are alone"; \
	$(MAKE) --no-print-directory -k -j2 --output-sync=target board-bft-test eval-test & beside=$$!; failed=0; \
	CGO_ENABLED=1 $(TEST) $(RACING) $$raced || failed=1; wait $$beside || failed=1; $(TEST) -skip 'Alone$$' $$rest || failed=1; \
	$(TEST) -p 1 -run 'Alone$$' $$alone || failed=1; exit $$failed

lint:
	@out=$$(gofmt -l $$(git ls-files "*.go")); \
	if [ -n "$$out" ]; then echo "not gofmt-ed:"; echo "$$out"; exit 1; fi
	$(GO) vet ./...
	GOGC=400 GOMEMLIMIT=4GiB $(GO) tool staticcheck ./...
	$(GO) test ./internal/lint

# Builds the binary for the other systems that it is for; what needs Linux says so there. lint checks the same by types alone,
# in a tenth of the time. On Android a dependency
# (wlynxg/anet) reaches into package net, which the linker must permit.
CROSS := windows/amd64 darwin/amd64 freebsd/amd64 android/arm64
.PHONY: cross
cross:
	@for system in $(CROSS); do \
		GOOS=$${system%/*} GOARCH=$${system#*/} $(GO) build -ldflags=-checklinkname=0 -o /dev/null ./cmd/heddle || exit 1; \
	done

# The replicated board is a module of its own: only who wants it builds CometBFT.
.PHONY: board-bft board-bft-test install-board-bft
board-bft:
	cd board/bft && $(GO) build $(STRIP) -o ../../bin/heddle-board-bft ./cmd/heddle-board-bft
	bin/heddle-board-bft man --dir dist/man-board-bft

board-bft-test:
	staticcheck=$$($(GO) tool -n staticcheck) && cd board/bft && $(GO) vet ./... && $$staticcheck ./...
	cd board/bft && $(TEST) ./...

# FUZZTIME each, for every fuzz target there is. `make test` runs their seeds.
FUZZTIME ?= 30s
fuzz:
	@for dir in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do \
		for target in $$(grep -h '^func Fuzz' $$dir/*_test.go | sed 's/func \(Fuzz[A-Za-z0-9]*\).*/\1/'); do \
			echo "$$dir $$target"; (cd $$dir && $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) .) || exit 1; \
		done; \
	done

bench: build
	@dist/install-deps bench
	$(HEDDLE) lab bench wireguard

# After a change of a BPF program: needs clang and llvm-strip, of the version that internal/bpf/bpftest names.
.PHONY: bpf
bpf:
	$(GO) generate ./split/kernel ./pseudonym/gateway/bpfswitch ./pseudonym/gateway/v6switch

# The man pages, and docs/reference.md, from the commands themselves.
man: build
	$(HEDDLE) man --dir dist/man --reference docs/reference.md

# The Python package and its command, eval/.venv/bin/heddle-eval. Without kept bytecode each of its processes compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE
UV      := 0.13.8
VENV    := eval/.venv
eval: $(VENV)/ready

$(VENV)/ready: eval/requirements.txt eval/requirements-dev.txt eval/pyproject.toml
	python3 -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check uv==$(UV)
	$(VENV)/bin/uv pip install --quiet --python $(VENV) -r eval/requirements.txt -r eval/requirements-dev.txt
	$(VENV)/bin/uv pip install --quiet --python $(VENV) --no-deps --editable eval
	@touch $@

eval-test: eval
	$(VENV)/bin/ruff check eval
	$(VENV)/bin/ruff format --check eval
	cd eval && .venv/bin/mypy
	cd eval && .venv/bin/pytest

# After a change of eval/*.in: pins all that they lead to.
.PHONY: eval-pins
eval-pins: eval
	cd eval && for name in requirements requirements-dev; do \
		.venv/bin/uv pip compile --quiet --upgrade --python-version 3.11 --no-emit-index-url --custom-compile-command 'make eval-pins' $$name.in -o $$name.txt; done

PREFIX  ?= /usr/local
install: build man
	install -D -m 755 $(HEDDLE) $(DESTDIR)$(PREFIX)/bin/heddle
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 644 dist/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1/
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	install -m 644 dist/heddle@.service dist/heddle-stream@.service dist/heddle-node.service dist/heddle-board.service dist/heddle-bridge.service dist/heddle-pseudonym.service dist/heddle-tenant.service dist/heddle-agent.service dist/heddle-switch.service $(DESTDIR)$(PREFIX)/lib/systemd/system/
	install -D -m 644 dist/heddle.toml $(DESTDIR)$(PREFIX)/share/doc/heddle/heddle.toml
	install -D -m 644 dist/site-docs.db $(DESTDIR)$(PREFIX)/share/heddle/site-docs.db

install-board-bft: board-bft
	install -D -m 755 bin/heddle-board-bft $(DESTDIR)$(PREFIX)/bin/heddle-board-bft
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 644 dist/man-board-bft/*.1 $(DESTDIR)$(PREFIX)/share/man/man1/
	install -D -m 644 dist/heddle-board-bft.service $(DESTDIR)$(PREFIX)/lib/systemd/system/heddle-board-bft.service

clean:
	rm -rf bin dist/man dist/man-board-bft heddle-demo heddle-demo-pseudonym eval/.venv
